"""Commands that use a trader say what they will hold, keep to it, and are refused where that does not fit."""

import json
import re
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import flatwater as fw
from flatwater.cli.main import main
from flatwater.config.mappings import from_mapping
from flatwater.runs.policy_export import LIBRARY_BYTES as LIBRARY_BYTES_OF_EXPORT
from flatwater.runs.policy_export import LOAD_PHASE, plan_export
from flatwater.runs.policy_export import export as write_policy
from flatwater_trading.panel.locate import load_panel
from flatwater_trading.panel.panel import build_panel
from flatwater_trading.panel.splits import Days
from flatwater_trading.recipe.backtest import play_backtest
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_trading.recipe.run import compose
from flatwater_trading.recipe.use_plan import CHOOSE, _phases_of_orders, plan_use
from flatwater_watch.errors import ConfigError, DataError, MemoryLimitError
from flatwater_watch.meters.torch_ops import peak_bytes

PANEL = "synthetic:12x500:context_instruments=2"
SETTINGS: dict[str, Any] = {
    "panel": PANEL,
    "rounds": 1,
    "threads": 1,
    "trackers": (),
    "population": {"size": 4},
    "evaluation": {"train_slices": 2, "validation_slices": 2},
    "env": {"episode": {"context": 20, "trading_days": 15, "settlement_days": 5}, "trade": {"hold_days": 5}},
    "splits": {"holdout_days": 100, "validation_days": 60},
    "net": {"channels": 4, "hidden": 8},
}
COMMANDS = (["orders"], ["backtest"], ["evaluate"], ["evaluate", "--holdout"])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of traders."""
    return fw.train("erl", run=tmp_path_factory.mktemp("plans") / "run", quiet=True, **SETTINGS).path


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.few(2)
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_what_does_not_fit_is_refused_and_leaves_no_trace(
    run: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    before = files(run)
    assert main([words[0], str(run), *words[1:], "--budget", "10MiB"]) == 3
    said = " ".join(capsys.readouterr().err.split())
    assert re.search(r"10\.00 MiB .*\(--budget\)", said)
    assert "--budget" in said.split("owners")[1], "what to change"
    assert files(run) == before, "no look is logged, no file written"


@pytest.mark.few(2)
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_plan_is_told_and_nothing_done(run: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    before = files(run)
    asked = [words[0], str(run), *words[1:], "--plan"]
    assert main([*asked, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["fits"]
    assert plan["needed_bytes"] > plan["total_bytes"] > 0
    assert main([*asked, "--budget", "10MiB"]) == 3
    assert "not fit" in capsys.readouterr().out
    assert files(run) == before


@pytest.mark.long
@pytest.mark.parametrize(
    "use",
    [
        lambda trader, budget: trader.orders(PANEL, budget=budget),
        lambda trader, budget: trader.reasons(PANEL, trader.orders(PANEL), "S00", budget=budget),
        lambda trader, budget: trader.backtest(PANEL, budget=budget),
        lambda trader, budget: fw.evaluate(trader.folder.path, budget=budget),
        lambda trader, budget: fw.evaluate(trader.folder.path, holdout=True, budget=budget),
    ],
    ids=["orders", "reasons", "backtest", "evaluate", "evaluate holdout"],
)
def test_from_python_as_well(run: Path, use: Callable[[Any, str | None], object]) -> None:
    trader, before = fw.load(run), files(run)
    with pytest.raises(MemoryLimitError, match=r"(?s)10\.00 MiB .*\(--budget\).*--budget") as refused:
        use(trader, "10MiB")
    assert refused.value.exit_code == 3
    assert files(run) == before, "no look is logged"
    with pytest.raises(ConfigError, match="much"):
        use(trader, "much")


@pytest.mark.long
@pytest.mark.parametrize("suffix", [".safetensors", ".pt2"])
def test_an_export_is_planned_and_refused_where_it_does_not_fit(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    file = tmp_path / f"champion{suffix}"
    assert main(["export", str(run), "--to", str(file), "--budget", "10MiB"]) == 3
    assert "10.00 MiB" in capsys.readouterr().err
    assert main(["export", str(run), "--to", str(file), "--plan"]) == 0
    assert "the export" in capsys.readouterr().out
    with pytest.raises(MemoryLimitError, match=r"10\.00 MiB"):
        fw.export(run, file, budget="10MiB")
    assert list(tmp_path.iterdir()) == []
    assert fw.export(run, file) < 1e-5


def test_what_an_export_allocates_stays_within_its_plan(run: Path, tmp_path: Path) -> None:
    trader = fw.load(run)
    plan = plan_export(trader.to_export(), ".safetensors", None)
    write_policy(trader, tmp_path / "first.safetensors")
    tensors = peak_bytes(lambda: write_policy(trader, tmp_path / "champion.safetensors"))
    assert tensors <= plan.total_bytes + plan.transient_bytes - LIBRARY_BYTES_OF_EXPORT[".safetensors"]


@pytest.mark.long
def test_what_was_tried_out_is_tried_once_for_a_size(run: Path) -> None:
    trader = fw.load(run)
    panel = trader.align_panel(load_panel(PANEL))
    plan_use(trader.settings, panel)
    before = _phases_of_orders.cache_info().misses
    trader.orders(panel)
    trader.orders(panel, budget="4GiB")
    assert _phases_of_orders.cache_info().misses == before


def test_a_budget_that_is_no_amount_is_refused(run: Path) -> None:
    assert main(["orders", str(run), "--budget", "much"]) == 2


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("days", [300, 1000])
def test_what_is_allocated_stays_within_the_plan(run: Path, days: int) -> None:
    trader = fw.load(run)
    panel = trader.align_panel(load_panel(PANEL.replace("500", str(days))))
    stretch = Days(len(panel.dates) - 60, len(panel.dates))
    for plan, use in (
        (plan_use(trader.settings, panel), lambda: trader.reasons(panel, trader.orders(panel), "S00")),
        (plan_use(trader.settings, panel, days=stretch), lambda: play_backtest(trader, panel, stretch)),
    ):
        use()  # what libraries keep from their first use on is not what is asked about
        tracemalloc.start()  # NumPy's arrays are counted by it, torch's by what it dispatches
        try:
            tensors = peak_bytes(use)
            arrays = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        planned = plan.total_bytes + plan.transient_bytes
        assert tensors <= planned
        assert arrays <= planned + (4 << 20), "the rest is Python's own: code, names, tables"


def test_orders_do_not_hold_more_for_more_columns_to_hide(run: Path) -> None:
    """A window of a column more costs that column, and not a window for each column."""
    settings = fw.load(run).settings
    settings = replace(settings, env=replace(settings.env, episode=replace(settings.env.episode, context=500)))
    few, many = (plan_use(settings, load_panel(f"synthetic:{count}x600")) for count in (50, 200))
    assert many.transient_bytes < 6 * max(few.transient_bytes, 8 << 20)
    window = 200 * 500 * len(settings.observation_features) * torch.float32.itemsize
    assert many.transient_bytes < 100 * window, "of 200 windows"


@pytest.mark.parametrize("suffix", ["", ".safetensors"])
def test_prices_of_weeks_are_refused_by_who_learned_on_days(run: Path, tmp_path: Path, suffix: str) -> None:
    """The same features of a week are other numbers, and 5 rows of holding would be 5 weeks."""
    days = load_panel(PANEL)
    dates = days.dates[0] + 7 * np.arange(len(days.dates))
    weeks = build_panel(values=days.values.copy(), dates=dates, instruments=days.instruments)
    file = tmp_path / f"trader{suffix}"
    trader = fw.load(run) if not suffix else (fw.export(run, file), fw.load(file))[1]
    with pytest.raises(DataError, match="a row each week: expected one each day, as in training"):
        trader.orders(weeks)
    with pytest.raises(DataError, match="a row each week"):
        trader.backtest(weeks)


@pytest.mark.few(1)
@pytest.mark.parametrize("candidates", [{"hold_days": [250], "purchases_a_day": [9]}, {"targets": [3.0]}], ids=str)
def test_the_choice_of_a_rule_is_in_each_plan(tmp_path: Path, candidates: dict[str, Any]) -> None:
    """A run with candidates plays its validation days while it is loaded, whatever uses it then."""
    few_days = SETTINGS | {"panel": "synthetic:12x700", "splits": {"holdout_days": 60, "validation_days": 300}}
    run = fw.train("erl", run=tmp_path / "run", quiet=True, **few_days | {"choice": candidates})
    trader = fw.load(run)
    panel = trader.align_panel(load_panel("synthetic:12x700"))
    days = Days(len(panel.dates) - 30, len(panel.dates))
    composed_run = compose(from_mapping(ErlRunConfig, few_days | {"choice": candidates}, "test"))
    composed_run.choose_rule()  # what libraries keep from their first use on is not what is asked about
    allocated = peak_bytes(composed_run.choose_rule)
    assert allocated > 0
    for plan in (trader.plan_orders(panel), trader.plan_backtest(panel, days)):
        assert allocated <= plan.transients[CHOOSE] < 1.2 * allocated
    assert allocated <= plan_export(trader.to_export(), ".safetensors", None).transients[LOAD_PHASE] < 1.2 * allocated
    assert fw.load(tmp_path / "run").plan_orders(panel).transients[CHOOSE] > 0
    fw.export(run, tmp_path / "trader.safetensors")
    assert not fw.load(tmp_path / "trader.safetensors").plan_orders(panel).transients[CHOOSE], "it was chosen before"
