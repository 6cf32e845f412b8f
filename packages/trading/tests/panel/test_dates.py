"""Dates as vendors write them, decided from the whole column or asked for."""

import datetime as dt
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatwater_trading.panel.dates import DateOrder, parse_dates
from flatwater_watch.errors import DataError

FILE = Path("p.csv")
DAY = dt.datetime(2024, 3, 31, 20, 30)  # noqa: DTZ001  (zones are the subject of tests below)


def parse_cells(*cells: object, order: DateOrder | None = None) -> list[dt.date]:
    return parse_dates(FILE, pl.Series("date", cells), order).to_list()


@pytest.mark.parametrize(
    "text",
    [
        "2024-03-31", "2024/3/31", "20240331", "31.03.2024", "31.3.2024", "03/31/2024", "31/03/2024", "3-31-2024",
        "31-Mar-2024", "31 March 2024", "Mar 31, 2024", "March 31 2024", "2024-03-31 16:00", "2024-03-31T16:00:00.000Z",
        "03/31/2024 04:00 PM", "2024-03-31 16:00:00-04:00",
    ],
)  # fmt: skip
def test_a_day_in_any_form(text: str) -> None:
    assert parse_cells(text) == [DAY.date()]


@pytest.mark.parametrize("number", [1711917000, 1711917000_000, 1711917000_000_000, 1711917000_000_000_000, 20240331])
@pytest.mark.parametrize("kind", [pl.Int64, pl.String])
def test_numbers_since_1970(number: int, kind: type[pl.DataType], caplog: pytest.LogCaptureFixture) -> None:
    assert parse_dates(FILE, pl.Series("date", [number]).cast(kind)).to_list() == [DAY.date()]
    assert ("1970" in caplog.text) == (number > 20240331)


def test_seconds_among_milliseconds_are_refused() -> None:
    with pytest.raises(DataError, match=r"row 2, column date: 1711917000 .*2013-03-01"):
        parse_cells(1711917000_000, 1711917000)


@given(st.lists(st.dates(dt.date(1900, 1, 1), dt.date(2199, 12, 31)), min_size=1), st.sampled_from(["mdy", "dmy"]))
def test_one_number_above_12_decides_and_none_is_never_guessed(days: list[dt.date], order: DateOrder) -> None:
    text = [
        f"{d.month:02}/{d.day:02}/{d.year}" if order == "mdy" else f"{d.day:02}/{d.month:02}/{d.year}" for d in days
    ]
    assert parse_cells(*text, order=order) == days
    if any(day.day > 12 for day in days):
        assert parse_cells(*text) == days
    else:
        with pytest.raises(DataError, match=r"row 1, column date: .*--dates mdy .*--dates dmy"):
            parse_cells(*text)


def test_orders_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(DataError, match=r"31/01/2024 \(row 3\) .*day, month, year.*02/28/2024 \(row 2\)"):
        parse_cells("01/02/2024", "02/28/2024", "31/01/2024")
    with pytest.raises(DataError, match=r"row 1, column date: 02/28/2024 \(row 1\) .*month, day, year"):
        parse_cells("02/28/2024", order="dmy")
    with pytest.raises(DataError, match=r"year, month, day.*--dates dmy .*day, month, year"):
        parse_cells("2024-01-01", order="dmy")


def test_one_form_for_a_column() -> None:
    with pytest.raises(DataError, match=r"row 2, column date: '03/31/2024' .*\(row 1 .*'2024-03-30'\)"):
        parse_cells("2024-03-30", "03/31/2024")
    with pytest.raises(DataError, match=r"row 2, column date: '31-Foo-2024' .*2013-03-01"):
        parse_cells("31-Mar-2024", "31-Foo-2024")


def test_a_time_with_a_zone_gives_its_local_day(caplog: pytest.LogCaptureFixture) -> None:
    zoned = pl.Series("date", [DAY]).dt.replace_time_zone("America/New_York")  # in Greenwich it is April already
    assert parse_dates(FILE, zoned).to_list() == [DAY.date()]
    assert "zone (America/New_York)" in caplog.text
    assert parse_cells("2024-03-31T20:30:00-04:00", "2024-11-30T20:30:00-05:00") == [DAY.date(), dt.date(2024, 11, 30)]
    assert "zone (-04:00, -05:00)" in caplog.text


def test_times_without_a_zone_are_dropped_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    assert parse_cells("2024-03-31 20:30:00") == [DAY.date()]
    assert not caplog.text
