"""Slower steps are told on a machine whose own speed changes, and nothing is told of a machine that does that alone."""

from collections.abc import Callable
from random import Random

import pytest

from flatwater_watch.series.slope import Series
from flatwater_watch.series.slowdown import find_slowdown

SEEDS = 90
READINGS = 40


def read(cost: Callable[[float], float], seed: int = 0, noise: float = 0.2, readings: int = READINGS) -> Series:
    """Readings of a cost that depends on the part of the steps done, at uneven steps, and with noise."""
    draw, series, step = Random(seed), Series(), 0.0
    for at in range(readings):
        step += draw.uniform(1, 9)
        series.add(step, cost(at / readings) * draw.lognormvariate(0, noise))
    return series


def test_a_cost_that_grows_sevenfold_is_told_through_a_fifth_of_noise() -> None:
    found = [find_slowdown(read(lambda done: 1 + 6 * done, seed)) for seed in range(SEEDS)]
    told = [slower.now / slower.before for slower in found if slower is not None]
    assert len(told) >= 0.9 * SEEDS
    assert min(told) > 2
    assert max(told) < 7


def test_what_began_in_the_middle_is_told() -> None:
    found = find_slowdown(read(lambda done: 1 + max(0.0, 12 * (done - 0.45)), noise=0.05))
    assert found is not None


@pytest.mark.parametrize(
    "cost",
    [
        pytest.param(lambda _: 1.0, id="as fast as ever"),
        pytest.param(lambda done: 1.7 if done > 0.5 else 1.0, id="another program begins to work"),
        pytest.param(lambda done: 1.7 if 0.3 < done < 0.6 else 1.0, id="and ends"),
        pytest.param(lambda done: min(4.0, 1 + 10 * done), id="a warm-up that has ended"),
        pytest.param(lambda done: 1 + 0.5 * done, id="half slower: within what a machine does by itself"),
    ],
)
def test_no_slowdown_is_told(cost: Callable[[float], float]) -> None:
    """Of one look in thirty at most: the monitor asks for three in a row."""
    found = [find_slowdown(read(cost, seed)) for seed in range(SEEDS)]
    assert sum(slower is not None for slower in found) <= SEEDS / 30


def test_ten_readings_are_too_few_and_eleven_are_not() -> None:
    assert find_slowdown(read(lambda done: 1 + 9 * done, noise=0.0, readings=10)) is None
    assert find_slowdown(read(lambda done: 1 + 9 * done, noise=0.0, readings=11)) is not None


def test_costs_are_means_over_steps_however_often_they_were_read() -> None:
    """A cost of t/100, read at most steps of the first fifth and at every fifth step after it, as the mean since."""
    series = Series()
    for step in [*range(21), *range(25, 101, 5)]:
        since = series.steps[-1] if series.steps else 0
        series.add(step, (step + since) / 200)
    found = find_slowdown(series)
    assert found is not None
    # Of 37 readings a tenth is left out: stretches of 19.4 steps from step 3 on.
    assert found.before == pytest.approx((3 + 22.4) / 200, rel=0.02)
    assert found.now == pytest.approx((80.6 + 100) / 200, rel=0.02)
