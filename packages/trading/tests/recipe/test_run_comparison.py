"""A run of purchases beside runs of target weights on the same market: one table, an interval, and a word on costs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from small_traders import SMALL_PURCHASES, SMALL_WEIGHTS

import flatwater as fw
from flatwater.cli.main import main
from flatwater.comparisons.side_by_side import differences_from_first, number_rows, read_compared_runs
from flatwater_trading.recipe.return_difference import OTHER_MARKET_NOTE, is_same_market

PANEL = "synthetic:4x400:signal=0.7"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs by name, on the same days: purchases, weights, and weights that pay more for their trades."""
    place = tmp_path_factory.mktemp("runs")
    purchases = SMALL_PURCHASES | {"splits": SMALL_WEIGHTS["splits"]}
    trained: dict[str, tuple[str, dict[str, Any]]] = {
        "purchases": ("erl", purchases),
        "weights": ("weights", SMALL_WEIGHTS),
        "dear": ("weights", SMALL_WEIGHTS | {"account": {"cost_bps": 6.0}}),
    }
    return {
        name: fw.train(recipe, panel=PANEL, run=place / name, quiet=True, **settings).path
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
    assert "Equal weight earned another return" not in said, "they trade one market at the same costs"
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


def test_digits_of_single_precision_are_no_other_market() -> None:
    daily = np.random.default_rng(0).normal(0.0004, 0.01, 250)
    equity = 100_000 * np.cumprod(1 + daily)
    rounded = equity.astype(np.float32).astype(np.float64)
    returns, rounded_returns = (np.diff(curve) / curve[:-1] for curve in (equity, rounded))
    assert is_same_market(returns, rounded_returns)
    dearer = returns.copy()
    dearer[0] -= 1e-5  # a tenth of a basis point of the first purchase
    assert not is_same_market(returns, dearer)
