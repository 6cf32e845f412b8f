"""Folds are tested once each, on days that nothing of them has seen; and a Sharpe ratio is deflated as published."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flatwater.config.mappings import from_mapping
from flatwater.state.tree import leaves
from flatwater_trading.panel.config import SyntheticConfig
from flatwater_trading.panel.panel import FEATURES, build_panel, first_days
from flatwater_trading.panel.splits import check_episode, split_days
from flatwater_trading.panel.store import save_panel
from flatwater_trading.panel.synthetic import synthetic_panel
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_trading.recipe.run import compose
from flatwater_trading.study.deflated_sharpe import deflated_sharpe, expected_highest_draw, sharpe_probability
from flatwater_trading.study.folds import choose_folds, cut_folds, find_folds, fold_config
from flatwater_watch.errors import ConfigError

SMALL = {
    "rounds": 1,
    "threads": 1,
    "splits": {"validation_days": 40},
    "population": {"size": 3},
    "evaluation": {"train_slices": 2, "validation_slices": 2},
    "env": {"episode": {"trading_days": 15, "settlement_days": 5}, "trade": {"hold_days": 5}},
    "net": {"channels": 4, "hidden": 8},
    "learner": {"hindsight": {"updates": 2, "batch_size": 8}},
}


@given(days=st.integers(1, 10_000), folds=st.integers(1, 50))
def test_every_day_after_the_first_part_is_tested_once(days: int, folds: int) -> None:
    tests = [fold.test for fold in cut_folds(days, folds)]
    length = days // (folds + 1)
    assert [row for test in tests for row in range(test.first, test.stop)] == list(range(days - folds * length, days))
    assert {len(test) for test in tests} == {length}
    assert tests[0].first >= length


@given(days=st.integers(600, 10_000), folds=st.integers(1, 30))
def test_the_test_days_are_the_holdout_and_nothing_before_them_reaches_into_them(days: int, folds: int) -> None:
    base = ErlRunConfig()
    try:
        found = find_folds(base, days, folds)
    except ConfigError:
        found = []
    for fold in found:
        splits = split_days(days, context=20, config=fold_config(base, fold, seed=0).splits)
        check_episode(splits, base.env.episode.days)
        assert splits.holdout == fold.test
        assert splits.train.stop == splits.validation.first == fold.test.first - base.splits.validation_days


@given(days=st.integers(300, 5_000), most=st.integers(1, 8))
def test_as_many_folds_as_the_days_allow_are_chosen_and_no_more_than_the_default(days: int, most: int) -> None:
    base = ErlRunConfig()
    try:
        chosen = choose_folds(base, days, most)
    except ConfigError:
        with pytest.raises(ConfigError):
            find_folds(base, days, 1)
        return
    assert find_folds(base, days, len(chosen)) == chosen
    assert len(chosen) <= most
    for more in range(len(chosen) + 1, most + 1):
        with pytest.raises(ConfigError):
            find_folds(base, days, more)


@given(days=st.integers(300, 5_000), folds=st.integers(2, 60))
def test_an_error_names_the_most_folds_that_there_can_be_and_what_gives_more(days: int, folds: int) -> None:
    base = ErlRunConfig()
    try:
        find_folds(base, days, folds)
    except ConfigError as refused:
        said = str(refused)
        if "too short" in said:
            with pytest.raises(ConfigError):
                find_folds(base, days, 1)
            return
        most = sum(int(count) for count in re.findall(r"Give --folds (\d+)(?: or fewer)?[,.]", said))
        assert most == 0 or len(find_folds(base, days, most)) == most < folds
        with pytest.raises(ConfigError):
            find_folds(base, days, most + 1)
        for count, validation in re.findall(r"--folds (\d+) --splits.validation-days (\d+)", said):
            shorter = replace(base, splits=replace(base.splits, validation_days=int(validation)))
            assert len(find_folds(shorter, days, int(count))) == int(count) > most
    else:
        assert folds >= 2


def test_a_cut_panel_is_the_panel_of_these_days() -> None:
    whole = synthetic_panel(SyntheticConfig(instruments=4, days=60)).panel
    short = first_days(whole, 40)
    values = whole.values[:40].copy()
    built = build_panel(values=values, dates=whole.dates[:40].copy(), instruments=whole.instruments)
    assert short.fingerprint == built.fingerprint != whole.fingerprint
    assert (len(short.dates), len(short.valid), len(short.values)) == (40, 40, 40)
    assert first_days(whole, None) is first_days(whole, 60) is whole
    with pytest.raises(ConfigError, match=r"splits\.days = 61: .*60 rows"):
        first_days(whole, 61)


def train_fold(panel: Path) -> dict[str, torch.Tensor]:
    config = from_mapping(ErlRunConfig, SMALL | {"panel": str(panel)}, "test")
    run = compose(fold_config(config, cut_folds(400, 3)[1], seed=0))
    for phase in run.trainer.phases:
        for step in range(phase.steps()):
            phase.step_(step)
    return {leaf.path: leaf.value.clone() for leaf in leaves(run.trainer.run) if isinstance(leaf.value, torch.Tensor)}


def test_nothing_after_a_folds_end_reaches_its_run(tmp_path: Path) -> None:
    """The second of three folds of 400 days ends on row 300: the same run, whatever comes then."""
    known = synthetic_panel(SyntheticConfig(instruments=4, days=400)).panel
    values = known.values.copy()
    values[300:] = known.values[100:200] * 7
    values[300:, 0] = np.nan
    other = build_panel(values=values, dates=known.dates.copy(), instruments=known.instruments)
    save_panel(known, tmp_path / "known")
    save_panel(other, tmp_path / "other")
    first, second = train_fold(tmp_path / "known"), train_fold(tmp_path / "other")
    assert first.keys() == second.keys()
    for path, tensor in first.items():
        assert torch.equal(tensor.nan_to_num(), second[path].nan_to_num()), path


def test_the_example_of_the_paper() -> None:
    """Bailey and López de Prado 2014: 0.9004 for 100 tries, five years of days, skewness -3, kurtosis 10."""
    by_chance = (0.5 / 250) ** 0.5 * expected_highest_draw(100)
    assert by_chance == pytest.approx(0.1132, abs=5e-5)
    found = sharpe_probability(2.5 / 250**0.5, by_chance, periods=1250, skewness=-3, kurtosis=10)
    assert found == pytest.approx(0.9004, abs=5e-5)


@pytest.mark.parametrize("tries", [10, 100, 1000])
def test_the_highest_by_chance_is_that_of_a_simulation(tries: int) -> None:
    drawn = np.random.default_rng(0).normal(size=(4000, tries)).max(1)
    assert expected_highest_draw(tries) == pytest.approx(drawn.mean(), rel=0.02)


def test_more_tries_make_less_sure_and_none_make_it_a_plain_test() -> None:
    daily = np.random.default_rng(1).normal(0.0006, 0.01, 1500)
    sure = [deflated_sharpe(daily, tries).probability for tries in (1, 10, 1000)]
    assert sure == sorted(sure, reverse=True)
    assert deflated_sharpe(daily, 1).by_chance == 0
    assert deflated_sharpe(-daily, 1).probability < 0.5 < sure[0]
    assert deflated_sharpe(np.full(100, 0.001), 5).probability == 0.5


def test_traders_without_skill_are_seldom_sure() -> None:
    """The best of 50 lucky ones has a deflated Sharpe ratio above 0.95 in about one case of twenty, not in all."""
    rng = np.random.default_rng(2)
    plain = deflated = 0
    for _ in range(200):
        best = max(rng.normal(0, 0.01, (50, 250)), key=lambda daily: daily.mean() / daily.std())
        plain += deflated_sharpe(best, 1).probability > 0.95
        deflated += deflated_sharpe(best, 50).probability > 0.95
    assert plain > 150
    assert deflated < 25


def test_every_feature_of_a_panel_is_cut() -> None:
    panel = first_days(synthetic_panel(SyntheticConfig(instruments=2, days=50)).panel, 30)
    assert all(len(panel.feature(name)) == 30 for name in FEATURES)
