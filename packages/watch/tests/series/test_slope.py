"""Laws of the robust slope, and what counts as drift: leaks do, warm-up, steps and noise do not."""

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from flatwater_watch.series.slope import (
    MAXIMUM_POINTS,
    Series,
    drift_slope,
    filling_slope,
    has_recent_rise,
    jump_points,
    robust_slope,
    thin_evenly,
)

MIB = float(1 << 20)

values_at_steps = st.lists(st.integers(-1000, 1000), min_size=5, max_size=30)


def first_drift(values: list[float], least: float = MIB, fewest: int = 5) -> int | None:
    """The number of readings after which the series is called drifting, read one by one."""
    series = Series()
    for step, value in enumerate(values):
        series.add(step, value)
        if drift_slope(series.steps, series.values, minimum=least, fewest=fewest) is not None:
            return step + 1
    return None


@given(values_at_steps)
def test_the_slope_is_the_median_over_all_pairs(values: list[int]) -> None:
    pairs = itertools.combinations(enumerate(values), 2)
    slopes = [(b - a) / (j - i) for (i, a), (j, b) in pairs]
    assert robust_slope(range(len(values)), values).per_step == pytest.approx(statistics.median(slopes))


@given(values_at_steps)
def test_the_interval_is_the_one_of_scipy(values: list[int]) -> None:
    """An implementation of Sen (1968) that is not ours, ties included."""
    wanted = stats.theilslopes(values, range(len(values)), 0.95)
    found = robust_slope(range(len(values)), values)
    assert (found.low, found.high) == pytest.approx((wanted.low_slope, wanted.high_slope))


@given(values_at_steps, st.integers(-100, 100), st.integers(1, 50))
def test_shifting_leaves_the_slope_and_scaling_scales_it(values: list[int], shift: int, scale: int) -> None:
    steps = range(len(values))
    plain = robust_slope(steps, values)
    moved = robust_slope([step + shift for step in steps], [scale * value + shift for value in values])
    assert moved.per_step == pytest.approx(scale * plain.per_step)
    assert (moved.low, moved.high) == pytest.approx((scale * plain.low, scale * plain.high))


def test_the_interval_covers_the_true_slope_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    runs = 400
    slopes = [robust_slope(range(25), [2.0 * t + rng.normal() for t in range(25)]) for _ in range(runs)]
    covered = sum(slope.low <= 2.0 <= slope.high for slope in slopes)
    # Binomial: 0.95 of 400 with a deviation of 4.4; the ranks are rounded outwards.
    assert covered >= 0.95 * runs - 3 * 4.4


def test_a_quarter_of_wild_values_does_not_move_the_slope() -> None:
    values = [10.0 * step + (1e6 if step % 4 == 1 else 0.0) for step in range(40)]
    assert robust_slope(range(40), values).per_step == pytest.approx(10.0, rel=0.05)


def test_a_thousand_points_are_thinned_evenly_and_keep_their_ends() -> None:
    kept = thin_evenly(range(1000))
    assert (len(kept), kept[0], kept[-1]) == (MAXIMUM_POINTS, 0, 999)
    assert {b - a for a, b in itertools.pairwise(kept)} == {5, 6}
    assert robust_slope(range(1000), [3.0 * step for step in range(1000)]).per_step == pytest.approx(3.0)


@given(st.integers(1, 3000))
def test_a_series_is_bounded_and_keeps_its_ends_in_order(readings: int) -> None:
    series = Series()
    for step in range(readings):
        series.add(step, 7 * step)
    assert len(series.steps) <= MAXIMUM_POINTS
    assert (series.steps[0], series.steps[-1]) == (0, readings - 1)
    assert series.steps == sorted(series.steps)
    assert series.values == [7 * step for step in series.steps]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3])
def test_a_leak_is_drift_by_ten_points(noise: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = [(300 + step + noise * rng.normal()) * MIB for step in range(10)]
    assert first_drift(values) is not None


def test_a_leak_that_begins_late_is_drift_within_fifteen_points() -> None:
    rng = np.random.default_rng(0)
    values = [(300 + max(0, step - 150) + 0.2 * rng.normal()) * MIB for step in range(200)]
    found = first_drift(values)
    assert found is not None
    assert 150 < found <= 165


def test_a_slow_leak_is_drift_when_it_has_become_material() -> None:
    found = first_drift([(300 + 0.02 * step) * MIB for step in range(300)])
    assert found is not None
    assert found == pytest.approx(2 * 50, abs=10), "half of the points, at 0.02 MiB each, are 1 MiB"


@pytest.mark.parametrize("decay", [0.7, 1, 2, 3, 5])
def test_a_warm_up_is_no_drift(decay: float) -> None:
    assert first_drift([(300 - 50 * math.exp(-step / decay)) * MIB for step in range(100)]) is None


def test_growth_like_the_logarithm_is_a_warm_up() -> None:
    assert first_drift([(300 + 20 * math.log(1 + step)) * MIB for step in range(200)], fewest=8) is None


@given(st.integers(1, 59), st.integers(1, 59), st.floats(1, 500))
def test_one_step_or_two_are_no_drift(one: int, other: int, height: float) -> None:
    values = [(300 + height * ((step >= one) + (step >= other))) * MIB for step in range(60)]
    assert first_drift(values) is None


@pytest.mark.parametrize("seed", range(10))
def test_noise_is_no_drift(seed: int) -> None:
    rng = np.random.default_rng(seed)
    assert first_drift([(300 + 3 * rng.normal()) * MIB for _ in range(60)]) is None


def test_a_series_that_falls_is_no_drift() -> None:
    assert first_drift([(300 - step) * MIB for step in range(60)]) is None


@given(st.lists(st.integers(0, 100), min_size=0, max_size=4))
def test_four_readings_are_never_suspicious(values: list[int]) -> None:
    assert not has_recent_rise(values, 1.0)


def test_suspicion_needs_half_of_a_material_rise() -> None:
    assert has_recent_rise([0, 1, 2, 3, 4], 8)
    assert not has_recent_rise([0, 1, 2, 3, 4], 9)
    assert not has_recent_rise([4, 3, 2, 1, 0], 1)


@pytest.mark.parametrize("width", [2, 3, 4, 7])
def test_growth_in_stairs_is_a_line_of_its_stairs(width: int) -> None:
    """What is kept once an epoch, read at every update."""
    values = [float(n // width) for n in range(10 * width)]
    kept_steps, kept = jump_points(list(range(len(values))), values, minimum=1.0)
    assert kept == [float(n) for n in range(10)]
    assert kept_steps == [n * width for n in range(10)]
    assert drift_slope(kept_steps, kept, minimum=1.0) is not None


def test_a_stair_and_a_long_landing_do_not_drift() -> None:
    values = [min(n, 6) * 1.0 for n in range(60)]
    assert drift_slope(*jump_points(list(range(60)), values, minimum=1.0), minimum=1.0) is None


REPLAY = [
    (1, 0), (111, 4), (155, 6), (208, 6), (262, 6), (314, 10), (367, 10), (420, 10), (473, 12), (526, 14), (579, 14),
    (632, 14), (685, 18), (738, 18), (791, 18), (844, 20), (897, 22), (950, 22), (1003, 22), (1056, 26), (1109, 26),
    (1162, 26), (1215, 28), (1268, 30), (1480, 34), (1745, 40),
]  # fmt: skip
"""A replay buffer of images in huge pages: step and MiB, as they were read."""


def fills(points: list[tuple[int, float]], now: int | None = None) -> float | None:
    """MiB a step, judged at the last reading or later."""
    steps, values = [step for step, _ in points], [size * MIB for _, size in points]
    slope = filling_slope(steps, values, latest_step=steps[-1] if now is None else now, minimum=MIB)
    return None if slope is None else slope.per_step / MIB


def test_a_buffer_that_fills_in_stairs_is_told_from_a_third_of_the_run_on() -> None:
    told = [points[-1][0] for n in range(1, len(REPLAY) + 1) if fills(points := REPLAY[:n]) is not None]
    assert told == [step for step, _ in REPLAY if step >= 685]


def test_the_rate_of_a_filling_is_its_rise_to_within_a_stair() -> None:
    steps, values = [step for step, _ in REPLAY], [size * MIB for _, size in REPLAY]
    slope = filling_slope(steps, values, latest_step=1745, minimum=MIB)
    assert slope is not None
    assert (slope.per_step, slope.span) == (40 * MIB / 1744, 1744)
    assert (slope.low, slope.high) == (34 * MIB / 1744, 46 * MIB / 1744), "the largest stair has 6 MiB"


def test_a_buffer_that_has_stopped_is_no_longer_told() -> None:
    """Its longest landing had 265 steps: twice as many later, it has stopped."""
    assert fills(REPLAY, now=1745 + 2 * 265) is not None
    assert fills(REPLAY, now=1745 + 2 * 265 + 1) is None


@pytest.mark.parametrize("touched", range(1, 13))
def test_a_buffer_that_is_touched_at_the_beginning_only_is_never_told(touched: int) -> None:
    """It goes on in neither half of what comes later, however many readings there are."""
    points = [(step, float(min(step, touched))) for step in range(1, 40)]
    told = [points[n - 1][0] for n in range(1, 40) if fills(points[:n]) is not None]
    assert all(step <= touched + 2 for step in told), "while it was filled"
    assert bool(told) == (touched >= 7), "six rises after the first reading"


def test_a_buffer_that_fills_ever_more_slowly_is_not_told() -> None:
    assert fills([(step, 100 * (1 - math.exp(-step / 8))) for step in range(40)]) is None


def test_a_rise_that_is_not_material_is_no_filling() -> None:
    assert fills([(step, 1.99 * step / 20) for step in range(21)]) is None
    assert fills([(step, 2.00 * step / 20) for step in range(21)]) is not None


@pytest.mark.parametrize("before", [1, 5, 30])
def test_a_buffer_that_is_made_anew_begins_anew(before: int) -> None:
    old = [(step, 50.0) for step in range(before)]
    new = [(before + step, float(step)) for step in range(12)]
    assert fills(old + new[:5]) is None
    assert fills(old + new) == pytest.approx(1.0)


@given(st.lists(st.integers(0, 5), min_size=0, max_size=60))
def test_a_filling_rises_in_both_halves_and_never_falls_after(rises: list[int]) -> None:
    points = [(step, float(sum(rises[: step + 1]))) for step in range(len(rises))]
    rate = fills(points) if points else None
    if rate is not None:
        assert sum(rise > 0 for rise in rises[1:]) >= 6
        assert rate * points[-1][0] >= 2 * 0.5
