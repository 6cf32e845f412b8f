"""Rules of purchases that are chosen: on validation days alone, counted, and kept by everything that trades."""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_traders import SMALL_PURCHASES

import flatwater as fw
from flatwater import main
from flatwater.checkpoints.manifest import encode_manifest, read_manifest
from flatwater.comparisons.side_by_side import read_compared_runs, setting_rows
from flatwater.config.mappings import from_mapping
from flatwater.reports.records import read_run
from flatwater_trading.market.baselines import play_random_
from flatwater_trading.market.config import TradeConfig
from flatwater_trading.market.results import purchases_by_day
from flatwater_trading.market.simulator import reset_
from flatwater_trading.panel.config import SyntheticConfig
from flatwater_trading.panel.panel import build_panel
from flatwater_trading.panel.store import save_panel
from flatwater_trading.panel.synthetic import synthetic_panel
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_trading.recipe.plan import plan_erl
from flatwater_trading.recipe.purchase_rules import (
    RuleChoice,
    candidate_changes,
    candidate_count,
    choose_rule,
    earns_more,
    largest_rule,
    make_simulator,
)
from flatwater_trading.recipe.rule_tables import BY_SETTINGS, rule_blocks
from flatwater_trading.recipe.run import compose, read_run_panel
from flatwater_watch.errors import ConfigError, RunError
from flatwater_watch.files.directory import write_object
from flatwater_watch.pages.blocks import Table

CHOICE = {"hold_days": [2, 9], "purchases_a_day": [3], "targets": [2.5]}
SMALL = SMALL_PURCHASES | {
    "panel": "synthetic:6x400",
    "splits": {"holdout_days": 80, "validation_days": 50},
    "choice": CHOICE,
}
FIVE_DAYS = "synthetic:12x700:law=reversal:signal=0.3:signal_days=5"
LEARNED = SMALL | {
    "panel": FIVE_DAYS,
    "rounds": 3,
    "splits": {"holdout_days": 120, "validation_days": 120},
    "env": {"episode": {"trading_days": 60, "settlement_days": 20}},
}
"""A run of seconds that learns a law of five days."""


def small_config(**changed: Any) -> ErlRunConfig:
    return from_mapping(ErlRunConfig, SMALL | changed, "test")


@pytest.mark.long
def test_the_holding_time_is_that_of_the_law_and_all_that_trades_keeps_it(tmp_path: Path) -> None:
    """Prices return within five days of a shock; the settings hold for twenty."""
    settings = LEARNED | {"choice": {"hold_days": [5, 40], "purchases_a_day": []}}
    path = fw.train("erl", run=tmp_path / "run", quiet=True, **settings).path
    found = fw.evaluate(path, holdout=True)
    assert found["rule"]["chosen"] == {"hold_days": 5, "purchases_a_day": 1, "target": None}
    earned = {each["hold_days"]: each["return"] for each in found["rule"]["tried"]}
    assert list(earned) == [20, 5, 40]
    assert max(earned, key=lambda rows: earned[rows]) == 5
    assert found["traders"]["champion"]["total_return"] > found["holding_times"]["20"]
    assert found["rule"]["unchosen_return"] == found["holding_times"]["20"]
    assert found["tries"] == 3 * 4 + 2, "members x generations, and two other rules"
    assert "among 3: held for 5 days" in found["verdict"]

    trader = fw.load(path)
    assert trader.config.trade.hold_days == 5
    fw.export(path, tmp_path / "trader.safetensors")
    for each in (trader, fw.load(tmp_path / "trader.safetensors")):
        assert each.backtest(FIVE_DAYS).result["traders"] == found["traders"]

    records = read_run(path)
    tables = [block for block in rule_blocks(records, "day") if isinstance(block, Table)]
    assert [row[0] for row in tables[0].rows] == ["5 days", "10 days", "20 days", "40 days", BY_SETTINGS]
    assert tables[0].rows[-1][1:] == tables[0].rows[2][1:], "the settings hold for 20 days"
    assert tables[0].titles == ("held for", "validation", "holdout")
    assert [row[-1] for row in tables[1].rows] == ["", "chosen", ""]
    broken = {**records.result, "rule": {"chosen": {}, "tried": []}}
    with pytest.raises(RunError, match=r"result\.json: is damaged"):
        list(rule_blocks(replace(records, result=broken), "day"))


def test_prices_after_the_validation_days_change_no_choice(tmp_path: Path) -> None:
    known = synthetic_panel(SyntheticConfig(instruments=6, days=400)).panel
    values = known.values.copy()
    values[320:] = known.values[100:180] * 7
    other = build_panel(values=values, dates=known.dates.copy(), instruments=known.instruments)
    found = []
    for panel, name in ((known, "known"), (other, "other")):
        save_panel(panel, tmp_path / name)
        run = compose(small_config(panel=str(tmp_path / name)))
        assert run.setup.splits.validation.stop == 320
        found.append(run.choose_rule())
    assert found[0] == found[1]
    assert len(set(found[0].tried.values())) > 3, "rules differ in what they earn"


@pytest.mark.parametrize(
    ("changed", "instruments", "expected"),
    [
        ({}, 6, [[5, 10, 40], [3], []]),
        ({}, 2, [[5, 10, 40], [], []]),
        ({"env": {"trade": {"hold_days": 7}}}, 6, [[], [3], []]),
        ({"env": {"trade": {"hold_days": 7, "purchases_a_day": 2}}}, 6, [[], [], []]),
        ({"env": {"trade": {"hold_days": 7}}, "choice": {"hold_days": [7, 9]}}, 2, [[9], [], []]),
        ({"choice": {"hold_days": [], "purchases_a_day": [], "targets": [2.0]}}, 6, [[], [], [2.0]]),
        ({"choice": {"by_validation": False}}, 6, []),
    ],
    ids=str,
)
def test_what_the_settings_leave_open_is_chosen_and_what_they_give_is_kept(
    changed: dict[str, Any], instruments: int, expected: list[list[float]]
) -> None:
    config = from_mapping(ErlRunConfig, changed, "test")
    changes = candidate_changes(config, instruments)
    assert [[next(iter(change.values())) for change in number] for number in changes] == expected
    largest, trade = largest_rule(config, instruments), config.env.trade
    holds, purchases, _ = expected or ([], [], [])
    assert (largest.hold_days, largest.purchases_a_day) == (
        max(trade.hold_days, *holds, 0),
        max(trade.purchases_a_day, *purchases, 0),
    )


def test_numbers_are_tried_one_after_the_other_and_none_that_may_be_luck_is_chosen() -> None:
    """A trader that has learned nothing: whatever earned most on 50 days, nothing shows that it is better."""
    choice = compose(small_config()).choose_rule()
    rules = [(rule.hold_days, rule.purchases_a_day, rule.target_low) for rule in choice.tried]
    assert rules == [(5, 1, 1.0), (2, 1, 1.0), (9, 1, 1.0), (5, 3, 1.0), (5, 1, 2.5)]
    assert max(choice.tried, key=choice.tried.__getitem__) != choice.chosen == small_config().env.trade


def test_a_lead_is_sure_if_its_interval_lies_above_0() -> None:
    rng = np.random.default_rng(0)
    market, noise = rng.normal(0, 0.02, 252), rng.normal(0, 0.001, 252)
    assert earns_more(market + 0.001 + noise, market)
    assert not earns_more(market, market + 0.001 + noise)
    assert not earns_more(market + 0.001, rng.normal(0, 0.02, 252)), "a fifth of a deviation of the year"
    assert not earns_more(market, market)
    assert not earns_more(market[:19] + 0.001 + noise[:19], market[:19]), "too few"


@pytest.mark.long
def test_without_the_choice_a_run_is_the_same_and_trades_by_the_rule_of_its_settings(tmp_path: Path) -> None:
    settings = LEARNED | {"choice": {"purchases_a_day": []}}
    chosen = fw.train("erl", run=tmp_path / "chosen", quiet=True, **settings)
    fixed = fw.train("erl", run=tmp_path / "fixed", quiet=True, **settings | {"choice": {"by_validation": False}})
    assert fixed.result["rule"] == {
        "chosen": {"hold_days": 20, "purchases_a_day": 1, "target": None},
        "tried": [],
        "unchosen_return": None,
    }
    assert chosen.result["rule"]["chosen"] != fixed.result["rule"]["chosen"]
    earned = fixed.result["traders"]["champion"]["total_return"]
    assert chosen.result["rule"]["unchosen_return"] == earned
    assert f"would have returned {earned:+.1%}" in chosen.result["verdict"]
    table = next(block for block in rule_blocks(read_run(chosen.path), "day") if isinstance(block, Table))
    assert table.rows[-1] == [BY_SETTINGS, f"{earned:+.1%}"]


def make_older(run: Path, choice: dict[str, Any] | None) -> None:
    """Give the run the settings that an earlier version would have written: another table `choice`, or none."""
    file = run / "config.toml"
    before, _, rest = file.read_text().partition("[choice]")
    table = "" if choice is None else "[choice]\n" + "".join(f"{name} = {value}\n" for name, value in choice.items())
    file.write_text(before + table + rest[rest.index("\n[") :])
    assert tomllib.loads(file.read_text()).get("choice") == choice
    for path in (run / "checkpoints").glob("*.json"):
        manifest = read_manifest(path)
        config = {name: value for name, value in manifest.facts["config"].items() if name != "choice"}
        config |= {} if choice is None else {"choice": choice}
        write_object(path, encode_manifest(replace(manifest, facts={**manifest.facts, "config": config})))


@pytest.mark.long
@pytest.mark.parametrize("choice", [None, {"hold_days": [], "purchases_a_day": [], "targets": []}], ids=str)
def test_a_run_of_an_earlier_version_goes_on_without_a_choice(tmp_path: Path, choice: dict[str, Any] | None) -> None:
    run = fw.train("erl", run=tmp_path / "run", quiet=True, **SMALL | {"choice": {"by_validation": False}})
    make_older(run.path, choice)
    assert not fw.evaluate(run.path)["rule"]["tried"]
    resumed = fw.resume(run.path, 2, quiet=True)
    assert not resumed.result["rule"]["tried"]
    again = tmp_path / "again"
    assert main(["train", "erl", "--config", str(run.path / "config.toml"), "--run", str(again)]) == 0
    assert not read_run(again).result["rule"]["tried"]
    differing = dict(setting_rows(read_compared_runs({"run": run.path, "again": again})))
    assert {name for name in differing if name.startswith("choice")} == set(), "written or not, the choice is the same"


@pytest.mark.long
def test_a_resumed_run_chooses_as_one_in_one_piece(tmp_path: Path) -> None:
    whole = fw.train("erl", run=tmp_path / "whole", quiet=True, **SMALL | {"rounds": 2})
    parts = fw.train("erl", run=tmp_path / "parts", quiet=True, **SMALL).resume(2, quiet=True)
    assert parts.result == whole.result
    assert len(parts.result["rule"]["tried"]) == 1 + 2 + 1 + 1


def test_the_first_of_equal_rules_is_that_of_the_settings() -> None:
    run = compose(small_config())
    setup, market = run.setup, run.trainer.run.market
    idle = setup.actor.layout
    never = torch.full((1, idle.size), float("nan"))  # no coefficient reaches the threshold
    choice = choose_rule(setup, market, never, unit="day")
    assert set(choice.tried.values()) == {0.0}
    assert choice.chosen == setup.config.env.trade
    assert choice.tries == candidate_count(setup.config, 6) == 2 + 1 + 1


def test_a_choice_is_planned_and_changes_nothing_that_is_held() -> None:
    """A plan is of the largest rule; members learn by the rule of the settings, whatever is chosen later."""
    few, many = small_config(choice={}), small_config(choice={"hold_days": [300], "purchases_a_day": [6]})
    plain, chosen = (
        plan_erl(config, read_run_panel(config), torch.device("cpu"), private=True) for config in (few, many)
    )
    assert plain.owners == chosen.owners
    assert chosen.transients["score"] > plain.transients["score"]


def test_random_traders_buy_as_often_on_each_day_as_they_are_told() -> None:
    run = compose(small_config(choice={}, env=SMALL["env"] | {"trade": {"hold_days": 2, "purchases_a_day": 2}}))
    setup, market, first = run.setup, run.trainer.run.market, torch.tensor([200, 200, 200])
    simulator = make_simulator(setup, market, batch=3, days=12)
    reset_(simulator, start=first, trading_end=first + 10, end=first + 12)
    asked = torch.tensor([0, 2, 1, 0, 1, 2, 2, 0, 1, 1, 0, 0])
    play_random_(simulator, market, setup.config.env, days=12, rng=torch.Generator().manual_seed(0), buys=asked)
    assert torch.equal(purchases_by_day(simulator)[:, :12], asked.expand(3, -1))


@pytest.mark.parametrize(("name", "value"), [("hold_days", 0), ("purchases_a_day", 0), ("targets", 0.0)])
def test_a_rule_that_cannot_be_is_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"choice\.{name}"):
        small_config(choice={name: [value]})


def test_a_rule_that_nobody_chooses_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"choice\.hold_days = .*choice\.by_validation = false"):
        small_config(choice={"by_validation": False, "hold_days": [2]})


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"env": {"trade": {"purchases_a_day": 7}}}, r"env\.trade\.purchases_a_day = 7: .* at most 6"),
        ({"choice": {"purchases_a_day": [2, 9]}}, r"choice\.purchases_a_day\[1\] = 9: .* at most 6"),
    ],
)
def test_more_purchases_than_instruments_are_refused_before_the_run(changed: dict[str, Any], named: str) -> None:
    config = from_mapping(ErlRunConfig, SMALL_PURCHASES | {"panel": "synthetic:6x400"} | changed, "test")
    with pytest.raises(ConfigError, match=named):
        plan_erl(config, read_run_panel(config), torch.device("cpu"))


def test_a_rule_that_earned_more_and_was_not_chosen_is_named_with_the_reason() -> None:
    settings, longer, more = TradeConfig(), TradeConfig(hold_days=40), TradeConfig(hold_days=40, purchases_a_day=3)
    choice = RuleChoice(longer, {settings: 0.08, longer: 0.2, more: 0.25}, "day")
    said = choice.describe(0.08)
    assert "held for 40 days, 3 purchases a day returned more (+25.0%, the chosen rule +20.0%), but not surely" in said
    assert "surely" not in RuleChoice(more, dict(choice.tried), "day").describe(0.08)


def test_the_result_says_why_the_lines_of_the_training_have_another_return(tmp_path: Path) -> None:
    path = fw.train("erl", run=tmp_path / "run", quiet=True, **SMALL).path
    said = "The training's lines have another return: the mean of 2 random slices"
    assert said in fw.evaluate(path)["verdict"]
    assert said not in fw.evaluate(path, holdout=True)["verdict"]
