"""The laws of artificial markets: the drift of prices besides noise, and the return that an oracle expects.

Two models. In `trend` (and `none`, without a drift) a hidden drift is up, flat or down, and is redrawn at random times.
In the other laws a column's drift follows past shocks:

    x[t + 1, n] = s[t + 1] * b * w[t, n]      w[t] = (1 - rho^2)^0.5 * (u[t] + rho * u[t - 1] + rho^2 * u[t - 2] + ...)

with u the shocks in deviations, rho = 1 - 1 / signal_days, and a sign s. Past shocks continue if s = 1 and are reversed
if s = -1, never by more than their size, because a larger drift would hide the shocks in later prices:

    reversal     u is the column's own noise, s = -1
    regimes      as reversal, but s flips with chance 1 / MEAN_REGIME_DAYS a day, for all columns together, unobserved
    interaction  as regimes, but the first context column rises while s = 1 and falls while s = -1
    lead         u is the noise of the first context column, s = 1; column n follows it by a factor between 0.5 and 1.5

With lambda = 1 - 2 / MEAN_REGIME_DAYS, or 1 for a constant s, and H = 20 days:

    expected log return = s[t] * b * w[t] * g - H growth      g = lambda + lambda^2 rho + ... + lambda^H rho^(H - 1)
    variance in all     = b^2 V + 2 s b c + H e^2             V = sum of (lambda rho)^|j-k| over all days j, k of the H

where c is the covariance of the shocks within the H days with the drift that they cause within them; it is 0 if s
flips or the shocks are another column's. The share b^2 g^2 / variance = `signal` is a quadratic equation for b. If a
column follows its own noise, most of its noise is its own (`COMMON_VARIANCE_SHARE`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from flatwater_trading.panel.config import Law, SyntheticConfig
from flatwater_watch.errors import ConfigError

HORIZON_DAYS = 20
"""Days of the returns that `signal` and the truth are defined for: the holding period of the reference."""
DAILY_NOISE = 0.012
"""Daily deviation of market, sector and own noise together; the same for every column."""
MARKET_SHARE, SECTOR_SHARE = 0.25, 0.15
"""Shares of the noise variance that a column of beta 1 shares with the market and with its sector."""
MEAN_REGIME_DAYS = 250
"""Mean days between two flips of the sign in `regimes` and `interaction`."""
SHOWN_DRIFT, SHOWN_NOISE = 0.003, 0.004
"""Daily log return of the column that shows the sign, and its deviation: a month of it shows the sign clearly."""

COMMON_VARIANCE_SHARE = 0.25
"""Part of `MARKET_SHARE` and `SECTOR_SHARE` that remains in the laws in which a column follows its own shocks."""

_DRIFT_STATES = np.array([-1.0, 0.0, 1.0]) * 1.5**0.5
"""Down, flat and up, with mean 0 and variance 1."""
_OWN_NOISE = DAILY_NOISE * (1 - COMMON_VARIANCE_SHARE * (MARKET_SHARE + SECTOR_SHARE)) ** 0.5
"""Daily deviation of own noise in a column of beta 1 that follows its own shocks."""


class MarketLaw(Protocol):
    """A law of an artificial market: the drift and the hidden state of columns, and the first context column."""

    @property
    def growth(self) -> float:
        """Amount that is taken from every day's log return, so that the mean daily return is zero."""

    @property
    def shared_variance_factor(self) -> float:
        """Factor of the variance that columns share with the market and their sector."""

    def draw_hidden_state(self, rng: np.random.Generator) -> np.ndarray | None:
        """Draw the hidden state of a column, [T], from its own stream, before its noise; None if it has none."""

    def drift_and_forecast(self, n: int, state: np.ndarray | None, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return two arrays [T]: each day's drift, and the log return it is expected to add over the next H days.

        Args:
            n: number of the column.
            state: hidden state of `draw_hidden_state`.
            noise: noise [T] of the column alone.
        """

    def context_returns(self) -> np.ndarray | None:
        """Return log returns [T] of the first context column; None if the law does not determine them."""


@dataclass(frozen=True)
class HiddenTrend:
    """A hidden drift that is redrawn at random times. With a deviation of 0 prices are a random walk."""

    config: SyntheticConfig
    deviation: float
    """Daily deviation of the drift, in log returns."""
    gain: float
    """Expected return of the next `HORIZON_DAYS` days for a drift of 1 today: g."""
    growth: float
    """Amount that is taken from every day's log return, so that the mean daily return is zero."""
    shared_variance_factor: float = 1.0
    """Factor of the shared variance: all of it, because no column follows its own noise."""

    def draw_hidden_state(self, rng: np.random.Generator) -> np.ndarray:
        """Return states [T] of variance 1: each day's is redrawn with chance 1 / signal_days, else the day before's."""
        days = self.config.days
        # Two draws of fixed size, in this order, so that the column's later draws do not depend on the states.
        redrawn = rng.random(days) < 1 / self.config.signal_days
        states = rng.choice(_DRIFT_STATES, size=days)
        # The running maximum points each day to its last redraw, which saves a loop over the days.
        return np.asarray(states[np.maximum.accumulate(np.where(redrawn, np.arange(days), 0))])

    def drift_and_forecast(self, n: int, state: np.ndarray | None, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # noqa: ARG002  (of the protocol)
        """Return two arrays [T]: the drift of the state, and the log return that it is expected to add."""
        assert state is not None  # noqa: S101  (`draw_hidden_state` gives it)
        drift = state * self.deviation
        return drift, drift * self.gain

    def context_returns(self) -> None:
        """Return None: a context column is like the others."""


@dataclass(frozen=True)
class ShockFollowing:
    """A drift that continues past shocks, or reverses them."""

    config: SyntheticConfig
    strength: float
    """Drift for weighted shocks of 1: b."""
    gain: float
    """Expected return of the next `HORIZON_DAYS` days, for weighted shocks of 1 and a strength of 1: g."""
    growth: float
    """Amount that is taken from every day's log return, so that the mean daily return is zero."""
    sign: np.ndarray
    """Sign of each day [T], 1 or -1."""
    leader: np.ndarray | None = None
    """Shocks [T] of the column that leads, in deviations; None if each column follows its own shocks."""
    shows_sign: bool = False
    """Whether the first context column rises and falls with the sign."""

    @property
    def shared_variance_factor(self) -> float:
        """Factor of the shared variance: less if columns follow their own shocks."""
        return COMMON_VARIANCE_SHARE if self.leader is None else 1.0

    def draw_hidden_state(self, rng: np.random.Generator) -> None:
        """Draw nothing: columns have no hidden state."""

    def drift_and_forecast(self, n: int, state: np.ndarray | None, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # noqa: ARG002  (of the protocol)
        """Return two arrays [T]: the drift that follows the shocks up to the day before, and its expected return."""
        # The column's own shocks in deviations, unless another column leads.
        shocks, factor = noise / noise.std(), 1.0
        if self.leader is not None:
            # Columns follow by different factors, so that a choice among them matters; their mean square is 1.08. They
            # are drawn from stream 3 (see `context_returns`).
            shocks = self.leader
            factor = 0.5 + np.random.default_rng([self.config.seed, 3, n]).random()
        weight = self.strength * factor * _weighted_shocks(shocks, daily_persistence(self.config.signal_days))
        expected_return = self.sign * weight * self.gain
        # x[t + 1] = s[t + 1] b w[t]: a drift depends on shocks up to the day before, and on today's sign.
        drift = np.concatenate([[0.0], (self.sign[1:] * weight[:-1])])  # the first day has no earlier shocks
        return drift, expected_return

    def context_returns(self) -> np.ndarray | None:
        """Return returns of the first context column: the leader's, or the sign with noise; None for neither."""
        if self.leader is not None:
            # Less half the variance, so that the mean of exp(return) is 1.
            return self.leader * DAILY_NOISE - DAILY_NOISE**2 / 2
        if not self.shows_sign:
            return None
        # Streams are named by [seed, n]: 0 common noise, 1 columns, 2 signs or the leader, 3 factors, 4 this noise.
        noise = np.random.default_rng([self.config.seed, 4]).standard_normal(self.config.days)
        return np.asarray(self.sign * SHOWN_DRIFT + noise * SHOWN_NOISE - SHOWN_NOISE**2 / 2)


def make_law(config: SyntheticConfig) -> MarketLaw:
    """Make the law that a configuration names, with numbers that make its signal as large as configured.

    Raises:
        ConfigError: `signal` is larger than the law can explain, or the law needs a context column.
    """
    return _LAW_MAKERS[config.law](config)


def _make_trend(config: SyntheticConfig) -> HiddenTrend:
    deviation, gain, _ = drift_deviation(config.signal, config.signal_days)
    return HiddenTrend(config, deviation=deviation, gain=gain, growth=mean_growth(deviation))


def _make_random_walk(config: SyntheticConfig) -> HiddenTrend:
    return HiddenTrend(config, deviation=0.0, gain=0.0, growth=mean_growth(0.0))


def _make_reversal(config: SyntheticConfig) -> ShockFollowing:
    return _make_shock_following(config, sign=np.full(config.days, -1.0))


def _make_regimes(config: SyntheticConfig, *, shows_sign: bool = False) -> ShockFollowing:
    """Return the law whose sign flips at random for all columns together, on average every `MEAN_REGIME_DAYS` days.

    If `shows_sign`, the first context column shows the sign.
    """
    rng = np.random.default_rng([config.seed, 2])  # stream 2: of signs, or of the leader
    # A telegraph signal: E[s[t + k] s[t]] = (1 - 2 / MEAN_REGIME_DAYS)^k, the lambda of the module's docstring.
    # -1 on a day on which the sign flips: the product of all factors so far is the sign.
    flips = np.where(rng.random(config.days) < 1 / MEAN_REGIME_DAYS, -1.0, 1.0)
    flips[0] = rng.choice([-1.0, 1.0])
    return _make_shock_following(
        config, sign=np.cumprod(flips), sign_persistence=1 - 2 / MEAN_REGIME_DAYS, shows_sign=shows_sign
    )


def _make_interaction(config: SyntheticConfig) -> ShockFollowing:
    _require_context(config, "shows which rule pays")
    return _make_regimes(config, shows_sign=True)


def _make_lead(config: SyntheticConfig) -> ShockFollowing:
    """Return the law in which all columns follow the noise of the first context column."""
    _require_context(config, "leads the others")
    # Each use of randomness has a stream of its own, [seed, number]; number 2 is that of the leader's shocks.
    shocks = np.random.default_rng([config.seed, 2]).standard_normal(config.days)
    return _make_shock_following(config, sign=np.ones(config.days), leader=shocks)


_LAW_MAKERS: Mapping[Law, Callable[[SyntheticConfig], MarketLaw]] = {
    "trend": _make_trend,
    "reversal": _make_reversal,
    "lead": _make_lead,
    "regimes": _make_regimes,
    "interaction": _make_interaction,
    "none": _make_random_walk,
}


def drift_deviation(signal: float, signal_days: int) -> tuple[float, float, float]:
    """Solve `trend` for the daily deviation s of its drift; return s, the gain g and the largest signal g^2 / V.

    The drift is redrawn with chance 1 / signal_days a day; hence corr(x[t], x[t+k]) = phi^k with
    phi = 1 - 1 / signal_days, g = phi + ... + phi^H, V the sum of phi^|j-k|. The share that x[t] explains is
    s^2 g^2 / (s^2 V + H e^2), which is solved for s.

    Raises:
        ConfigError: `signal` is not below g^2 / V.
    """
    phi = daily_persistence(signal_days)
    gain = float((phi ** np.arange(1, HORIZON_DAYS + 1)).sum())  # g
    total = _summed_variance(phi)  # V
    _check_signal_size(signal, gain**2 / total, signal_days, "it may change within them")
    deviation = float((signal * HORIZON_DAYS * DAILY_NOISE**2 / (gain**2 - signal * total)) ** 0.5)
    return deviation, gain, gain**2 / total


def mean_growth(deviation: float) -> float:
    """Return the log of the mean daily return factor of `trend`, over three equally likely states and the noise."""
    return float(np.log(np.exp(_DRIFT_STATES * deviation + DAILY_NOISE**2 / 2).mean()))


def daily_persistence(signal_days: int) -> float:
    """Return the part of a shock, or of a state, that remains a day later."""
    return 1 - 1 / signal_days


def _make_shock_following(
    config: SyntheticConfig,
    *,
    sign: np.ndarray,
    sign_persistence: float = 1.0,
    leader: np.ndarray | None = None,
    shows_sign: bool = False,
) -> ShockFollowing:
    """Make the law whose drift follows shocks, with the strength b at which they explain the share `config.signal`.

    The quadratic equation is in the module's docstring; comments name its symbols.

    Args:
        config: settings of the market.
        sign: signs s [T] of the days, 1 or -1.
        sign_persistence: correlation lambda of the sign from a day to the next; 1 for a constant sign.
        leader: shocks [T] of the column that leads, in deviations; None if each column follows its own shocks.
        shows_sign: whether the first context column rises and falls with the sign.

    Raises:
        ConfigError: `config.signal` is as large as the law can explain, or larger.
    """
    rho = daily_persistence(config.signal_days)
    signal = config.signal
    follows_own = leader is None
    ahead = np.arange(1, HORIZON_DAYS + 1)
    gain = float((sign_persistence**ahead * rho ** (ahead - 1)).sum())  # g
    total = _summed_variance(sign_persistence * rho)  # V
    noise = HORIZON_DAYS * DAILY_NOISE**2  # H e^2
    covariance = 0.0
    if follows_own and sign_persistence == 1:
        # c: the drift of each of the H days has the shocks of the days before it, by rho^0, rho^1 ...
        shocks_within = float(sum((rho ** np.arange(day)).sum() for day in range(HORIZON_DAYS)))
        covariance = float(sign[0]) * _OWN_NOISE * (1 - rho**2) ** 0.5 * shocks_within
    largest_signal, reason = gain**2 / total, "it may change within them"
    if follows_own:
        full_strength = _OWN_NOISE * ((1 - rho) / (1 + rho)) ** 0.5  # at which shocks are reversed whole
        largest_signal = (
            full_strength**2 * gain**2 / (full_strength**2 * total + 2 * full_strength * covariance + noise)
        )
        reason = "no more than the shocks of those days can be taken back"
    _check_signal_size(signal, largest_signal, config.signal_days, reason)
    # a b^2 - 2 h b - k = 0, the module's equation with a = g^2 - signal V, h = signal s c, k = signal H e^2. a is above
    # 0, so one root is positive.
    a, h, k = gain**2 - signal * total, signal * covariance, signal * noise
    strength = float((h + (h**2 + a * k) ** 0.5) / a)
    growth = (strength**2 + DAILY_NOISE**2) / 2  # half a day's variance: the mean of exp(return) is then 1
    return ShockFollowing(
        config, strength=strength, gain=gain, growth=growth, sign=sign, leader=leader, shows_sign=shows_sign
    )


def _weighted_shocks(shocks: np.ndarray, rho: float) -> np.ndarray:
    """Return the sum of the shocks up to each day, older shocks weighted less, scaled to variance 1."""
    sums = np.empty_like(shocks)
    weighted_sum = 0.0
    # A loop over Python floats, as NumPy has no recursive filter.
    for day, shock in enumerate(shocks.tolist()):
        weighted_sum = rho * weighted_sum + shock
        sums[day] = weighted_sum
    return np.asarray(sums * (1 - rho**2) ** 0.5)


def _summed_variance(persistence: float) -> float:
    """Return the variance of the sum over H days of a series of variance 1 with this correlation from day to day."""
    days = np.arange(HORIZON_DAYS)
    return float((persistence ** np.abs(days[:, None] - days[None, :])).sum())


def _check_signal_size(signal: float, largest_share: float, signal_days: int, reason: str) -> None:
    """Check that a law can explain the share `signal` of the variance: at most `largest_share`.

    Args:
        signal: configured share.
        largest_share: largest share of the law, which `signal` must stay below.
        signal_days: mean life of a drift, for the message.
        reason: reason of the limit, for the message.

    Raises:
        ConfigError: `signal` is `largest_share` or more.
    """
    if signal >= largest_share:
        raise ConfigError(
            f"synthetic.signal = {signal}: a drift that lives {signal_days} days can explain less than "
            f"{largest_share:.2f} of a {HORIZON_DAYS}-day return, because {reason}. "
            "Lower it or change synthetic.signal_days."
        )


def _require_context(config: SyntheticConfig, role: str) -> None:
    """Check that there is a context column; `role` is a predicate of the message, such as `leads the others`.

    Raises:
        ConfigError: there is no context column.
    """
    if config.context_instruments == 0:
        raise ConfigError(
            f"synthetic.law = {config.law}: needs a column that can be watched and not traded, which {role}. Set "
            "synthetic.context_instruments to 1 or more."
        )
