"""An artificial market of known law, to measure learning by.

Log return of column n on day t:

    r[t, n] = x[t, n] + beta_n * market[t] + sector[t, s(n)] + own[t, n] - growth

The law (`laws.py`) determines x and the return that an oracle expects. `growth` makes the mean daily return zero, so
equal weights earn by luck alone, and a trader by the signal. Measured for `trend` at signal = 0.5: realised share 0.508
(60 x 1,500) and 0.501 (669 x 3,781).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from flatwater_trading.panel.config import SyntheticConfig
from flatwater_trading.panel.laws import DAILY_NOISE, HORIZON_DAYS, MARKET_SHARE, SECTOR_SHARE, make_law
from flatwater_trading.panel.panel import FEATURES, Panel, build_panel

SECTORS = 8
"""Number of sectors: column n belongs to sector n % 8."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SyntheticPanel:
    """A panel, and the expected returns by its law."""

    panel: Panel
    """The panel that agents and environments see."""
    drift: np.ndarray
    """Expected log return [T, N] float32 from the close of day t to that of day t + 20, given the past and the hidden
    state of day t, ignoring halts and delistings. NaN on days without a close. Without meaning for a first context
    column that the law determines. Only an oracle may use it."""


def synthetic_panel(config: SyntheticConfig) -> SyntheticPanel:
    """Return the panel of an artificial market, and the returns that its law expects.

    It is generated column by column, so that little more than a column is in memory besides the result. Every column
    has its own random stream, so more columns never change earlier columns.

    Raises:
        ConfigError: the law cannot have so large a signal, or needs a context column.
    """
    from flatwater_trading.panel.indicators import write_indicators_  # noqa: PLC0415  (TA-Lib: see `locate.py`)

    values = np.full((config.days, config.instruments, len(FEATURES)), np.nan, dtype=np.float32)
    drift = np.full((config.days, config.instruments), np.nan, dtype=np.float32)
    for n, (prices, traded_days, expected_return) in enumerate(_generate_columns(config)):
        for name, price in prices.items():
            values[traded_days, n, FEATURES.index(name)] = price[traded_days]
        drift[traded_days, n] = expected_return[traded_days]
    write_indicators_(values)
    drift.setflags(write=False)
    return SyntheticPanel(panel=_build_generated_panel(values, config), drift=drift)


def synthetic_truth(config: SyntheticConfig) -> np.ndarray:
    """Return `SyntheticPanel.drift` of the K investable columns, [T, K], without the panel.

    The panel's indicators take most of the time.
    """
    drift = np.full((config.days, config.instruments - config.context_instruments), np.nan, dtype=np.float32)
    # The columns that can be bought come first.
    for n, (_, traded_days, expected_return) in enumerate(islice(_generate_columns(config), drift.shape[1])):
        drift[traded_days, n] = expected_return[traded_days]
    return drift


def _generate_columns(config: SyntheticConfig) -> Iterator[tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]]:
    """Yield for each column its prices [T] by name, the rows on which it is traded, and its expected returns [T].

    Expected is the log return of the next `HORIZON_DAYS` days by the law, from each day on.
    """
    law = make_law(config)
    context_returns = law.context_returns()
    first_context = config.instruments - config.context_instruments
    days = np.arange(config.days)
    common_rng = np.random.default_rng([config.seed, 0])
    market_share = law.shared_variance_factor * MARKET_SHARE
    sector_share = law.shared_variance_factor * SECTOR_SHARE
    market = common_rng.standard_normal(config.days) * DAILY_NOISE * market_share**0.5
    sectors = common_rng.standard_normal((SECTORS, config.days)) * DAILY_NOISE * sector_share**0.5
    for n in range(config.instruments):
        # A stream for each column. The order of its draws (state, beta, noise, prices, days) is part of every panel.
        rng = np.random.default_rng([config.seed, 1, n])
        hidden = law.draw_hidden_state(rng)
        beta = rng.uniform(0.7, 1.3)  # factor on the market's returns
        # Own noise has the variance that market and sector leave, so that every column has the deviation DAILY_NOISE in
        # all, whatever its beta is.
        own_noise = (1 - sector_share - beta**2 * market_share) ** 0.5 * DAILY_NOISE * rng.standard_normal(config.days)
        drift, expected_return = law.drift_and_forecast(n, hidden, own_noise)
        returns = drift + beta * market + sectors[n % SECTORS] + own_noise - law.growth
        # The law may determine the first context column, which then has all days.
        law_returns = context_returns if n == first_context else None
        prices = _draw_prices(rng, returns if law_returns is None else law_returns)
        traded_days = days[_draw_traded_days(rng, config)] if law_returns is None else days
        # The growth is taken from the return of each of these days.
        yield prices, traded_days, expected_return - HORIZON_DAYS * law.growth


def _draw_prices(rng: np.random.Generator, returns: np.ndarray) -> dict[str, np.ndarray]:
    """Draw open, close, high and low [T] around the path of log returns; consistent by construction."""
    # Prices start around 50, two thirds of them between 30 and 82.
    start = np.log(50.0) + 0.5 * rng.standard_normal()
    close = start + np.cumsum(returns)
    previous_close = np.concatenate([[start], close[:-1]])
    gap, high_noise, low_noise = rng.standard_normal((3, len(returns))) * DAILY_NOISE
    # The night moves prices less than the day: by 0.3 of its deviation.
    opening = previous_close + 0.3 * gap
    # High and low are beyond open and close by |noise|, so they are consistent without a check.
    high = np.maximum(opening, close) + 0.4 * np.abs(high_noise)
    low = np.minimum(opening, close) - 0.4 * np.abs(low_noise)
    logarithms = {"open": opening, "close": close, "high": high, "low": low}
    return {name: np.exp(logarithm) for name, logarithm in logarithms.items()}


def _draw_traded_days(rng: np.random.Generator, config: SyntheticConfig) -> np.ndarray:
    """Draw the days [T] bool on which a column has prices: after its listing, before its delisting, outside halts."""
    days = np.arange(config.days)
    # The number of draws does not depend on the shares, so another share does not change the rest of the market.
    listing_draw, delisting_draw, listing_moment, delisting_moment = rng.random(4)
    halt_begins = rng.random(config.days) < config.halts
    halt_days = rng.integers(1, 6, size=config.days)  # 1 to 5
    is_traded = np.ones(config.days, dtype=bool)
    # The bounds that `SyntheticConfig` names: 5 % to 60 % of the way, and 60 % to 95 %.
    if listing_draw < config.late_listings:
        is_traded &= days >= config.days * (0.05 + 0.55 * listing_moment)
    if delisting_draw < config.delistings:
        is_traded &= days < config.days * (0.6 + 0.35 * delisting_moment)
    # The running maximum joins halts that overlap, so a column trades again after the last of them.
    halted_until = np.maximum.accumulate(np.where(halt_begins, days + halt_days, 0))
    return is_traded & (days >= halted_until)


def _build_generated_panel(values: np.ndarray, config: SyntheticConfig) -> Panel:
    """Build the panel of generated values: columns S00, S01 ..., context columns C58 ..., weekdays from 2000-01-03."""
    investable = config.instruments - config.context_instruments
    width = len(str(config.instruments - 1))
    names = [f"{'S' if n < investable else 'C'}{n:0{width}d}" for n in range(config.instruments)]
    dates = np.busday_offset(np.datetime64("2000-01-03"), np.arange(config.days)).astype("datetime64[D]")
    return build_panel(values=values, dates=dates, instruments=names, investable=names[:investable])
