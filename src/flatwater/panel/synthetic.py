"""An artificial market with a hidden drift that the indicators reveal: the truth is known, so learning can be measured.

Log return of column n on day t:

    r[t, n] = x[t, n] + beta_n * market[t] + sector[t, s(n)] + own[t, n] - growth

The hidden drift x is up, flat or down. Each day, with chance 1 / signal_days, it is drawn anew from the three, equally
likely; hence corr(x[t], x[t+k]) = phi^k with phi = 1 - 1 / signal_days. For H = 20 days, known x[t]:

    expected log return = x[t] * g - H growth    g = phi + phi^2 + ... + phi^H
    variance in all     = s^2 * V + H * e^2   V = sum of phi^|j-k| over all days j, k of the H

with s the deviation of x and e that of the three noise terms together. The share that x[t] explains is therefore
s^2 g^2 / (s^2 V + H e^2), and `drift_deviation` solves this for s. As e goes to 0 the share tends to g^2 / V (0.76 for
50 days): what the drift does *within* the 20 days cannot be known at their start.

`growth` makes the mean daily return zero: what equal weights earn is luck, and what a trader earns is the signal.
Measured at signal = 0.5: realised share 0.508 (60 x 1,500) and 0.501 (669 x 3,781).
"""

from dataclasses import dataclass

import numpy as np

from flatwater.errors import ConfigError
from flatwater.panel.config import SyntheticConfig
from flatwater.panel.indicators import write_indicators_
from flatwater.panel.panel import FEATURES, Panel, build_panel

HORIZON = 20
"""Days that `signal` and `drift` speak about: the holding period of the reference."""
NOISE = 0.012
"""Daily deviation of market, sector and own noise together; the same for every column."""
MARKET_SHARE, SECTOR_SHARE = 0.25, 0.15
"""Shares of the noise variance that a column of beta 1 has in common with the market and with its sector."""
SECTORS = 8
"""Column n belongs to sector n % 8."""

_STATES = np.array([-1.0, 0.0, 1.0]) * 1.5**0.5
"""Down, flat and up, with variance 1."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SyntheticPanel:
    """A panel, and the truth behind it."""

    panel: Panel
    """What agents and envs see."""
    drift: np.ndarray
    """[T, N] float32: expected log return from the close of day t to that of day t + 20, given the hidden state of day
    t, as if nothing halted or ended. NaN where the day has no close. An oracle may use it, nothing else may."""


def synthetic_panel(config: SyntheticConfig) -> SyntheticPanel:
    """Generate a market, column by column: beyond the result it holds little more than one column's history.

    Every column has a random stream of its own, so more columns never change the ones before them.

    Raises:
        ConfigError: `signal` is larger than a drift of `signal_days` can explain.
    """
    deviation, gain, _ = drift_deviation(config.signal, config.signal_days)
    growth = mean_growth(deviation)
    days = np.arange(config.days)
    common = np.random.default_rng([config.seed, 0])
    market = common.standard_normal(config.days) * NOISE * MARKET_SHARE**0.5
    sectors = common.standard_normal((SECTORS, config.days)) * NOISE * SECTOR_SHARE**0.5
    values = np.full((config.days, config.instruments, len(FEATURES)), np.nan, dtype=np.float32)
    drift = np.full((config.days, config.instruments), np.nan, dtype=np.float32)
    for n in range(config.instruments):
        rng = np.random.default_rng([config.seed, 1, n])
        hidden = _regimes(rng, config) * deviation
        beta = rng.uniform(0.7, 1.3)
        own = (1 - SECTOR_SHARE - beta**2 * MARKET_SHARE) ** 0.5 * NOISE * rng.standard_normal(config.days)
        prices = _prices(rng, hidden + beta * market + sectors[n % SECTORS] + own - growth)
        traded = days[_traded(rng, config)]
        for name, price in prices.items():
            values[traded, n, FEATURES.index(name)] = price[traded]
        drift[traded, n] = hidden[traded] * gain - HORIZON * growth
    write_indicators_(values)
    drift.setflags(write=False)
    return SyntheticPanel(panel=_named(values, config), drift=drift)


def drift_deviation(signal: float, signal_days: int) -> tuple[float, float, float]:
    """Daily deviation s of the hidden drift, the gain g, and the largest possible signal g^2 / V (see the module).

    Raises:
        ConfigError: `signal` is not below g^2 / V.
    """
    phi = 1 - 1 / signal_days
    lags = np.arange(1, HORIZON + 1)
    gain = float((phi**lags).sum())
    total = float((phi ** np.abs(lags[:, None] - lags[None, :])).sum())
    most = gain**2 / total
    if signal >= most:
        raise ConfigError(
            f"synthetic.signal = {signal}: a drift that lives {signal_days} days can explain less than {most:.2f} of a "
            f"{HORIZON}-day return, because it may change within them. Lower the signal or raise synthetic.signal_days."
        )
    return float((signal * HORIZON * NOISE**2 / (gain**2 - signal * total)) ** 0.5), gain, most


def mean_growth(deviation: float) -> float:
    """Log of the mean daily return factor over the three equally likely regimes and the noise."""
    return float(np.log(np.exp(_STATES * deviation + NOISE**2 / 2).mean()))


def _regimes(rng: np.random.Generator, config: SyntheticConfig) -> np.ndarray:
    """Hidden states [T] of variance 1: the state drawn last, redrawn with chance 1 / signal_days each day."""
    redrawn = rng.random(config.days) < 1 / config.signal_days
    states = rng.choice(_STATES, size=config.days)
    return states[np.maximum.accumulate(np.where(redrawn, np.arange(config.days), 0))]


def _prices(rng: np.random.Generator, returns: np.ndarray) -> dict[str, np.ndarray]:
    """Open, close, high and low [T] around the path of log returns; consistent by construction."""
    start = np.log(50.0) + 0.5 * rng.standard_normal()
    close = start + np.cumsum(returns)
    before = np.concatenate([[start], close[:-1]])
    gap, above, below = rng.standard_normal((3, len(returns))) * NOISE
    opened = before + 0.3 * gap
    high = np.maximum(opened, close) + 0.4 * np.abs(above)
    low = np.minimum(opened, close) - 0.4 * np.abs(below)
    return {name: np.exp(log) for name, log in {"open": opened, "close": close, "high": high, "low": low}.items()}


def _traded(rng: np.random.Generator, config: SyntheticConfig) -> np.ndarray:
    """Days [T] bool on which the column has prices: after its listing, before its delisting, outside halts."""
    days = np.arange(config.days)
    # All draws are made whatever the shares are, so that changing one share leaves the rest of the market alone.
    late, gone, *when = rng.random(4)
    begins, lengths = rng.random(config.days) < config.halts, rng.integers(1, 6, size=config.days)
    traded = np.ones(config.days, dtype=bool)
    if late < config.late_listings:
        traded &= days >= config.days * (0.05 + 0.55 * when[0])
    if gone < config.delistings:
        traded &= days < config.days * (0.6 + 0.35 * when[1])
    until = np.maximum.accumulate(np.where(begins, days + lengths, 0))
    return traded & (days >= until)


def _named(values: np.ndarray, config: SyntheticConfig) -> Panel:
    traded = config.instruments - config.context_instruments
    width = len(str(config.instruments - 1))
    names = [f"{'S' if n < traded else 'C'}{n:0{width}d}" for n in range(config.instruments)]
    dates = np.busday_offset(np.datetime64("2000-01-03"), np.arange(config.days)).astype("datetime64[D]")
    return build_panel(values=values, dates=dates, instruments=names, investable=names[:traded])
