"""Calendar days from dates as vendors write them; a whole column has the same form and order of day and month."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Literal

import polars as pl

from flatwater_trading.panel.file_rows import row_number
from flatwater_trading.panel.notes import note_about_file
from flatwater_trading.panel.parsing import to_text
from flatwater_watch.errors import DataError
from flatwater_watch.sanitize import short_repr

DateOrder = Literal["mdy", "dmy", "ymd"]
"""The order of month, day and year in dates that are written as numbers."""

_ORDER_PHRASES = {"mdy": "month, day, year", "dmy": "day, month, year", "ymd": "year, month, day"}
_MONTHS = dict(zip("jan feb mar apr may jun jul aug sep oct nov dec".split(), range(1, 13), strict=True))  # noqa: SIM905  (readable)
_TIME = r"[T ]\s*\d{1,2}:\d{2}.*$"  # ` 9:30:05 PM` or `T09:30+01:00`: the time of day, and all after it
# The parts of such a time as groups: h(our), m(inute), s(econd), and whether am or pm.
_CLOCK = r"[T ]\s*(?<h>\d{1,2}):(?<m>\d{2})(?::(?<s>\d{2}))?(?:[.,]\d+)?\s*(?:(?<half>[AaPp])[Mm])?"
_ZONE = r"(Z|[+-]\d{2}:?\d{2}|[A-Z]{2,4}T?|\[.*\])$"  # `Z`, `+01:00`, `CET` or `[Europe/Berlin]`
_UNITS = (("s", 11), ("ms", 14), ("us", 17), ("ns", 19))
"""Units of numbers since 1970, each with the most digits of a column in that unit."""


@dataclass(frozen=True, slots=True)
class _DateForm:
    """A way to write a day."""

    pattern: str
    """Pattern of a cell, with groups y, m (or name) and d; or with a and b if the order has to be found."""
    order: DateOrder | None
    """Order of the parts; None if the pattern leaves it open."""


_FORMS = (
    _DateForm(r"^(?<y>\d{4})(?<m>\d{2})(?<d>\d{2})$", "ymd"),
    _DateForm(r"^(?<y>\d{4})[-/.](?<m>\d{1,2})[-/.](?<d>\d{1,2})$", "ymd"),
    _DateForm(r"^(?<d>\d{1,2})\.(?<m>\d{1,2})\.(?<y>\d{4})$", "dmy"),
    _DateForm(r"^(?<a>\d{1,2})[-/](?<b>\d{1,2})[-/](?<y>\d{4})$", None),
    _DateForm(r"^(?<d>\d{1,2})[-/. ](?<name>[A-Za-z]{3})[a-z]*[-/., ]+(?<y>\d{4})$", "dmy"),
    _DateForm(r"^(?<name>[A-Za-z]{3})[a-z]*[. ]+(?<d>\d{1,2}),? +(?<y>\d{4})$", "mdy"),
)
FIRST_YEAR = 1973
"""Year of the smallest number that `_EPOCH` matches: 100,000,000 seconds (9 digits) are 3 March 1973."""
_EPOCH = r"^\d{9,19}$"  # from 1973 in seconds to today in nanoseconds


def parse_dates(source: Path, column: pl.Series, order: DateOrder | None = None) -> pl.Series:
    """Parse a column to calendar days; a time is dropped, and a time with a zone gives its local day, which is noted.

    Forms: 2013-03-01, 2013/03/01, 20130301, 31.12.2013, 03/31/2013, 31-Mar-2013, `Mar 31, 2013`, and seconds to
    nanoseconds since 1970. The whole column must have the same form. If a form does not tell day from month, a row with
    a number above 12 determines the order of all rows.

    Args:
        source: file, for messages.
        column: column of text, numbers, or dates.
        order: order of month, day and year, for numbers that leave it open.

    Raises:
        DataError: a date is missing or unreadable (the message names the first such row), or the order is open.
    """
    if column.dtype == pl.Date:
        days = column
    elif isinstance(column.dtype, pl.Datetime):
        days = column.dt.date()  # in the column's zone: a cast to dates would take the UTC day
        _note_zones(source, column.name, {column.dtype.time_zone} - {None})  # no zone leaves the set empty
    else:
        if column.dtype.is_float():
            # A column of whole numbers with holes is float: 20240102.0 would not be read as a date.
            column = column.cast(pl.Int64, strict=False)
        days = _parse_text_dates(source, column, to_text(source, column), order)
    if days.null_count():
        row = int(days.is_null().arg_true()[0])
        cell = "an empty cell" if column[row] is None else short_repr(column[row])
        raise DataError(
            f"{source}: row {row_number(row)}, column {column.name}: {cell} is not a date. Write 2013-03-01."
        )
    return days


def seconds_of_day(column: pl.Series) -> pl.Series | None:
    """Return the seconds since midnight of each row, as written; None if no row has a time other than midnight.

    Args:
        column: column of text, numbers, or dates, as for `parse_dates`.
    """
    if isinstance(column.dtype, pl.Datetime):
        stamps = column
    elif column.dtype == pl.Date or column.dtype.is_nested() or column.dtype in {pl.Binary, pl.Object}:
        return None
    else:
        # A column of whole numbers with holes is float.
        text = (column.cast(pl.Int64, strict=False) if column.dtype.is_float() else column).cast(pl.String)
        if text.null_count() or not text.str.contains(_EPOCH).all():
            return _seconds_in_text(text)
        _, stamps = _stamps_since_1970(text)
    # Cast, as polars gives Int8, which cannot hold the seconds of an hour.
    hours = stamps.dt.hour().cast(pl.Int64)
    minutes = stamps.dt.minute().cast(pl.Int64)
    seconds = stamps.dt.second().cast(pl.Int64)
    seconds_since_midnight = (3600 * hours + 60 * minutes + seconds).fill_null(0)
    # The largest is 0 if all times are midnight.
    return seconds_since_midnight if seconds_since_midnight.max() else None


def _seconds_in_text(text: pl.Series) -> pl.Series | None:
    """Return the seconds since midnight of text such as `2013-03-01 9:30:05 PM`; None if all are midnight."""
    parts = text.str.extract_groups(_CLOCK).struct.unnest()
    # 12 am is hour 0 and 12 pm hour 12.
    hour_of_half = pl.col("h").cast(pl.Int64) % 12 + 12 * (pl.col("half").str.to_lowercase() == "p")
    hour = pl.when(pl.col("half").is_null()).then(pl.col("h").cast(pl.Int64)).otherwise(hour_of_half)
    second = pl.col("s").cast(pl.Int64).fill_null(0)
    seconds_since_midnight = parts.select(3600 * hour + 60 * pl.col("m").cast(pl.Int64) + second).to_series()
    return seconds_since_midnight.fill_null(0) if seconds_since_midnight.max() else None


def _parse_text_dates(source: Path, column: pl.Series, text: pl.Series, order: DateOrder | None) -> pl.Series:
    """Parse dates in text to days, by the form of the first readable cell; null for a cell that is not a day.

    Args:
        source: file, for messages.
        column: column as the file has it, for messages.
        text: column as text, stripped of spaces.
        order: order of month, day and year, for numbers that leave it open.

    Raises:
        DataError: a cell has another form than the first, or the order is open or contradicts `order`.
    """
    if text.str.contains(_EPOCH).all() and text.null_count() == 0:
        return _dates_from_epoch(source, text)
    # Zones are read before times are cut off. In `2013-03-01 09:30 CET` the zone follows the time, so its pattern takes
    # the place of the end of `_TIME`.
    zones = text.str.extract(_TIME.replace(".*$", r".*?\s*") + _ZONE, 1).drop_nulls().unique().to_list()
    _note_zones(source, column.name, set(zones))
    day_text = text.str.replace(_TIME, "").str.strip_chars()
    form, first_row = _find_date_form(day_text)
    if form is None:
        return pl.repeat(None, len(day_text), dtype=pl.Date, eager=True)
    # The whole column must have one form, as a cell of another form may have day and month exchanged.
    is_other_form = ~day_text.str.contains(form.pattern) & day_text.is_not_null()
    if is_other_form.any():
        row = int(is_other_form.arg_true()[0])
        raise DataError(
            f"{source}: row {row_number(row)}, column {column.name}: {short_repr(column[row])} is not a date. Write "
            f"2013-03-01, and all rows alike (row {row_number(first_row)} has {short_repr(day_text[first_row])})."
        )
    date_parts = day_text.str.extract_groups(form.pattern).struct.unnest()
    if form.order is None:
        # The form has the groups `a` and `b`: month and day, or day and month.
        date_order = _find_date_order(source, day_text.name, date_parts, order)
        date_parts = date_parts.rename({"a": "m", "b": "d"} if date_order == "mdy" else {"a": "d", "b": "m"})
    elif order is not None and order != form.order:
        raise DataError(
            f"{source}: row {row_number(first_row)}, column {column.name}: {short_repr(day_text[first_row])} has "
            f"{_ORDER_PHRASES[form.order]}, and --dates {order} asks for {_ORDER_PHRASES[order]}. Leave --dates out."
        )
    if "name" in date_parts.columns:
        # `Mar` -> 3
        numbers = pl.col("name").str.to_lowercase().replace_strict(_MONTHS, default=None, return_dtype=pl.Int64)
        date_parts = date_parts.with_columns(m=numbers.cast(pl.String))
    iso = pl.concat_str(pl.col("y"), pl.col("m").str.zfill(2), pl.col("d").str.zfill(2), separator="-")
    # strict=False: 2024-02-30 becomes null, and the caller names its row.
    return date_parts.select(iso.str.strptime(pl.Date, "%Y-%m-%d", strict=False)).to_series()


def _find_date_form(text: pl.Series) -> tuple[_DateForm | None, int]:
    """Return the form of the first readable cell, and its row; None and 0 if no cell is readable."""
    # For each form that some cell has: the first row with it.
    matches: list[tuple[int, _DateForm | None]] = []
    for form in _FORMS:
        rows = text.str.contains(form.pattern).fill_null(value=False).arg_true()
        if len(rows):
            matches.append((int(rows[0]), form))
    first_row, first_form = min(matches, key=lambda match: match[0]) if matches else (0, None)
    return first_form, first_row


def _find_date_order(source: Path, column: str, date_parts: pl.DataFrame, order: DateOrder | None) -> DateOrder:
    """Find the order of a column such as 03/31/2024, by a number above 12 or by the order that the user gave.

    Args:
        source: file, for messages.
        column: name of the column, for messages.
        date_parts: text in the columns `a`, `b` and `y`: the first two numbers of each date, and its year.
        order: the order that the user gave, if any; it counts if no number is above 12, and no row may contradict it.

    Raises:
        DataError: rows contradict each other or `order`, or nothing determines the order.
    """
    # A number above 12 is a day: as `a`, the day comes first; as `b`, the month comes first.
    is_above_12 = date_parts.select(pl.col("a", "b").cast(pl.Int64) > 12)  # noqa: PLR2004  (months)
    deciding_rows: dict[DateOrder, pl.Series] = {"dmy": is_above_12["a"].arg_true(), "mdy": is_above_12["b"].arg_true()}
    # Order -> first row that decides for it; an order without such a row is left out.
    first_rows = {date_order: int(rows[0]) for date_order, rows in deciding_rows.items() if len(rows)}

    def cell(row: int) -> str:
        """Return the cell of a row for messages, such as `3/31/2024 (row 7)`."""
        return f"{date_parts['a'][row]}/{date_parts['b'][row]}/{date_parts['y'][row]} (row {row_number(row)})"

    if len(first_rows) == len(deciding_rows):  # both orders are required
        raise DataError(
            f"{source}: column {column}: {cell(first_rows['dmy'])} can only be {_ORDER_PHRASES['dmy']}, and "
            f"{cell(first_rows['mdy'])} only {_ORDER_PHRASES['mdy']}. Write all of them in one order, best as "
            "2013-03-01."
        )
    if first_rows:
        found_order, row = next(iter(first_rows.items()))  # the only one
        if order not in {None, found_order}:
            raise DataError(
                f"{source}: row {row_number(row)}, column {column}: {cell(row)} can only be "
                f"{_ORDER_PHRASES[found_order]}, and --dates {order} asks for another order. Leave --dates out."
            )
        return found_order
    if order in deciding_rows:  # not "ymd", as the year comes last
        return order
    raise DataError(
        f"{source}: row {row_number(0)}, column {column}: {cell(0)} may have the month first or the day, and no row "
        "has a number above 12 that would decide it. Add --dates mdy (month first) or --dates dmy (day first)."
    )


def _dates_from_epoch(source: Path, text: pl.Series) -> pl.Series:
    """Return the UTC dates of numbers since 1970 and note the unit.

    Dates before `FIRST_YEAR` become null: such a number has fewer digits than the rest of its column, so it is in
    another unit.
    """
    unit, stamps = _stamps_since_1970(text)
    note_about_file(source, f"column {text.name}: numbers since 1970 in {unit}: a day is the date in Greenwich.")
    days = stamps.dt.date()
    return days.set(days.dt.year() < FIRST_YEAR, None)


def _stamps_since_1970(text: pl.Series) -> tuple[str, pl.Series]:
    """Return the unit of numbers since 1970 (`s`, `ms`, `us` or `ns`), and their times in UTC."""
    numbers = text.cast(pl.Int64, strict=False)  # null for more digits than an Int64 has
    digits = text.str.len_chars()
    # The first unit in which no number of the column is too long: 10 digits are seconds, 13 milliseconds, and so on.
    unit = next(unit for unit, most in _UNITS if (digits <= most).all())
    # polars has no unit of seconds.
    times = numbers * 1000 if unit == "s" else numbers
    return unit, times.cast(pl.Datetime("ms" if unit in {"s", "ms"} else unit))  # type: ignore[arg-type]  # "us" or "ns"


def note_future_days(source: Path, days: pl.Series) -> None:
    """Note that a file has days that have not come yet: a year was read wrongly, or its rows are no prices."""
    # A day more than today's here, as the zone of the prices may be ahead.
    newest, today = days.max(), datetime.now(UTC).date()
    if isinstance(newest, date) and newest > today + timedelta(days=1):
        note_about_file(source, f"the newest day is {newest}, and today is {today}. Check the years of the dates.")


def _note_zones(source: Path, column: str, zones: set[str | None]) -> None:
    """Note that a column has times in these zones, of which the local date is taken; nothing without a zone."""
    if zones:
        zone_names = ", ".join(sorted(str(zone) for zone in zones)[:3])
        note_about_file(
            source,
            f"column {column}: time stamps with a zone ({zone_names}): a day is the local date, as it is written.",
        )
