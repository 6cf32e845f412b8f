"""Behaviour of a champion, from its trades and its equity: purchases, holding times, and gains by kind of market."""

from collections.abc import Iterator, Sequence
from statistics import median

import polars as pl

from flatwater_trading.panel.calendar import Calendar, infer_calendar
from flatwater_trading.recipe.trader_names import CHAMPION, EQUAL_WEIGHT

FAVOURITES = 3
"""Most instruments that are named as bought most often."""
TREND_DAYS = 20
"""Rows over which the market's trend and volatility are measured."""
EXIT_PHRASES = {
    "target": "at its target",
    "held": "after its holding time",
    "data_ended": "with its instrument's last price",
    "episode_end": "at the end of the stretch",
}
"""Phrases for the reasons of `market.exits`."""
MAXIMUM_DAYS_BY_MONTH, MAXIMUM_DAYS_BY_QUARTER = 400, 1200
"""Most calendar days that are reported by month, and by quarter; more days are reported by year."""


def describe_habits(trades: pl.DataFrame, equity: pl.DataFrame) -> str:
    """Describe in sentences the champion's purchases, holding times, and reasons of sales.

    Args:
        trades: log of trades, with entry_date, exit_date, instrument and, if it is known, reason.
        equity: equity with a row for each day (week, month), after a row for the opening cash.
    """
    days = max(1, len(equity) - 1)  # without the row for the opening cash
    purchase_days = trades["entry_date"].n_unique()
    days_held = [(last - first).days for first, last in trades.select("entry_date", "exit_date").rows()]
    counts = trades["instrument"].value_counts(sort=True).rows()
    favourites = ", ".join(f"{name} {count}" for name, count in counts[:FAVOURITES])
    sentences = f"It bought on {purchase_days} of {days} {calendar_of_equity(equity).units} and held each purchase for "
    sentences += f"{median(days_held):.0f} calendar days"
    sentences += f" (median). Bought most often: {favourites}"
    sentences += f", of {len(counts)} instruments." if len(counts) > FAVOURITES else "."
    if "reason" in trades.columns:
        reason_counts = trades["reason"].value_counts(sort=True).rows()
        endings = ", ".join(f"{EXIT_PHRASES.get(name, name)}: {count}" for name, count in reason_counts)
        sentences += f" Trades ended {endings}."
    return sentences


PERIOD_COLUMNS = ("period", CHAMPION, EQUAL_WEIGHT, "difference", "trades closed", "wins")


def period_rows(trades: pl.DataFrame, equity: pl.DataFrame) -> list[tuple[str, ...]]:
    """Return a row under `PERIOD_COLUMNS` for each month, quarter or year, depending on the number of days."""
    length, date_format = _period_length((equity["date"][-1] - equity["date"][0]).days)
    equity_with_period = equity.with_columns(pl.col("date").dt.truncate(length).alias("period"))
    # The last equity of each period. Without the first row, the opening cash, as its day may be in an earlier period.
    last_rows = (
        equity_with_period[1:].group_by("period", maintain_order=True).agg(pl.col(CHAMPION, EQUAL_WEIGHT).last())
    )
    trades_with_period = trades.with_columns(pl.col("exit_date").dt.truncate(length).alias("period"))
    previous_equity = equity.row(0, named=True)
    rows = []
    for period, champion, market in last_rows.select("period", CHAMPION, EQUAL_WEIGHT).rows():
        champion_return = champion / previous_equity[CHAMPION] - 1
        market_return = market / previous_equity[EQUAL_WEIGHT] - 1
        gains = trades_with_period.filter(pl.col("period") == period)["gain"]  # of the trades closed in the period
        wins = f"{(gains > 0).sum() / len(gains):.0%}" if len(gains) else ""
        rows.append(
            (
                period.strftime(date_format),
                *_signed_percents(champion_return, market_return, champion_return - market_return),
                str(len(gains)),
                wins,
            )
        )
        previous_equity = {CHAMPION: champion, EQUAL_WEIGHT: market}
    return rows


def _period_length(calendar_days: int) -> tuple[str, str]:
    """Return the length of a period as polars writes it (`1mo`, `3mo`, `1y`), and the format of its first date.

    Many calendar days are divided into longer periods: months, then quarters, then years.
    """
    if calendar_days <= MAXIMUM_DAYS_BY_MONTH:
        return "1mo", "%Y-%m"
    return ("3mo", "%Y-%m") if calendar_days <= MAXIMUM_DAYS_BY_QUARTER else ("1y", "%Y")


def calendar_of_equity(equity: pl.DataFrame) -> Calendar:
    """Infer the calendar of an equity's rows."""
    return infer_calendar(equity["date"].to_numpy())


def regime_titles(equity: pl.DataFrame) -> tuple[str, ...]:
    """Return the titles of `regime_rows`."""
    calendar = calendar_of_equity(equity)
    per_unit = f"a {calendar.unit}"
    return "market", calendar.units, f"champion, {per_unit}", f"{EQUAL_WEIGHT}, {per_unit}", "difference"


def regime_rows(equity: pl.DataFrame) -> list[tuple[str, ...]]:
    """Return the champion's and the market's mean return by kind of market: after a rise, after a fall, calm, restless.

    The market is equal weight, which holds equal parts of all instruments. Its `TREND_DAYS` days before a day determine
    the day's kind, so the kind is known before the day begins.

    Args:
        equity: equity of the traders, with a row for each day.

    Returns:
        Rows under `regime_titles`, one for each kind; empty if there are too few days.
    """
    units = calendar_of_equity(equity).units
    change = pl.col(CHAMPION, EQUAL_WEIGHT).pct_change()
    days = equity.select(
        change,
        # shift(1): a day's own return must not determine its kind.
        trend=(pl.col(EQUAL_WEIGHT) / pl.col(EQUAL_WEIGHT).shift(TREND_DAYS) - 1).shift(1),
        volatility=pl.col(EQUAL_WEIGHT).pct_change().rolling_std(TREND_DAYS).shift(1),
    ).drop_nulls()
    # Means over fewer days would say nothing about a kind of market.
    if len(days) < TREND_DAYS:
        return []
    median_volatility = days["volatility"].median()
    kinds = (
        (f"rose in the {TREND_DAYS} {units} before", pl.col("trend") > 0),
        (f"fell in the {TREND_DAYS} {units} before", pl.col("trend") <= 0),
        ("calmer than usual", pl.col("volatility") <= median_volatility),
        ("more restless than usual", pl.col("volatility") > median_volatility),
    )
    return list(_market_rows(days, kinds))


def _market_rows(days: pl.DataFrame, kinds: Sequence[tuple[str, pl.Expr]]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each kind of market that occurred: name, days, mean return of champion and market, difference.

    Args:
        days: returns of champion and market, trend and volatility.
        kinds: name of each kind, and the condition by which a day is of it.
    """
    for name, is_of_kind in kinds:
        days_of_kind = days.filter(is_of_kind)
        if len(days_of_kind):
            champion, market = days_of_kind.select(CHAMPION, EQUAL_WEIGHT).mean().row(0)
            yield name, str(len(days_of_kind)), *_signed_percents(champion, market, champion - market, digits=2)


def _signed_percents(*shares: float, digits: int = 1) -> list[str]:
    return [f"{share:+.{digits}%}" for share in shares]
