"""The artificial market: the planted signal has the size asked for, is the truth, and can be learnt."""

import time
import tracemalloc

import numpy as np
import pytest

from flatwater_trading.panel.config import DEFAULT_OBSERVATION_FEATURES, SyntheticConfig
from flatwater_trading.panel.laws import DAILY_NOISE, HORIZON_DAYS, drift_deviation, mean_growth
from flatwater_trading.panel.normalise import normalise_panel, training_statistics
from flatwater_trading.panel.synthetic import SyntheticPanel, synthetic_panel
from flatwater_watch.errors import ConfigError

FULL = {"late_listings": 0.0, "delistings": 0.0, "halts": 0.0}


def returns(market: SyntheticPanel) -> np.ndarray:
    """Log return of the next 20 days [T, N], NaN where either close is missing."""
    log = np.log(market.panel.feature("close").astype(np.float64))
    ahead = np.full_like(log, np.nan)
    ahead[:-HORIZON_DAYS] = log[HORIZON_DAYS:] - log[:-HORIZON_DAYS]
    return ahead


@pytest.mark.few(2)
@pytest.mark.parametrize(("signal", "signal_days"), [(0.3, 50), (0.5, 50), (0.5, 40), (0.6, 60)])
def test_the_drift_explains_the_share_asked_for(signal: float, signal_days: int) -> None:
    """With 300 columns x 4,000 days there are some 60,000 independent stretches of 20 days: 0.02 is far out."""
    config = SyntheticConfig(instruments=300, days=4000, signal=signal, signal_days=signal_days, **FULL)
    market = synthetic_panel(config)
    ahead, drift = returns(market)[:-HORIZON_DAYS], market.drift[:-HORIZON_DAYS].astype(np.float64)
    growth = HORIZON_DAYS * mean_growth(drift_deviation(signal, signal_days)[0])
    ahead, drift = ahead + growth, drift + growth
    assert 1 - np.mean((ahead - drift) ** 2) / np.mean(ahead**2) == pytest.approx(signal, abs=0.02)
    assert np.mean(ahead * drift) / np.mean(drift**2) == pytest.approx(1, abs=0.03)


def test_equal_weights_earn_nothing_on_average() -> None:
    """300,000 daily returns that share a market factor on 3,000 days: the standard error of the mean is 0.00012."""
    market = synthetic_panel(SyntheticConfig(instruments=100, days=3001, signal=0.5, **FULL))
    close = market.panel.feature("close").astype(np.float64)
    assert np.mean(close[1:] / close[:-1] - 1) == pytest.approx(0, abs=0.0005)


def test_the_deviation_follows_from_a_simulation_of_the_hidden_chain() -> None:
    """Independent of the formula: simulate the chain and measure gain and variance over 20 days."""
    rng = np.random.default_rng(0)
    signal, life, chains = 0.5, 50, 200_000
    deviation, gain, most = drift_deviation(signal, life)
    state = start = rng.integers(-1, 2, chains) * 1.5**0.5
    total = np.zeros(chains)
    for _ in range(HORIZON_DAYS):
        state = np.where(rng.random(chains) < 1 / life, rng.integers(-1, 2, chains) * 1.5**0.5, state)
        total += state
    assert np.mean(total * start) == pytest.approx(gain, rel=0.01)
    assert gain**2 / np.var(total) == pytest.approx(most, abs=0.01)
    variance = deviation**2 * np.var(total) + HORIZON_DAYS * DAILY_NOISE**2
    assert deviation**2 * gain**2 / variance == pytest.approx(signal, abs=0.01)


def test_without_signal_there_is_no_drift() -> None:
    drift = synthetic_panel(SyntheticConfig(instruments=3, days=50, signal=0.0, **FULL)).drift
    assert drift == pytest.approx(-HORIZON_DAYS * DAILY_NOISE**2 / 2), (
        "what keeps the mean price, and the same everywhere"
    )


def test_more_signal_than_can_be_known_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"synthetic\.signal = 0\.9: .*50 days .* 0\.76 .*20-day"):
        synthetic_panel(SyntheticConfig(signal=0.9))


def test_the_indicators_reveal_the_drift() -> None:
    """A ridge regression on one day's default features ranks well enough to earn most of the oracle's gain."""
    market = synthetic_panel(SyntheticConfig())
    panel, ahead = market.panel, returns(market)
    stats = training_statistics(panel, DEFAULT_OBSERVATION_FEATURES, 1000)
    out = normalise_panel(panel, DEFAULT_OBSERVATION_FEATURES, stats)
    seen = np.concatenate([out.numpy().transpose(1, 0, 2), np.ones((1500, 60, 1))], axis=2)

    known = np.isfinite(ahead)
    train = known & (np.arange(1500) < 1000 - HORIZON_DAYS)[:, None]
    x, y = seen[train], ahead[train]
    weights = np.linalg.solve(x.T @ x + 10 * np.eye(x.shape[1]), x.T @ y)

    test = slice(1000, 1500 - HORIZON_DAYS)
    learnt, oracle, everything = (
        np.mean(np.take_along_axis(ahead[test], np.where(known, score, -9)[test].argmax(1)[:, None], axis=1))
        for score in (seen @ weights, market.drift, np.random.default_rng(0).random(known.shape))
    )
    assert oracle > 0.05
    assert learnt > 0.7 * oracle
    assert abs(everything) < 0.3 * oracle


def test_prices_are_consistent_and_complete_where_there_is_a_close() -> None:
    panel = synthetic_panel(SyntheticConfig(instruments=40, days=800, halts=0.02)).panel
    opened, close, high, low = (panel.feature(name)[panel.valid] for name in ("open", "close", "high", "low"))
    assert (low > 0).all()
    assert (low <= np.minimum(opened, close)).all()
    assert (np.maximum(opened, close) <= high).all()
    assert np.isnan(panel.values[~panel.valid]).all()


def test_listings_delistings_and_halts_are_as_frequent_as_asked() -> None:
    config = SyntheticConfig(instruments=1000, days=400, late_listings=0.3, delistings=0.2, halts=0.004)
    market = synthetic_panel(config)
    panel = market.panel
    first, last = panel.valid.argmax(axis=0), 399 - panel.valid[::-1].argmax(axis=0)
    assert np.mean(first > 10) == pytest.approx(0.3, abs=0.05)
    assert np.mean(last < 389) == pytest.approx(0.2, abs=0.05)
    listed = np.arange(400)[:, None]
    inside = (listed >= first) & (listed <= last)
    # A halt lasts 3 days on average; few enough that overlaps do not matter at this tolerance.
    assert 1 - panel.valid[inside].mean() == pytest.approx(0.012, abs=0.003)
    np.testing.assert_array_equal(np.isfinite(market.drift), panel.valid)


def test_the_seed_is_the_only_chance() -> None:
    one, again, other = (synthetic_panel(SyntheticConfig(instruments=3, days=60, seed=s)) for s in (1, 1, 2))
    assert one.panel.fingerprint == again.panel.fingerprint != other.panel.fingerprint
    np.testing.assert_array_equal(one.drift, again.drift)


def test_more_columns_and_context_leave_the_first_ones_alone() -> None:
    small = synthetic_panel(SyntheticConfig(instruments=5, days=80)).panel
    large = synthetic_panel(SyntheticConfig(instruments=9, days=80, context_instruments=6)).panel
    np.testing.assert_array_equal(small.values, large.values[:, :5])
    np.testing.assert_array_equal(large.investable, [0, 1, 2])
    assert large.instruments[2:4] == ("S2", "C3")


def test_columns_of_a_sector_move_together_and_all_move_with_the_market() -> None:
    """Common variance over all variance: market 0.25, and 0.15 more within a sector, of what the noise makes."""
    market = synthetic_panel(SyntheticConfig(instruments=80, days=3000, signal=0.0, **FULL))
    together = np.corrcoef(np.diff(np.log(market.panel.feature("close").astype(np.float64)), axis=0).T)
    sector = np.arange(80) % 8
    kin = (sector[:, None] == sector[None, :]) & ~np.eye(80, dtype=bool)
    assert together[kin].mean() == pytest.approx(0.40, abs=0.03)
    assert together[sector[:, None] != sector[None, :]].mean() == pytest.approx(0.25, abs=0.03)


@pytest.mark.long
def test_the_full_size_takes_seconds_and_little_beside_the_result() -> None:
    config = SyntheticConfig(instruments=669, days=3781, context_instruments=561)
    began = time.process_time()
    market = synthetic_panel(config)
    assert time.process_time() - began < 20
    held = market.panel.values.nbytes + market.drift.nbytes + market.panel.valid.nbytes
    assert market.panel.values.shape == (3781, 669, 9)
    tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]  # where another test's tracing goes on, more than nothing
        synthetic_panel(SyntheticConfig(instruments=200, days=2000))
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    small = 200 * 2000 * (9 * 4 + 4 + 1)
    assert peak - small < 12 << 20
    assert held < 110 << 20
