"""What follows from a result: the best rule, an interval, a share of chance, and a sentence that says no more."""

import numpy as np
import pytest
import torch

from flatwater_trading.recipe.comparison import (
    BLOCK,
    RESAMPLED,
    Comparison,
    bootstrap_difference,
    compare_to_yardsticks,
    oracle_sentence,
    oracle_share,
    resample_means,
    simple_rules,
)


def curve(daily: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(100 * np.cumprod(np.concatenate([[1.0], 1 + daily])))


def compare_curves(edge: float, *, noise: float = 0.01, days: int = 500, a_year: int = 252) -> Comparison:
    rng = np.random.default_rng(0)
    market = rng.normal(0.0005, noise, days)
    own_noise = rng.normal(0, 0.002, days)
    own = market + edge + own_noise - own_noise.mean()
    equity = {"champion": curve(own), "held": curve(market), "poor": curve(market - 0.001), "random": curve(market)}
    chance = torch.linspace(-0.2, 0.2, 100)
    return compare_to_yardsticks(equity, chance, trained="champion", yardsticks=("held", "poor"), a_year=a_year, seed=0)


@pytest.mark.parametrize(
    ("edge", "said"),
    [(0.001, "earned more than held"), (-0.001, "earned less than held"), (0.0, "not distinguishable")],
)
def test_the_sentence_is_that_of_the_interval(edge: float, said: str) -> None:
    found = compare_curves(edge)
    assert found.best == "held"
    assert found.low < found.difference < found.high
    assert found.difference == pytest.approx(252 * edge, abs=1e-9)
    assert said in found.sentence


def test_who_earned_the_same_to_rounding_is_said_to_have_earned_the_same() -> None:
    market = np.random.default_rng(0).normal(0.0005, 0.01, 500)
    equity = {"champion": curve(market + 1e-15), "held": curve(market), "random": curve(market)}
    chance = torch.full((100,), float(equity["held"][-1] / 100 - 1))
    found = compare_to_yardsticks(equity, chance, trained="champion", yardsticks=("held",), a_year=252, seed=0)
    assert (found.difference, found.low, found.high, found.beaten) == (0, 0, 0, 0.5)
    assert "earned the same as held, the best of the simple rules; chance explains it as well: 50%" in found.sentence


def test_a_year_of_a_difference_has_the_periods_of_a_year() -> None:
    daily, monthly = compare_curves(0.001), compare_curves(0.001, a_year=12)
    for name in ("difference", "low", "high"):
        assert getattr(monthly, name) * 21 == pytest.approx(getattr(daily, name))


@pytest.mark.parametrize("count", [20, 60, 250])
def test_the_interval_is_that_of_blocks_drawn_one_place_after_the_other(count: int) -> None:
    """Politis and Romano 1994: at each place, with the chance 1 / length, another block begins, anywhere."""
    length = min(BLOCK, count // 10)
    values, means = np.random.default_rng(1).standard_normal(count), []
    dice = np.random.default_rng(7)
    for _ in range(RESAMPLED):
        drawn, chance = dice.integers(count, size=count), dice.random(count)
        for place in range(1, count):
            if chance[place] > 1 / length:
                drawn[place] = (drawn[place - 1] + 1) % count
        means.append(values[drawn].mean())
    found = bootstrap_difference(values, np.zeros(count), a_year=1, seed=7)
    assert (found.low, found.high) == pytest.approx(tuple(np.percentile(means, [5, 95])), rel=1e-9)


def test_the_interval_is_that_of_arch() -> None:
    """Of `StationaryBootstrap` of arch 8.0.0, by which it was computed before: 3 CPU seconds to import."""
    values = np.random.default_rng(1).standard_normal(60) * 0.01
    means = 252 * resample_means(values, 20, np.random.default_rng(1))
    assert tuple(np.percentile(means, [5, 95])) == pytest.approx((-0.3784013707349886, 0.1218813493277829), abs=1e-15)


@pytest.mark.parametrize("days", [1, 2, 12, 19])
def test_fewer_days_than_a_block_show_nothing(days: int) -> None:
    lead = np.linspace(0.001, 0.002, days)
    found = bootstrap_difference(lead, np.zeros(days), a_year=252, seed=0)
    assert (found.low, found.high) == pytest.approx((0, 252 * lead[-1]))
    assert "is not distinguishable from held" in found.describe_against("held")


def test_few_days_are_drawn_in_short_blocks() -> None:
    """With blocks of 20 of 24 days most resamples are the same days: 54 of these 80 intervals held the mean."""
    covered = 0
    for seed in range(80):
        found = bootstrap_difference(
            np.random.default_rng(seed).standard_normal(24), np.zeros(24), a_year=1, seed=seed + 1_000
        )
        covered += found.low <= 0 <= found.high
    assert covered > 60


@pytest.mark.slow
def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    """Of 100 champions whose edge is 2.5 % a year, the 90 % interval covers it in 80 to 98."""
    covered = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        market = rng.normal(0, 0.01, 250)
        equity = {"champion": curve(market + 0.0001 + rng.normal(0, 0.003, 250)), "held": curve(market)}
        found = compare_to_yardsticks(
            equity, torch.zeros(2), trained="champion", yardsticks=("held",), a_year=252, seed=seed
        )
        covered += found.low <= 252 * 0.0001 <= found.high
    assert 80 <= covered <= 98


def test_chance_is_named_where_it_explains_the_result() -> None:
    found = Comparison(best="ridge", difference=0.01, low=-0.02, high=0.04, beaten=0.8)
    assert "chance explains it as well: 80%" in found.sentence
    assert "chance" not in Comparison(best="ridge", difference=0.1, low=0.02, high=0.2, beaten=0.99).sentence
    worse = Comparison(best="ridge", difference=-0.1, low=-0.2, high=-0.02, beaten=0.01).sentence
    assert "it is worse than chance: 1% of the random traders" in worse


def test_the_oracle_is_no_simple_rule() -> None:
    assert simple_rules(["champion", "equal weight", "ridge", "oracle", "random"]) == ("equal weight", "ridge")
    returns = {"champion": 0.3, "ridge": 0.1, "oracle": 0.4}
    assert oracle_share(returns) == pytest.approx(0.75)
    assert oracle_sentence(returns) == "It earned 75% of what the law of this market allows (+40.0%, the oracle)."
    for nothing in ({"champion": 0.3}, {"champion": 0.3, "oracle": 0.0}, {"champion": 0.3, "oracle": None}):
        assert oracle_share(nothing) is None
        assert oracle_sentence(nothing) == ""


def test_the_same_seed_gives_the_same_interval() -> None:
    assert compare_curves(0.0) == compare_curves(0.0)
