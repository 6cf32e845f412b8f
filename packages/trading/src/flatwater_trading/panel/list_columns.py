"""Columns with lists of numbers, a column for each instrument, unpacked to a column for each price."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from flatwater_trading.panel.file_rows import row_number
from flatwater_trading.panel.notes import note_about_file
from flatwater_trading.panel.panel import FEATURES, PRICES
from flatwater_watch.errors import DataError

_LIST_TEXT = r"(?s)^\s*[\[(].*[\])]\s*$"  # `[1.5, 2, 0.5]` or `(1.5, 2)`


def unpack_lists(
    source: Path, frame: pl.DataFrame, mapping: Mapping[str, str], own_features: Sequence[str] = ()
) -> tuple[pl.DataFrame, dict[str, str]]:
    """Unpack columns of lists, or of text such as `[1.5, 2, 0.5]`, to `AAPL[open]`, `AAPL[high]` and so on.

    Args:
        source: file, for messages.
        frame: frame of the file.
        mapping: places of the prices in a list, counted from 1, as in `{"close": "4"}`, and names of columns. Without
            places, lists of nine numbers are taken in the order of `FEATURES`.
        own_features: features among the nine that are taken from the lists too.

    Returns:
        The frame, and the names of columns in `mapping`.

    Raises:
        DataError: lists have different lengths, or the places of the prices are unknown.
    """
    lists = {
        column.name: lists_of_column
        for column in frame.get_columns()
        if (lists_of_column := _to_lists(column)) is not None
    }
    if not lists:
        return frame, {**mapping}
    length = _list_length(source, lists)
    places = _find_places(frame, mapping, own_features, length)
    has_all_prices = {*PRICES} <= {*places}
    are_within_lists = all(1 <= place <= length for place in places.values())
    if not (has_all_prices and are_within_lists):
        mapping_example = " ".join(f"{price}={n}" for n, price in enumerate(PRICES, start=1))
        raise DataError(
            f"{source}: column {next(iter(lists))}: lists of {length} numbers, and where open, high, low and close "
            f"are in them is not known. Add, for instance, --map {mapping_example} (the first number is 1)."
        )
    taken_fields = ", ".join(f"{name} = number {places[name]}" for name in (*PRICES, *own_features) if name in places)
    note_about_file(source, f"lists of {length} numbers: {taken_fields}; the others are not used.")
    columns: list[pl.Series] = []
    for column in frame.get_columns():
        if column.name in lists:
            cells = lists[column.name].list
            columns += [cells.get(place - 1).alias(f"{column.name}[{price}]") for price, place in places.items()]
        else:
            columns.append(column)
    other_mapping = {role: name for role, name in mapping.items() if role not in places}
    # By name, as a list of series loses an empty name, which pandas writes for an index.
    return pl.DataFrame({column.name: column for column in columns}), other_mapping


def _find_places(
    frame: pl.DataFrame, mapping: Mapping[str, str], own_features: Sequence[str], length: int
) -> dict[str, int]:
    """Return the place of each price and feature in a list, counted from 1.

    Places are those of the mapping or, without any, the order of `FEATURES` in lists of so many numbers; else empty.
    """
    # A number in the mapping is the name of a column if the file has one of that name, else a place.
    places = {role: int(place) for role, place in mapping.items() if place.isdecimal() and place not in frame.columns}
    if not places and length == len(FEATURES):
        places = {name: FEATURES.index(name) + 1 for name in (*PRICES, *own_features) if name in FEATURES}
    return places


def _to_lists(column: pl.Series) -> pl.Series | None:
    """Return a column as lists, text as lists of text; None for another column."""
    if isinstance(column.dtype, pl.Array):
        return column.arr.to_list()
    if isinstance(column.dtype, pl.List):
        return column
    if column.dtype != pl.String or not column.str.contains(_LIST_TEXT).any():
        return None
    # `[1.5, 2]` -> `1.5 2`
    text = column.str.replace_all(r"[\[\](),\s]+", " ").str.strip_chars()
    # An empty list becomes a missing value instead of a list with one empty text.
    return text.set(text == "", None).str.split(" ")


def _list_length(source: Path, lists: dict[str, pl.Series]) -> int:
    """Return the length of the lists, which must be the same for all.

    Raises:
        DataError: a list has another length.
    """
    length = 0
    for name, column in lists.items():
        lengths = column.list.len()
        # The length of the first list in the file that is not empty; a column of empty cells has none.
        if length == 0:
            length = next(iter(lengths.drop_nulls().head(1).to_list()), 0)
        is_other_length = (lengths != length).fill_null(value=False)
        if is_other_length.any():
            row = int(is_other_length.arg_true()[0])
            raise DataError(
                f"{source}: row {row_number(row)}, column {name}: a list of {lengths[row]} numbers, others have "
                f"{length}. Complete the list, or leave the cell empty."
            )
    return length
