"""Calendars: the number of a panel's rows in a year, inferred from its dates alone.

All annualised figures (Sharpe ratio, alpha, an interval, turnover, 12-1 momentum) use this number. The unit of a row is
a day, a week, a month, a quarter, a year, or, if the dates are irregular, a period.
"""

from dataclasses import dataclass

import numpy as np

DAYS_OF_A_YEAR = 365.2425  # the mean Gregorian year
TRADING_DAYS, TRADING_WEEKDAYS = 252, 5
"""Trading days of a year and of a week, on exchanges that close on weekends; only the first is without holidays."""
EVERY_DAY, DAYS_OF_A_WEEK = 365, 7
RATE_TOLERANCE = 0.12
"""Largest relative distance of a file's rows in a year from those of days, weeks, months or quarters: holidays and
missing rows cause a few percent. Weeks and fortnights, months and quarters differ by 50 % and more."""
HOLE_PAUSE_FACTOR = 3
"""Multiple of the median pause above which a pause is a hole in the file, and is not counted."""
IRREGULAR = "period"
"""Name of a row where the dates are irregular."""
MINIMUM_DATES = 10
"""Least number of daily rows for counting weekdays: two weeks."""


@dataclass(frozen=True, slots=True)
class Calendar:
    """The frequency of a panel's rows."""

    name: str
    """Name: `daily`, `daily, weekends too`, `weekly`, `monthly`, `quarterly`, `yearly` or `irregular`."""
    a_year: int
    """Rows of a year, 1 or more."""
    unit: str
    """Name of a row: `day`, `week`, `month`, `quarter`, `year` or `period`."""

    @property
    def units(self) -> str:
        """The unit in the plural."""
        return f"{self.unit}s"

    @property
    def in_words(self) -> str:
        """Phrase such as `monthly: 12 periods a year`."""
        return f"{self.name}: {self.a_year} period{'s' if self.a_year > 1 else ''} a year"


DAILY = Calendar("daily", TRADING_DAYS, "day")
_KNOWN_CALENDARS = (
    DAILY,
    Calendar("daily, weekends too", EVERY_DAY, "day"),
    Calendar("weekly", 52, "week"),
    Calendar("monthly", 12, "month"),
    Calendar("quarterly", 4, "quarter"),
    Calendar("yearly", 1, "year"),
)


def infer_calendar(dates: np.ndarray) -> Calendar:
    """Infer the frequency of dates.

    Dates are daily if the usual pause is one day and some weekdays have no rows: 252 rows a year for five weekdays, in
    proportion for other numbers. Otherwise the mean pause without holes determines the number of rows in a year: daily
    with weekends, weekly, monthly, quarterly or yearly within `RATE_TOLERANCE`, else irregular with this number.

    Args:
        dates: days [T], strictly increasing. Fewer than two are taken as daily.
    """
    days = dates.astype("datetime64[D]").astype(np.int64)
    if len(days) < 2:  # noqa: PLR2004  (one day has no pause)
        return DAILY
    pauses = np.diff(days)
    # The median, which weekends and holes in the file do not change.
    usual_pause = float(np.median(pauses))
    if usual_pause <= 1:  # daily rows
        # Too few days show no pattern of weekdays, and count as a week of trading days.
        weekdays = _count_regular_weekdays(days) if len(days) >= MINIMUM_DATES else TRADING_WEEKDAYS
        if weekdays < DAYS_OF_A_WEEK:
            return _weekday_calendar(weekdays)
    # Pauses that are much longer than usual are holes. The mean, as the median of monthly pauses, 31 days, would count
    # 11.8 months a year.
    mean_pause = float(pauses[pauses <= HOLE_PAUSE_FACTOR * usual_pause].mean())
    return _calendar_by_count(DAYS_OF_A_YEAR / mean_pause)


def calendar_of_year(a_year: int) -> Calendar:
    """Return the calendar with `a_year` rows a year, for readers of a result, which have no dates."""
    return next(
        (calendar for calendar in _KNOWN_CALENDARS if calendar.a_year == a_year),
        Calendar("irregular", a_year, IRREGULAR),
    )


def _calendar_by_count(count: float) -> Calendar:
    """Return the known calendar whose rows a year are within `RATE_TOLERANCE` of `count`; else an irregular one."""
    # The distance is that of the logarithms, so half as many rows are as far away as twice as many.
    nearest = min(_KNOWN_CALENDARS, key=lambda calendar: abs(np.log(count / calendar.a_year)))
    is_near = abs(count / nearest.a_year - 1) <= RATE_TOLERANCE
    return nearest if is_near else calendar_of_year(max(1, round(count)))


def _count_regular_weekdays(days: np.ndarray) -> int:
    """Count the weekdays that have at least half as many rows as the most frequent weekday."""
    # Days are numbers since 1970, so that the remainder tells the weekday.
    rows_by_weekday = np.bincount(days % DAYS_OF_A_WEEK, minlength=DAYS_OF_A_WEEK)
    return int((rows_by_weekday >= rows_by_weekday.max() / 2).sum())


def _weekday_calendar(weekdays: int) -> Calendar:
    """Return the calendar of an exchange that opens this many days a week, scaled from the five-day week."""
    if weekdays == TRADING_WEEKDAYS:
        return DAILY
    name = f"daily, {weekdays} days a week"
    return Calendar(name, round(TRADING_DAYS * weekdays / TRADING_WEEKDAYS), "day")
