"""A run of purchases beside runs of target weights on the same market: one table, an interval, and a word on costs."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from small_traders import SMALL_PURCHASES, SMALL_WEIGHTS

import flatwater as fw
from flatwater.cli.main import main
from flatwater.comparisons.side_by_side import differences_from_first, number_rows, read_compared_runs
from flatwater_trading.panel.locate import load_panel
from flatwater_trading.panel.panel import build_panel
from flatwater_trading.panel.store import save_panel
from flatwater_trading.recipe.return_difference import OTHER_MARKET_NOTE, is_same_market

COMPARED_ROWS = slice(250, 310)
"""Rows of the validation days."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs by name, on the same days: purchases, weights, and weights that pay more for their trades.

    One instrument ends within these days. Traders of purchases sell it on the next day, target weights weeks later.
    """
    place = tmp_path_factory.mktemp("runs")
    market = load_panel("synthetic:4x400:signal=0.7")
    values = market.values.copy()
    values[COMPARED_ROWS.start + 20 :, 1] = np.nan
    panel = place / "ended.panel"
    save_panel(build_panel(values=values, dates=market.dates, instruments=market.instruments), panel)
    purchases = SMALL_PURCHASES | {"splits": SMALL_WEIGHTS["splits"]}
    trained: dict[str, tuple[str, dict[str, Any]]] = {
        "purchases": ("erl", purchases),
        "weights": ("weights", SMALL_WEIGHTS),
        "dear": ("weights", SMALL_WEIGHTS | {"account": {"cost_bps": 6.0}}),
    }
    return {
        name: fw.train(recipe, panel=str(panel), run=place / name, quiet=True, **settings).path
        for name, (recipe, settings) in trained.items()
    }


def test_purchases_and_weights_stand_in_one_table_with_an_interval(
    folders: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    names = [str(folders[name]) for name in ("purchases", "weights")]
    assert main(["compare", *names, "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)
    for side, folder in zip(compared["runs"], names, strict=True):
        champion = json.loads(Path(folder, "result.json").read_text())["traders"]["champion"]
        for number in ("total_return", "sharpe", "drawdown", "turnover"):
            assert side["result"][number] == champion[number]
    difference = compared["differences"][0]
    curves = [pl.read_parquet(f"{name}/equity.parquet")["champion"].to_numpy() for name in names]
    first, second = (np.diff(curve) / curve[:-1] for curve in curves)
    assert (difference["count"], difference["units"]) == (60, "days")
    assert difference["interval"]["mean"] == pytest.approx(252 * (second - first).mean(), rel=1e-5)
    assert difference["note"] is None
    assert difference["interval"]["low"] < difference["interval"]["mean"] < difference["interval"]["high"]
    assert main(["compare", *names]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "over the same 60 days." in said
    assert "Buy and hold earned another return" not in said, "they trade one market at the same costs"
    assert "Settings that only some of the recipes have are left out." in said


def test_one_metric_of_two_meanings_has_a_row_for_each(folders: dict[str, Path]) -> None:
    """The score of a trader stood in the row of a growth in basis points."""
    sides = read_compared_runs({name: folders[name] for name in ("purchases", "weights")})
    rows = dict(number_rows(sides))
    assert [cell == "-" for cell in rows["champion"]] == [False, True]
    assert [cell == "-" for cell in rows["champion, bps"]] == [True, False]
    assert rows["turnover"].count("-") == 0


def test_other_costs_are_told_though_their_settings_have_other_names(folders: dict[str, Path]) -> None:
    sides = read_compared_runs({name: folders[name] for name in ("purchases", "weights", "dear")})
    same, dear = differences_from_first(sides)
    assert not same.sentence.endswith(OTHER_MARKET_NOTE)
    assert dear.sentence.endswith(OTHER_MARKET_NOTE)


def test_equal_weight_of_two_accounts_differs_on_one_market_and_buy_and_hold_does_not(folders: dict[str, Path]) -> None:
    curves = [pl.read_parquet(folders[name] / "equity.parquet") for name in ("purchases", "weights")]
    equal, bought = (
        [np.diff(curve[trader].to_numpy()) / curve[trader].to_numpy()[:-1] for curve in curves]
        for trader in ("equal weight", "buy and hold")
    )
    assert np.abs(equal[0] - equal[1]).max() > 1e-4
    np.testing.assert_array_equal(bought[0], bought[1])
    assert is_same_market(*bought)
    dearer = bought[0].copy()
    dearer[0] -= 1e-8  # a ten-thousandth of a basis point of the first purchase
    assert not is_same_market(bought[0], dearer)


def test_days_without_a_number_are_another_market_only_where_one_has_them() -> None:
    returns, lost = np.full(30, 0.01), np.full(30, 0.01)
    lost[5] = np.nan
    assert is_same_market(lost, lost.copy())
    assert not is_same_market(returns, lost)


def test_an_edited_table_has_an_interval_and_no_word_on_costs(folders: dict[str, Path], tmp_path: Path) -> None:
    edited = shutil.copytree(folders["dear"], tmp_path / "edited")
    table = pl.read_parquet(edited / "equity.parquet")
    table.with_columns(pl.col("buy and hold").cast(pl.String)).write_parquet(edited / "equity.parquet")
    (difference,) = differences_from_first(read_compared_runs({"purchases": folders["purchases"], "edited": edited}))
    assert difference.sentence.endswith("over the same 60 days.")
