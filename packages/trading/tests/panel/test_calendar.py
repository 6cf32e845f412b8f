"""How many rows make a year: from dates alone, whatever their holidays, holes and ends of months."""

from typing import Any

import numpy as np
import pytest

from flatwater_trading.panel.calendar import DAILY, calendar_of_year, infer_calendar

FIRST = np.datetime64("2001-03-07")


def days(count: Any) -> Any:
    """Differences of dates."""
    return np.asarray(count, "int64").astype("timedelta64[D]")


def weekdays(count: int, mask: str) -> np.ndarray:
    return np.busday_offset(FIRST, np.arange(count), roll="forward", weekmask=mask)


def every_day(count: int) -> np.ndarray:
    return FIRST + days(np.arange(count))


def month_ends(count: int, months: int = 1, *, business: bool = False) -> np.ndarray:
    first = np.datetime64("2001-01") + (months * np.arange(1, count + 1)).astype("timedelta64[M]")
    last = first.astype("datetime64[D]") - days(1)
    return np.busday_offset(last, 0, roll="backward") if business else last


def without(dates: np.ndarray, share: float, seed: int = 0) -> np.ndarray:
    return dates[np.random.default_rng(seed).random(len(dates)) >= share]


FRIDAYS = np.datetime64("2001-03-09") + days(7 * np.arange(200))
CASES = {
    "exchange": (weekdays(800, "1111100"), "daily", 252),
    "two weeks": (weekdays(10, "1111100"), "daily", 252),
    "three days": (weekdays(3, "1111100"), "daily", 252),
    "holidays": (without(weekdays(800, "1111100"), 0.05), "daily", 252),
    "years closed": (np.r_[weekdays(300, "1111100"), weekdays(300, "1111100") + days(3003)], "daily", 252),
    "Sunday to Thursday": (weekdays(500, "1111001"), "daily", 252),
    "one Saturday": (np.sort(np.r_[weekdays(300, "1111100"), np.datetime64("2001-06-09")]), "daily", 252),
    "crypto": (every_day(700), "daily, weekends too", 365),
    "crypto, two weeks": (every_day(14), "daily, weekends too", 365),
    "crypto, holes": (without(every_day(700), 0.1), "daily, weekends too", 365),
    "six days": (weekdays(500, "1111110"), "daily, 6 days a week", 302),
    "Fridays": (FRIDAYS, "weekly", 52),
    "before Good Friday on Thursdays": (FRIDAYS - days(np.arange(200) % 26 == 3), "weekly", 52),
    "weeks with holes": (without(FRIDAYS, 0.05), "weekly", 52),
    "month ends": (month_ends(60), "monthly", 12),
    "business month ends": (month_ends(240, business=True), "monthly", 12),
    "three months": (month_ends(3), "monthly", 12),
    "months with holes": (without(month_ends(240), 0.05), "monthly", 12),
    "quarter ends": (month_ends(40, 3), "quarterly", 4),
    "business quarter ends": (month_ends(40, 3, business=True), "quarterly", 4),
    "year ends": (month_ends(20, 12, business=True), "yearly", 1),
    "fortnights": (FRIDAYS[::2], "irregular", 26),
    "Monday, Wednesday, Friday": (weekdays(300, "1010100"), "irregular", 156),
    "every other month": (month_ends(60, 2), "irregular", 6),
    "half-years": (month_ends(30, 6), "irregular", 2),
    "one day": (every_day(1), "daily", 252),
    "none": (every_day(0), "daily", 252),
}


@pytest.mark.parametrize("case", CASES)
def test_rows_of_a_year(case: str) -> None:
    dates, name, a_year = CASES[case]
    found = infer_calendar(dates)
    assert (found.name, found.a_year) == (name, a_year)


@pytest.mark.parametrize("case", [case for case, (_, name, _) in CASES.items() if "6 days" not in name])
def test_a_calendar_is_known_by_its_rows_of_a_year(case: str) -> None:
    """So that a result says enough by that number."""
    found = infer_calendar(CASES[case][0])
    assert calendar_of_year(found.a_year) == found


@pytest.mark.parametrize("start", range(0, 200, 13))
def test_a_part_has_the_calendar_of_the_whole(start: int) -> None:
    """A study cuts its panel into folds."""
    for dates in (weekdays(300, "1111100"), every_day(300), FRIDAYS, month_ends(200, business=True)):
        assert infer_calendar(dates[start : start + 30]) == infer_calendar(dates) or start + 3 > len(dates)


def test_in_words() -> None:
    assert infer_calendar(month_ends(30)).in_words == "monthly: 12 periods a year"
    assert infer_calendar(month_ends(9, 12)).in_words == "yearly: 1 period a year"
    assert (DAILY.unit, DAILY.units) == ("day", "days")
