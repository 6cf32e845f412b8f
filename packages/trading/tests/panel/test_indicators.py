"""Indicators against plain-Python derivations of their textbook formulas, and the law for holes."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatwater_trading.panel.indicators import compute_indicators, write_indicators_
from flatwater_trading.panel.panel import FEATURES

CLOSE = FEATURES.index("close")
COMPUTED = slice(FEATURES.index("rsi"), None)


def walk(days: int, seed: int = 0) -> np.ndarray:
    return 50 * np.exp(0.02 * np.random.default_rng(seed).standard_normal(days).cumsum())


def ema(series: list[float], days: int) -> list[float]:
    """Exponential mean that starts from the plain mean of the first `days` values; `days` - 1 values shorter."""
    smoothed = [sum(series[:days]) / days]
    for value in series[days:]:
        smoothed.append(smoothed[-1] + 2 / (days + 1) * (value - smoothed[-1]))
    return smoothed


def rsi(close: list[float]) -> list[float]:
    """Wilder 1978: 100 - 100 / (1 + mean gain / mean loss), means smoothed by 1/14."""
    change = [b - a for a, b in pairwise(close)]
    gain, loss = (sum(max(sign * c, 0) for c in change[:14]) / 14 for sign in (1, -1))
    result = [100 - 100 / (1 + gain / loss)]
    for c in change[14:]:
        gain, loss = (13 * gain + max(c, 0)) / 14, (13 * loss + max(-c, 0)) / 14
        result.append(100 - 100 / (1 + gain / loss))
    return result


def macd(close: list[float]) -> list[float]:
    """EMA(12) - EMA(26), both beginning on day 26: the fast one starts from the mean of days 15 to 26."""
    return [fast - slow for fast, slow in zip(ema(close[14:], 12), ema(close, 26), strict=True)]


def trix(close: list[float]) -> list[float]:
    """Percent change from day to day of the threefold EMA(15)."""
    smooth = ema(ema(ema(close, 15), 15), 15)
    return [100 * (b / a - 1) for a, b in pairwise(smooth)]


def distance(close: list[float]) -> list[float]:
    return [close[t] - sum(close[t - 19 : t + 1]) / 20 for t in range(19, len(close))]


@pytest.mark.parametrize(
    ("feature", "formula", "warm_up"),
    [
        ("rsi", rsi, 14),
        ("macd", lambda close: macd(close)[8:], 33),
        ("macd_signal", lambda close: ema(macd(close), 9), 33),
        ("trix", trix, 43),
        ("sma20_distance", distance, 19),
    ],
)
def test_is_the_textbook_formula(feature: str, formula: Callable[[list[float]], list[float]], warm_up: int) -> None:
    close = walk(200)
    computed = compute_indicators(close)[:, FEATURES.index(feature) - FEATURES.index("rsi")]
    assert np.isnan(computed[:warm_up]).all()
    np.testing.assert_allclose(computed[warm_up:], formula(close.tolist()), rtol=1e-9, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(days=st.integers(0, 120), holes=st.sets(st.integers(0, 119)), seed=st.integers(0, 9))
def test_holes_are_closed_up_and_stay_empty(days: int, holes: set[int], seed: int) -> None:
    values = np.full((days, 2, 9), np.nan, dtype=np.float32)
    values[:, 0, CLOSE] = walk(days, seed)
    values[:, 1, CLOSE] = walk(days, seed + 1)
    at = [t for t in range(days) if t not in holes]
    values[[t for t in range(days) if t in holes], 0, CLOSE] = np.nan

    write_indicators_(values)

    expected = np.full((days, 5), np.nan, dtype=np.float32)
    expected[at] = compute_indicators(values[at, 0, CLOSE].astype(np.float64))
    np.testing.assert_array_equal(values[:, 0, COMPUTED], expected)
    np.testing.assert_array_equal(
        values[:, 1, COMPUTED], compute_indicators(values[:, 1, CLOSE].astype(np.float64)).astype(np.float32)
    )


def test_no_day_sees_a_later_one() -> None:
    close = walk(120)
    for known in (1, 2, 20, 44, 80, 119):
        np.testing.assert_array_equal(compute_indicators(close[:known]), compute_indicators(close)[:known])


def test_a_constant_price_has_no_trend() -> None:
    steady = compute_indicators(np.full(100, 7.0))
    np.testing.assert_allclose(steady[50:, 1:], 0, atol=1e-12)
    assert np.isfinite(steady[50:]).all()
