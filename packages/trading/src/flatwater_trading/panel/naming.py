"""Roles of a file's columns: named by the user, or guessed from the names that vendors use."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flatwater_trading.panel.notes import note_about_file
from flatwater_trading.panel.panel import PRICES
from flatwater_watch.errors import DataError
from flatwater_watch.phrases import list_phrase

ADJUSTED_CLOSE = "adj_close"
"""Role of the close after splits and dividends, which scales all prices of its row."""

SYNONYMS = {
    "symbol": "symbol ticker instrument sym asset security tic kuerzel kürzel isin wkn wertpapier ric code name",
    "date": "date timestamp datetime day time datum trade_date trading_date tradedate quote_date t "
    "__index_level_0__ unnamed:_0 index",
    "open": "open open_price px_open eroeffnung eröffnung o",
    "high": "high high_price px_high hoch h",
    "low": "low low_price px_low tief l",
    "close": "close close_price px_last close/last last_price schlusskurs schluss closing_price last price c",
    ADJUSTED_CLOSE: "adj_close adjusted_close adjclose adjusted adj._close adj_close* adj_price",
}
"""Accepted names of each column in lower case, with spaces as underscores; an earlier name is preferred."""

UNUSED_COLUMNS = ("volume", "vol", "dividends", "stock_splits")
"""Names of columns that are not prices."""

_PRICES = "open|high|low|close"
_FIELDS = f"adj[_. ]?close|{_PRICES}|volume"
# `AAPL_close` and `close_AAPL`.
_SUFFIXED = re.compile(rf"(?P<symbol>.+?)[_. :/-](?P<field>{_FIELDS})", re.IGNORECASE)
_PREFIXED = re.compile(rf"(?P<field>{_FIELDS})[_. :/-](?P<symbol>.+)", re.IGNORECASE)
# `('Close', 'AAPL')`, and `AAPL[close]`, which `unpack_lists` gives to the parts of lists.
_PAIR = re.compile(r"\(\s*'(?P<first>[^']*)'\s*,\s*'(?P<second>[^']*)'\s*\)")
_UNPACKED = re.compile(rf"(?P<symbol>.+)\[(?P<field>{_PRICES})\]")


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """The file's names of all columns that are read from it."""

    roles: dict[str, str]
    """Names of columns by role: of the date; in long form also of symbol, prices, adjusted close and own features."""
    wide_columns: dict[tuple[str, str], str]
    """Name of the column of each (instrument, price) in wide form, own features included; empty in long form."""
    guessed: dict[str, str]
    """Columns in `roles` that were guessed, not mapped by the user, and whose names differ from the role's."""
    unused: list[str]
    """Columns that are left out."""


def check_names(source: Path, names: Sequence[str]) -> None:
    """Check that the names of a file's columns are unique.

    Raises:
        DataError: two columns have the same name; the message has their numbers.
    """
    numbers: dict[str, int] = {}
    for number, name in enumerate(names, start=1):
        if name in numbers:
            same_name = f"named {name!r}" if name else "without a name"
            raise DataError(
                f"{source}: two columns are {same_name} (columns {numbers[name]} and {number}). Drop one, or rename it."
            )
        numbers[name] = number


def find_layout(
    source: Path, columns: list[str], mapping: Mapping[str, str], own_features: Sequence[str] = ()
) -> ColumnLayout:
    """Find the role of each column of a file, such as date, symbol or close.

    A file in wide form has a row for each day, and columns such as `AAPL_close`. One in long form has a row for each
    day and instrument: a column of symbols, of the close, or of two prices, and none such as `AAPL_close`.

    Args:
        source: file, for messages.
        columns: columns of the file.
        mapping: the file's names of columns by role, as the user gave them. A `*` in a name is the instrument of wide
            form. Other roles are guessed.
        own_features: own features that are columns of the file.

    Raises:
        DataError: columns are missing, or two have the same name; the message shows the `--map` to write.
    """
    _check_mapping(source, columns, mapping)
    patterns = {role: name for role, name in mapping.items() if "*" in name}
    column_by_role = _guess_roles(source, columns) | {role: name for role, name in mapping.items() if "*" not in name}
    other_columns = [column for column in columns if column != column_by_role.get("date")]
    columns_by_instrument_and_field = _find_wide_columns(source, other_columns, patterns, own_features)
    is_long_form = "symbol" in column_by_role or "close" in column_by_role or len(column_by_role.keys() & {*PRICES}) > 1
    # Columns such as `AAPL_close` win: beside them, a column `close` is left out.
    if is_long_form and not columns_by_instrument_and_field:
        layout = _long_layout(source, columns, column_by_role, mapping, own_features)
    elif "date" in column_by_role:
        roles = {"date": column_by_role["date"]}
        layout = _wide_layout(source, columns, roles, columns_by_instrument_and_field, mapping)
    else:
        raise _missing_error(source, columns, ["date"])
    # Own features are fields of instruments in wide form, and roles in long form.
    found_names = {field for _, field in layout.wide_columns} if layout.wide_columns else layout.roles.keys()
    _check_own_features(source, columns, own_features, found_names)
    return layout


def _long_layout(
    source: Path,
    columns: list[str],
    column_by_role: dict[str, str],
    mapping: Mapping[str, str],
    own_features: Sequence[str],
) -> ColumnLayout:
    """Return the layout of a file in long form, which must have a date and prices.

    Args:
        source: file, for messages.
        columns: columns of the file.
        column_by_role: the file's names of date, symbol and prices.
        mapping: the file's names of columns by role, as the user gave them.
        own_features: own features, each of them a role of the column of its name.

    Raises:
        DataError: the date or a price has no column.
    """
    _check_long_roles(source, columns, column_by_role, mapping)
    roles = column_by_role | {name: name for name in own_features if name in columns}
    unused_columns = [column for column in columns if column not in roles.values()]
    return ColumnLayout(roles, wide_columns={}, guessed=_guessed_columns(roles, mapping), unused=unused_columns)


def _wide_layout(
    source: Path,
    columns: list[str],
    roles: dict[str, str],
    columns_by_instrument_and_field: dict[tuple[str, str], str],
    mapping: Mapping[str, str],
) -> ColumnLayout:
    """Return the layout of a file in wide form: columns such as `AAPL_close` or, without any, a close in each column.

    Args:
        source: file, for messages.
        columns: columns of the file.
        roles: the file's name of the date.
        columns_by_instrument_and_field: columns whose names have both an instrument and a price or own feature.
        mapping: the file's names of columns by role, as the user gave them.

    Raises:
        DataError: an instrument has some of the prices, or no column has prices.
    """
    other_columns = [column for column in columns if column not in roles.values()]
    if columns_by_instrument_and_field:
        wide_columns = _complete_prices(source, columns_by_instrument_and_field)
    else:
        wide_columns = _closes_as_prices(source, other_columns)
    unused_columns = [column for column in other_columns if column not in wide_columns.values()]
    return ColumnLayout(roles, wide_columns, guessed=_guessed_columns(roles, mapping), unused=unused_columns)


def join_header_rows(rows: Sequence[Sequence[str]]) -> tuple[list[str], int] | None:
    """Join the names in two or three header rows, as yfinance writes them.

    Such a file begins with `Price,Close,High`, then `Ticker,AAPL,AAPL`, and possibly `Date,,`.

    Args:
        rows: first three rows of a file.

    Returns:
        A name such as `('Close', 'AAPL')` for each column, and the number of header rows; None for a file with one
        header row.
    """
    if len(rows) < 3:  # noqa: PLR2004  (two header rows and a row of prices)
        return None
    # The first cells name the header rows: `Price`, or nothing, and `Ticker`, in either order.
    if {_plain_name(rows[0][0]), _plain_name(rows[1][0])} not in ({"price", "ticker"}, {"", "ticker"}):
        return None
    pairs = [f"('{upper.strip()}', '{lower.strip()}')" for upper, lower in zip(rows[0][1:], rows[1][1:], strict=True)]
    first_cell, *other_cells = rows[2]
    has_date_row = _plain_name(first_cell) in SYNONYMS["date"].split() and not any(map(str.strip, other_cells))
    return ["date", *pairs], 3 if has_date_row else 2


def _check_mapping(source: Path, columns: list[str], mapping: Mapping[str, str]) -> None:
    """Check that the user's `--map` names known roles, and columns that the file has; patterns are not looked up.

    Raises:
        DataError: a role is unknown, or a column is not in the file.
    """
    for role, name in mapping.items():
        if role not in SYNONYMS:
            raise DataError(f"--map {role}={name}: expected one of {', '.join(SYNONYMS)}, got {role}.")
        if "*" not in name and name not in columns:
            raise DataError(
                f"{source}: --map {role}={name}: there is no column {name} (found: {list_phrase(columns)}). Name one."
            )


def _check_own_features(
    source: Path, columns: list[str], own_features: Sequence[str], found_names: Collection[str]
) -> None:
    """Check that each own feature has a column.

    Args:
        source: file, for messages.
        columns: columns of the file, for messages.
        own_features: names of own features that should be columns.
        found_names: roles or fields that columns were found for.

    Raises:
        DataError: a feature has no column.
    """
    missing = [name for name in own_features if name not in found_names]
    if missing:
        raise DataError(
            f"{source}: --features {missing[0]}: there is no column of that name "
            f"(found: {list_phrase(columns)}). Name one, or MODULE:FUNCTION."
        )


def _guess_roles(source: Path, columns: list[str]) -> dict[str, str]:
    """Return the file's columns that have a usual name, by role; of several synonyms the earliest is taken.

    Raises:
        DataError: the names of two columns differ only in case, spaces and marks.
    """
    plain_names: dict[str, str] = {}
    for column in columns:
        if _plain_name(column) in plain_names:
            raise DataError(
                f"{source}: columns {plain_names[_plain_name(column)]!r} and {column!r} have the same name. Drop one."
            )
        plain_names[_plain_name(column)] = column
    # A single letter may be a share (C is Citigroup), so it counts only if all four prices are letters.
    allows_letters = {"o", "h", "l", "c"} <= plain_names.keys()
    column_by_role = {}
    for role, names in SYNONYMS.items():
        synonyms = [name for name in names.split() if allows_letters or len(name) > 1]
        candidates = [plain_names[name] for name in synonyms if name in plain_names]
        if role == "date" and "" in plain_names:
            candidates.append(plain_names[""])  # pandas writes its index without a name
        if candidates:
            column_by_role[role] = candidates[0]
    return column_by_role


def _check_long_roles(source: Path, columns: list[str], roles: dict[str, str], mapping: Mapping[str, str]) -> None:
    """Check that there are columns of date and close, and of the other prices unless all of them are missing.

    A close alone is enough if the file has symbols, if the user named the close, or if there are only dates beside it:
    in other files `close` may be one of several instruments, or prices are missing.

    Args:
        source: file, for messages.
        columns: columns of the file.
        roles: names of columns by role.
        mapping: the file's names of columns by role, as the user gave them.

    Raises:
        DataError: a column is missing.
    """
    has_nothing_else = set(columns) == {roles.get("date"), roles.get("close")}
    may_lack_prices = "symbol" in roles or "close" in mapping or has_nothing_else
    has_close_alone = may_lack_prices and not roles.keys() & {"open", "high", "low"}
    required_roles = ("date", "close") if has_close_alone else ("date", *PRICES)
    missing = [role for role in required_roles if role not in roles]
    if missing:
        # Without symbols the message asks for them, too: the file may have several instruments.
        raise _missing_error(source, columns, missing if "symbol" in roles else ["symbol", *missing])


def _missing_error(source: Path, columns: list[str], missing: list[str]) -> DataError:
    """Return the error for roles that no column was found for, with the `--map` that would name them."""
    mapping = " ".join(f"{role}=COLUMN" for role in missing)
    if missing == ["date"]:  # the file may be in either form
        mapping += " (in long form also symbol=COLUMN close=COLUMN)"
    return DataError(
        f"{source}: column {' and '.join(missing)} missing (found: {list_phrase(columns)}). If it has another name, "
        f"add --map {mapping}. Long form needs symbol, date, open, high, low, close (or the close alone); wide form "
        "needs date and columns such as AAPL_open, AAPL_high, AAPL_low, AAPL_close, "
        "or one closing price for each instrument."
    )


def _find_wide_columns(
    source: Path, columns: list[str], patterns: dict[str, str], own_features: Sequence[str]
) -> dict[tuple[str, str], str]:
    """Find the file's column of each (instrument, price or own feature); empty if no column has this form.

    Args:
        source: file, for messages.
        columns: columns of the file, without the date.
        patterns: the user's names of prices, with a `*` for the instrument; with any of these no price is guessed.
        own_features: names of own features.

    Raises:
        DataError: two columns are the same price of an instrument.
    """
    columns_by_price: dict[tuple[str, str], str] = {}
    for column in columns:
        # `AAPL_close` -> ("AAPL", "close").
        key = _split_wide_column(column, patterns)
        if key is None or key[1] == "volume":  # a volume is no price: it is an own feature, or is left out
            key = _split_feature_column(column, own_features)
        if key is not None:
            if key in columns_by_price:
                raise DataError(
                    f"{source}: columns {columns_by_price[key]!r} and {column!r} are the same price. Drop one."
                )
            columns_by_price[key] = column
    return columns_by_price


def _split_wide_column(column: str, patterns: dict[str, str]) -> tuple[str, str] | None:
    """Split `AAPL_close` or `close.AAPL` into instrument and price, ("AAPL", "close"); None for other columns.

    Pairs that pandas wrote as text, `('AAPL', 'close')`, count too.

    Args:
        column: name of a column.
        patterns: the user's names by price, with a `*` for the instrument, such as `{"close": "*.last"}`; with any of
            these, other names are not guessed.
    """
    for role, pattern in patterns.items():
        prefix, _, suffix = pattern.partition("*")
        # Longer than both together, so that the instrument has a name.
        if len(column) > len(prefix + suffix) and column.startswith(prefix) and column.endswith(suffix):
            return column[len(prefix) : len(column) - len(suffix)], role
    if patterns:
        return None
    pair = _PAIR.fullmatch(column)
    text = f"{pair['first']}.{pair['second']}" if pair else column
    # The suffix is tried before the prefix, so `OPEN_close` is the close of OPEN. A synonym such as `adj_close` is a
    # column of long form, and not the close of an instrument `adj`.
    match = _UNPACKED.fullmatch(text) or _SUFFIXED.fullmatch(text) or _PREFIXED.fullmatch(text)
    plain_name = _plain_name(text)
    is_synonym = any(plain_name in names.split() for names in SYNONYMS.values())
    if match is None or plain_name in UNUSED_COLUMNS or is_synonym:
        return None
    field = match["field"].lower()
    # `[_. ]?` in the pattern: adj_close, adj close and adjclose are one field.
    return match["symbol"], ADJUSTED_CLOSE if field.startswith("adj") else field


def _split_feature_column(column: str, own_features: Sequence[str]) -> tuple[str, str] | None:
    """Split `AAPL_signal` or `AAPL[signal]` into instrument and own feature; None for other columns."""
    for name in own_features:
        match = re.fullmatch(rf"(.+?)(?:[_. :/-]{re.escape(name)}|\[{re.escape(name)}\])", column)
        if match:
            return match[1], name
    return None


def _complete_prices(source: Path, columns_by_price: dict[tuple[str, str], str]) -> dict[tuple[str, str], str]:
    """Check that each instrument has all four prices or a close alone; a close alone becomes all four, which is noted.

    Args:
        source: file, for messages.
        columns_by_price: the file's column of each (instrument, price or own feature).

    Raises:
        DataError: an instrument has neither all prices nor a close alone.
    """
    for name in dict.fromkeys(name for name, _ in columns_by_price):  # each instrument once
        missing = [price for price in PRICES if (name, price) not in columns_by_price]
        if len(missing) == len(PRICES):
            lone_column = next(column for (instrument, _), column in columns_by_price.items() if instrument == name)
            raise DataError(f"{source}: column {lone_column}: {name} has no other price. Call it {name}_close.")
        if missing and missing != ["open", "high", "low"]:  # a close alone is enough
            raise DataError(f"{source}: instrument {name} has no column for {' and '.join(missing)}.")
    # Instruments with a close alone: by the check above, those without an open have no high and low either.
    lone_names = [
        name for name, price in columns_by_price if price == "close" and (name, "open") not in columns_by_price
    ]
    if lone_names:
        note_lone_closes(source, len(lone_names))
    closes_as_prices = {(name, price): columns_by_price[name, "close"] for name in lone_names for price in PRICES}
    return columns_by_price | closes_as_prices


def _closes_as_prices(source: Path, columns: list[str]) -> dict[tuple[str, str], str]:
    """Take every column as the closes of an instrument of its name, and note that; volumes and the like are left out.

    Args:
        source: file, for messages.
        columns: columns of the file, without the date.

    Returns:
        The column for each (instrument, price): the close is taken for all four prices.

    Raises:
        DataError: no column is left.
    """
    no_price = {*UNUSED_COLUMNS, *SYNONYMS[ADJUSTED_CLOSE].split()}
    names = [column for column in columns if _plain_name(column) not in no_price]
    if not names:
        raise DataError(f"{source}: the file has dates, but no column with prices.")
    note_lone_closes(source, len(names))
    return {(name.strip(), price): name for name in names for price in PRICES}


def note_lone_closes(source: Path, count: int) -> None:
    """Note that the file has only one price a row for some instruments."""
    instruments = "one instrument" if count == 1 else f"{count} instruments"
    note_about_file(
        source,
        f"one price a row for {instruments}. It is taken as the close, and open, high and low are set equal to it: "
        "sale targets are then reached at closes only.",
    )


def note_guesses(source: Path, layout: ColumnLayout) -> None:
    """Note the columns that were guessed, each with its role."""
    if layout.guessed:
        guesses = ", ".join(f"{name or 'the column without a name'} as {role}" for role, name in layout.guessed.items())
        mapping = " ".join(f"{role}=COLUMN" for role in layout.guessed)
        note_about_file(source, f"taken: {guesses}. If that is wrong, add --map {mapping}.")


def _guessed_columns(roles: dict[str, str], mapping: Mapping[str, str]) -> dict[str, str]:
    """Return, by role, the columns that were guessed: the user did not map them, and their names are not the roles."""
    # A name that differs from the role only in case, separators, a number before it or `<>` is not guessed either.
    return {
        role: name for role, name in roles.items() if role not in mapping and name != role and _plain_name(name) != role
    }


def _plain_name(column: str) -> str:
    """Return a name in lower case, with underscores and no number: `adj_close` for `5. Adj Close` and `<ADJ_CLOSE>`."""
    name = re.sub(r"^\d+\.\s+", "", column.strip().lower()).strip("<>")
    return re.sub(r"[\s.-]+", "_", name)
