"""Prices that are not daily train by default, with lengths that fit their rows; what a user has given stays."""

import logging
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest

from flatwater_trading.market.config import EpisodeConfig, TradeConfig, TradingConfig
from flatwater_trading.panel.config import SplitConfig
from flatwater_trading.panel.splits import check_episode, split_days
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_trading.recipe.run import plan, prepare
from flatwater_watch.errors import ConfigError

PAUSES = {"monthly": 30.44, "weekly": 7.0, "quarterly": 91.31, "daily": 1.4}


def prices(folder: Path, pause: str, rows: int) -> str:
    """Closes of four shares."""
    drawn = np.exp(np.random.default_rng(0).normal(0.005, 0.04, (rows, 4)).cumsum(0))
    begin, file = date(2000, 1, 3), folder / f"{pause}-{rows}.csv"
    days = [begin + timedelta(days=round(PAUSES[pause] * row)) for row in range(rows)]
    lines = [f"{day}," + ",".join(f"{50 * price:.4f}" for price in row) for day, row in zip(days, drawn, strict=True)]
    file.write_text("date,AAA,BBB,CCC,DDD\n" + "\n".join(lines) + "\n")
    return str(file)


@pytest.mark.long
@pytest.mark.parametrize(("pause", "rows"), [("monthly", 240), ("monthly", 120), ("weekly", 500), ("quarterly", 80)])
def test_what_is_left_out_is_chosen_for_the_rows_there_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, pause: str, rows: int
) -> None:
    with caplog.at_level(logging.WARNING):
        fitting = prepare(ErlRunConfig(panel=prices(tmp_path, pause, rows)))
    splits = split_days(rows, context=fitting.env.episode.context, config=fitting.splits)
    check_episode(splits, fitting.env.episode.days)
    assert len(splits.train) > len(splits.validation) >= rows // 5
    assert fitting.env.episode.settlement_days == fitting.env.trade.hold_days
    said = caplog.records[-1].getMessage()
    for name, value in (
        ("splits.validation_days", fitting.splits.validation_days),
        ("env.trade.hold_days", fitting.env.trade.hold_days),
        ("env.episode.trading_days", fitting.env.episode.trading_days),
    ):
        assert f"{name} = {value}" in said, "what was chosen is said"
    assert plan(fitting).fits
    assert prepare(fitting) == fitting, "a resumed run keeps its own"


def test_what_is_given_stays(tmp_path: Path) -> None:
    given = TradingConfig(trade=TradeConfig(hold_days=6), episode=EpisodeConfig(context=24))
    config = ErlRunConfig(panel=prices(tmp_path, "monthly", 240), env=given, splits=SplitConfig(holdout_days=36))
    fitting = prepare(config)
    assert (fitting.env.trade.hold_days, fitting.env.episode.context, fitting.splits.holdout_days) == (6, 24, 36)
    assert fitting.env.episode.settlement_days == 6
    assert fitting.splits.validation_days == 48


def test_rows_that_are_enough_change_nothing(tmp_path: Path) -> None:
    config = ErlRunConfig(panel=prices(tmp_path, "weekly", 1_000))
    assert prepare(config) == config


def test_features_that_the_rows_have_no_numbers_for_are_left_out(tmp_path: Path) -> None:
    fitting = prepare(ErlRunConfig(panel=prices(tmp_path, "quarterly", 80)))
    assert not {"return_60", "return_120"} & {*fitting.observation_features}
    assert "return" in fitting.observation_features
    chosen = ErlRunConfig(panel=prices(tmp_path, "quarterly", 80), observation_features=("return", "return_60"))
    assert prepare(chosen).observation_features == ("return", "return_60")


def test_too_few_days_are_refused_with_the_lengths_that_fit(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"523 or more are needed.*These fit: .*splits.validation_days = 60") as told:
        prepare(ErlRunConfig(panel=prices(tmp_path, "daily", 300)))
    assert "env.episode.trading_days = 30" in str(told.value)


def test_what_cannot_fit_is_refused_as_before(tmp_path: Path) -> None:
    given = TradingConfig(episode=EpisodeConfig(context=300))
    with pytest.raises(ConfigError, match="the panel has 240 rows") as told:
        prepare(ErlRunConfig(panel=prices(tmp_path, "monthly", 240), env=given))
    assert "These fit" not in str(told.value)
