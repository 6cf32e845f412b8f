"""Other holding times of a champion's choices, and whether it chooses its days."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_traders import SMALL_PURCHASES

import flatwater as fw
from flatwater.config.mappings import from_mapping
from flatwater_trading.market.baselines import play_random_
from flatwater_trading.market.results import episode_summary
from flatwater_trading.market.simulator import reset_
from flatwater_trading.panel.config import SyntheticConfig
from flatwater_trading.panel.panel import build_panel
from flatwater_trading.panel.store import save_panel
from flatwater_trading.panel.synthetic import synthetic_panel
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_trading.recipe.purchase_checks import trades_like_chance
from flatwater_trading.recipe.purchase_rules import make_simulator
from flatwater_trading.recipe.run import compose

TINY = SMALL_PURCHASES | {"panel": "synthetic:4x400:signal=0.7", "splits": {"holdout_days": 80, "validation_days": 50}}


@pytest.mark.long
def test_another_holding_time_earns_what_it_earns_as_a_rule(tmp_path: Path) -> None:
    run = fw.train("erl", run=tmp_path / "run", quiet=True, **TINY).path
    result, trader = fw.evaluate(run, holdout=True), fw.load(run)
    assert set(result["holding_times"]) == {"10", "20", "40"}, "the own holding time is 5"
    env = trader.settings.env
    longer = replace(trader.settings, env=replace(env, trade=replace(env.trade, hold_days=10)))
    other = replace(trader, settings=longer).backtest(TINY["panel"])
    ten = result["holding_times"]["10"]
    assert other.result["traders"]["champion"]["total_return"] == pytest.approx(ten, rel=1e-4)
    assert f"Its choices held for 10 days would have returned {ten:+.1%}, for 20 " in result["verdict"]
    assert ("Warning: it is invested" in result["verdict"]) == result["trades_like_chance"]


@pytest.mark.long
def test_who_acts_at_random_is_told_and_who_stays_out_is_not() -> None:
    run = compose(from_mapping(ErlRunConfig, TINY, "test"))
    setup, market, days = run.trainer.setup, run.trainer.run.market, 60
    first = torch.tensor([200])
    simulator = make_simulator(setup, market, batch=1, days=days)
    reset_(simulator, start=first, trading_end=first + days - 5, end=first + days)
    play_random_(simulator, market, setup.config.env, days=days, rng=torch.Generator().manual_seed(5))
    measures = {name: float(value[0]) for name, value in episode_summary(simulator, setup.config.env).items()}
    assert trades_like_chance(setup, market, measures, first, days)
    assert not trades_like_chance(setup, market, measures | {"exposure": measures["exposure"] / 2}, first, days)
    assert not trades_like_chance(setup, market, measures | {"turnover": measures["turnover"] / 2}, first, days)


def test_a_rule_that_cannot_trade_on_few_months_is_named_with_the_reason(tmp_path: Path) -> None:
    """Ridge learns from returns over up to 120 rows: on ten years of months it stood with a return of 0."""
    daily, file = synthetic_panel(SyntheticConfig(instruments=4, days=110, late_listings=0)).panel, tmp_path / "m.panel"
    months = (np.datetime64("2010-01") + np.arange(110)).astype("datetime64[D]")
    save_panel(build_panel(values=daily.values.copy(), dates=months, instruments=daily.instruments), file)
    settings = {"rounds": 1, "threads": 1, "trackers": (), "population": {"size": 3}, "panel": str(file)}
    path = fw.train("erl", run=tmp_path / "run", quiet=True, **settings).path
    assert "ridge made no trade: the prices do not reach back as far as it needs" in fw.evaluate(path)["verdict"]
