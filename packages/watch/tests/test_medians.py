"""Medians and deviations are those of `statistics`."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatwater_watch.medians import median, median_low, normal_deviations

NUMBERS = st.lists(st.floats(-1e12, 1e12), min_size=1)


@given(NUMBERS)
def test_medians_are_those_of_statistics(values: list[float]) -> None:
    assert median(values) == statistics.median(values)
    assert median_low(values) == statistics.median_low(values)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99, 0.999])
def test_deviations_are_those_of_the_normal_distribution(confidence: float) -> None:
    exact = statistics.NormalDist().inv_cdf((1 + confidence) / 2)
    assert normal_deviations(confidence) == pytest.approx(exact, rel=1e-12)
