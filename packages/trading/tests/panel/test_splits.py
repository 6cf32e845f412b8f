"""Splits: nothing traded twice, nothing lost, and the exact number of days that a panel must have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatwater_trading.panel.config import SplitConfig
from flatwater_trading.panel.splits import check_episode, split_days
from flatwater_watch.errors import ConfigError


@given(context=st.integers(1, 600), spare=st.integers(1, 3000), holdout=st.integers(1, 400), walk=st.integers(1, 400))
def test_every_day_with_full_context_is_traded_exactly_once(context: int, spare: int, holdout: int, walk: int) -> None:
    n_days = context - 1 + spare + walk + holdout
    splits = split_days(n_days, context=context, config=SplitConfig(holdout_days=holdout, validation_days=walk))

    stretches = [splits.train, splits.validation, splits.holdout]
    traded = [row for days in stretches for row in range(days.first, days.stop)]

    assert traded == list(range(context - 1, n_days))
    assert [len(days) for days in stretches] == [spare, walk, holdout]


def test_the_reference_panel() -> None:
    """3,781 days, 504 of context: holdout the last 251, validation the 252 before, training from row 503 on."""
    splits = split_days(3781, context=504, config=SplitConfig())
    assert (splits.train.first, splits.train.stop) == (503, 3278)
    assert (splits.validation.first, splits.validation.stop) == (3278, 3530)
    assert (splits.holdout.first, splits.holdout.stop) == (3530, 3781)


def test_one_day_too_few_says_how_many_and_what_to_change() -> None:
    needed = 504 + 252 + 251
    assert len(split_days(needed, context=504, config=SplitConfig()).train) == 1
    with pytest.raises(ConfigError, match=rf"1006 rows, .*{needed} or more.*env\.episode\.context, splits\.val"):
        split_days(needed - 1, context=504, config=SplitConfig())


def test_too_few_days_of_a_longer_panel_are_the_setting_s() -> None:
    """It said that the panel of 3,781 rows had 300, and to use a longer one."""
    with pytest.raises(
        ConfigError, match=r"^splits\.days = 300, but 1007 or more are needed: .* Use more days, or lower"
    ):
        split_days(3781, context=504, config=SplitConfig(days=300))


@pytest.mark.parametrize(
    ("days", "episode", "split"), [(620, 114, "training"), (1000, 253, "validation"), (1000, 252, "holdout")]
)
def test_an_episode_must_fit_into_every_split(days: int, episode: int, split: str) -> None:
    splits = split_days(days, context=5, config=SplitConfig())
    check_episode(splits, min(len(splits.train), 251))
    with pytest.raises(ConfigError, match=rf"{split} split .*{episode - 1} rows, .* {episode} \("):
        check_episode(splits, episode)


@pytest.mark.parametrize("field", ["holdout_days", "validation_days"])
def test_a_split_without_days_is_refused(field: str) -> None:
    with pytest.raises(ConfigError, match=f"splits.{field} = 0"):
        SplitConfig(**{field: 0})
