"""Import of prices from a Parquet or CSV file or a workbook, long or wide, to a panel. Strict: nothing is repaired.

Long form has a row for each instrument and day: symbol, date, open, high, low, close, or the close alone. Wide form
has a row for each day: date, then `AAPL_close`, `AAPL.close` or `close_AAPL` and so on; or a single price for each
instrument, which is taken as its close. Names that vendors use are guessed (`naming`), other names are mapped by the
user. An adjusted close scales all prices of its row. A note names the columns that a panel does not use (volume). Row
numbers in errors are those of the file. See `dates` for the forms of dates, `parsing` for those of numbers.

Days are the union of the calendar days of all instruments. A missing price stays missing, in its own row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import polars as pl

from flatwater_trading.panel.adjusting import (
    RAW_CLOSE,
    note_far_prices,
    note_unused_columns,
)
from flatwater_trading.panel.bars import Bars, to_daily_rows
from flatwater_trading.panel.calendar import DAILY
from flatwater_trading.panel.checking import check_order, check_prices
from flatwater_trading.panel.csv_checks import check_rows, find_separator, refuse_unclosed_quote
from flatwater_trading.panel.custom_features import compute_custom_features, custom_features, file_column_names
from flatwater_trading.panel.dates import DateOrder, note_future_days
from flatwater_trading.panel.file_kinds import SHEET_SUFFIXES, SUFFIXES, UNPACK_COMMANDS, file_kind
from flatwater_trading.panel.file_rows import numbering_of_a_file, set_preceding_rows
from flatwater_trading.panel.indicators import write_indicators_
from flatwater_trading.panel.list_columns import unpack_lists
from flatwater_trading.panel.naming import ColumnLayout, check_names, find_layout, join_header_rows, note_guesses
from flatwater_trading.panel.notes import LIKE_SPLITS, note_about_file, notes_at_the_end
from flatwater_trading.panel.oddities import oddity_texts
from flatwater_trading.panel.panel import FEATURES, PRICES, Panel, build_panel, investable_columns
from flatwater_trading.panel.parsing import Decimal, note_currencies, plain_numbers
from flatwater_trading.panel.sheets import read_sheet
from flatwater_trading.panel.table_forms import long_prices, wide_prices
from flatwater_trading.panel.unpacking import plain_text
from flatwater_watch.errors import DataError
from flatwater_watch.files.directory import expand_home
from flatwater_watch.files.regular_files import open_regular

CURRENCY_COLUMNS = ("currency", "ccy", "curr")
"""Names of columns that say the currency of a row's prices."""


@dataclass(frozen=True, slots=True, eq=False)
class ImportResult:
    """An imported panel, with guesses that should be checked before it is used."""

    panel: Panel
    layout: ColumnLayout
    """The columns of the file by their role."""


def import_panel(
    source: Path,
    *,
    investable: Sequence[str] | None = None,
    columns: Mapping[str, str] = MappingProxyType({}),
    dates: DateOrder | None = None,
    features: Sequence[str] = (),
    decimal: Decimal | None = None,
    sheet: str | None = None,
    bars: Bars | None = None,
) -> Panel:
    """Read prices and build a panel with its indicators; guesses, unused columns and odd moves are logged as warnings.

    `read_prices` describes the arguments in detail.

    Args:
        source: file (.parquet, .csv) or workbook.
        investable: instruments that may be traded, by name or pattern; None for all.
        columns: the file's names of columns by Flatwater's names; other columns are guessed.
        dates: order of day and month in 01/02/2024, if no row of the file determines it.
        features: own features: columns of the file, and functions such as `signals:alpha`.
        decimal: decimal mark of numbers in text; None to guess it.
        sheet: sheet of a workbook; None for the only sheet with a table.
        bars: way to reduce the rows of a day to one; None refuses prices of hours or minutes.

    Raises:
        DataError: the file cannot be used; the message names file, row, column and reason.
    """
    source = expand_home(source)
    import_result = read_prices(
        source,
        investable=investable,
        columns=columns,
        dates=dates,
        features=features,
        decimal=decimal,
        sheet=sheet,
        bars=bars,
    )
    note_guesses(source, import_result.layout)
    note_unused_columns(source, import_result.layout.unused)
    if jumps := oddity_texts(import_result.panel).get(LIKE_SPLITS):
        note_about_file(source, f"moves that look like splits: {jumps}")
    if (calendar := import_result.panel.calendar) != DAILY:
        note_about_file(source, f"{calendar.in_words}. What is said of a year counts with these.")
    return import_result.panel


def read_prices(
    source: Path,
    *,
    investable: Sequence[str] | None = None,
    columns: Mapping[str, str] = MappingProxyType({}),
    dates: DateOrder | None = None,
    features: Sequence[str] = (),
    decimal: Decimal | None = None,
    sheet: str | None = None,
    bars: Bars | None = None,
) -> ImportResult:
    """Read prices and build a panel with its indicators.

    The panel's columns are sorted by name for a file in long form; for a wide file they keep its order.

    Args:
        source: file (.parquet, .csv) or workbook (`file_kinds.SHEET_SUFFIXES`).
        investable: instruments that may be traded, by name or by patterns such as `ETF*`; None for all. Values of other
            instruments may have any sign.
        columns: the file's names of symbol, date, open, high, low, close and adj_close; missing names are guessed. In
            wide form with `*` for the instrument, as in `{"close": "*.last"}`; in lists by place, `{"close": "4"}`.
        dates: order of day and month in 01/02/2024, if no row of the file determines it.
        features: own features: columns of the file, and functions such as `signals:alpha` (`custom_features`).
        decimal: decimal mark of numbers in text; None to guess it.
        sheet: sheet of a workbook; None for the only sheet with a table.
        bars: way to reduce the rows of a day to one (`bars.Bars`); None refuses prices of hours or minutes.

    Raises:
        DataError: the file cannot be used; the message names file, row, column and reason.
    """
    with notes_at_the_end(), numbering_of_a_file():
        frame = _read_table(source, decimal, sheet)
        if frame.height == 0:
            raise DataError(f"{source}: the file has no rows. It needs one for each day (and instrument).")
        kept_columns = file_column_names(features)
        frame, mapping = unpack_lists(source, frame, columns, kept_columns)
        layout = find_layout(source, frame.columns, mapping, kept_columns)
        # Both return a row for each instrument and day.
        read_form = wide_prices if layout.wide_columns else long_prices
        prices = read_form(source, frame, layout, dates, kept_columns)
        prices = to_daily_rows(source, prices, frame[layout.roles["date"]], bars)
        # The order is checked first, as indicators and jumps below compare neighbouring rows.
        check_order(source, prices)
        investable_numbers = investable_columns(prices.instruments, investable)
        investable_names = tuple(prices.instruments[n] for n in investable_numbers)
        check_prices(source, prices, investable_names)
        _note_doubts(source, prices.frame, investable_names, frame.select(layout.unused))
        # Called last, as the user's function takes prices that have passed all checks.
        table, origins = compute_custom_features(source, prices.frame, features)
        return ImportResult(_build_from_table(prices.instruments, table, investable_names, origins), layout)


def _note_doubts(
    source: Path, prices: pl.DataFrame, investable_names: Sequence[str], unused_columns: pl.DataFrame
) -> None:
    """Note what is probably a mistake in prices that can be read.

    Args:
        source: file, for messages.
        prices: table of symbol, date, open, high, low and close.
        investable_names: instruments that can be bought.
        unused_columns: columns of the file that have no role.
    """
    note_far_prices(source, prices, investable_names)
    note_future_days(source, prices["date"])
    _note_currency_column(source, unused_columns)


def _note_currency_column(source: Path, unused_columns: pl.DataFrame) -> None:
    """Note the currencies of a column such as `ccy`, if it names several; `unused_columns` have no role."""
    for name in unused_columns.columns:
        if name.strip().lower() in CURRENCY_COLUMNS:
            currencies = unused_columns[name].cast(pl.String).str.strip_chars().drop_nulls().unique().sort().to_list()
            note_currencies(source, [currency for currency in currencies if currency])


def _read_table(source: Path, decimal: Decimal | None, sheet: str | None) -> pl.DataFrame:
    """Read the file as a table, by its suffix: a sheet, Parquet with its types, or CSV with all fields as text.

    Raises:
        DataError: the file is of another kind or cannot be read, or `sheet` is given and the file is not a workbook.
    """
    kind = _find_kind(source, sheet)
    try:
        with open_regular(source) as file:
            if kind in SHEET_SUFFIXES:
                return read_sheet(source, file, sheet, decimal)
        # polars opens the path itself; open_regular above has refused a device or a pipe, on which polars would wait.
        if kind == ".parquet":
            return pl.read_parquet(source)
        with plain_text(source) as text:
            return _read_text(source, text, decimal)
    except pl.exceptions.NoDataError as error:
        raise DataError(
            f"{source}: the file is empty. Give one with a line of names and a line for each day."
        ) from error
    except OSError as error:
        raise DataError(f"{source}: the file cannot be read: {error.strerror or error}. Check the path.") from error
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = str(error).strip().split("\n", maxsplit=1)[0]  # polars adds advice for programmers
        if "utf-8" in reason.lower():
            reason = "it is not UTF-8 throughout. Save it as UTF-8 (in Excel: CSV UTF-8)."
        raise DataError(f"{source}: the file cannot be read as {kind[1:]}: {reason}") from error


def _find_kind(source: Path, sheet: str | None) -> str:
    """Return the suffix of a file that can be imported.

    Raises:
        DataError: the file is of another kind, or `sheet` is given and the file is not a workbook.
    """
    kind = file_kind(source)
    if kind not in SUFFIXES:
        remedy = "Save it as one of these in the program that wrote it"
        if kind in UNPACK_COMMANDS:
            remedy = f"Unpack it first ({UNPACK_COMMANDS[kind]} {source.name})"
        raise DataError(f"{source}: a panel is imported from {', '.join(SUFFIXES)}, not from {kind!r}. {remedy}.")
    if sheet is not None and kind not in SHEET_SUFFIXES:
        raise DataError(f"--sheet {sheet}: {source} has no sheets. Leave --sheet out.")
    return kind


def _read_text(source: Path, text: Path, decimal: Decimal | None) -> pl.DataFrame:
    """Read all fields as text, so that numbers are parsed later and an error can name their row and column."""
    separator = find_separator(text)
    check_rows(source, separator, text=text)
    try:
        return _read_fields(source, text, separator, decimal)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        refuse_unclosed_quote(source, text)  # the likeliest reason
        raise


def _read_fields(source: Path, text: Path, separator: str, decimal: Decimal | None) -> pl.DataFrame:
    """Read the fields of a text whose rows are equally long, under the names of one or of several header rows."""
    # Three rows: the most that can be header rows.
    top = pl.read_csv(text, infer_schema=False, separator=separator, has_header=False, n_rows=3).fill_null("")
    # Two or three header rows are joined to one name for each column. With a single header row, names are None, and
    # polars takes those of that row.
    names, header_rows = join_header_rows(top.rows()) or (None, 1)
    check_names(source, names or top.row(0))
    set_preceding_rows(header_rows)
    frame = pl.read_csv(
        text, infer_schema=False, separator=separator, new_columns=names, skip_rows_after_header=header_rows - 1
    )
    return plain_numbers(source, frame, separator=separator, decimal=decimal)


def _build_from_table(
    instruments: tuple[str, ...], table: pl.DataFrame, investable: Sequence[str], origins: Mapping[str, str]
) -> Panel:
    """Scatter the rows of a table over days and instruments, compute the indicators, and build the panel.

    Args:
        instruments: names [N], in the order of the panel's columns.
        table: symbol, date, prices, own features, and `RAW_CLOSE` if prices are adjusted; each day at most once.
        investable: names of the instruments that can be bought.
        origins: origins of own features by name; a feature with an indicator's name replaces the indicator.
    """
    dates = table["date"].unique().sort().to_numpy().astype("datetime64[D]")
    # The panel's row of each calendar day from the first to the last: searching each date would take longer.
    row_of_day = np.zeros(int((dates[-1] - dates[0]).astype(int)) + 1, dtype=np.int64)
    row_of_day[(dates - dates[0]).astype(int)] = np.arange(len(dates))
    day = row_of_day[(table["date"].to_numpy().astype("datetime64[D]") - dates[0]).astype(int)]
    column = table["symbol"].cast(pl.Enum(instruments)).to_physical().to_numpy()
    features = (*FEATURES, *custom_features(origins))
    values = np.full((len(dates), len(instruments), len(features)), np.nan, dtype=np.float32)
    for name in PRICES:
        values[day, column, features.index(name)] = table[name].to_numpy()
    write_indicators_(values)
    # After the indicators, as an own feature may replace one of them.
    for name in origins:
        values[day, column, features.index(name)] = table[name].to_numpy()
    raw_close = None
    if RAW_CLOSE in table.columns:
        raw_close = np.full(values.shape[:2], np.nan, dtype=np.float32)
        raw_close[day, column] = table[RAW_CLOSE].to_numpy()
    return build_panel(
        values=values,
        dates=dates,
        instruments=instruments,
        investable=investable,
        features=features,
        origins=origins,
        raw_close=raw_close,
    )
