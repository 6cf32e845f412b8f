"""Checks that blocks of a page can be drawn, for blocks that are made from a file of any source."""

import re
from collections.abc import Sequence
from datetime import date
from typing import Any

from flatwater_watch.files.json_values import is_number
from flatwater_watch.format_strings import is_specification
from flatwater_watch.pages.blocks import Piece, Table
from flatwater_watch.pages.chart import Band, Bars, Chart, Dots, Grid, Line, Spans
from flatwater_watch.sanitize import short_repr

_COLOUR = re.compile(r"--[a-z0-9-]{1,40}|#[0-9a-fA-F]{6}")
_LINK = re.compile(r"(https?://[!-~]*|#[!-~]*|[!-9;-~]*)")
"""Addresses that a link may have: a page of the web, or a file in the same folder; no script."""
MAXIMUM_PIXELS = 4096


def require_drawable(block: object) -> None:
    """Check the properties of a block that types do not express: columns of one length, colours, formats, links, sizes.

    Raises:
        ValueError: the block cannot be drawn.
    """
    match block:
        case Piece():
            _require(_LINK.fullmatch(block.href) is not None, "href", block.href)
        case Line() | Dots():
            _require_mark(block, (block.x, block.y), (block.hover_text,))
        case Band():
            _require_mark(block, (block.x, block.low, block.high), ())
        case Bars():
            _require_mark(block, (block.at, block.values), (block.low, block.high, block.labels))
            _require(bool(block.low) == bool(block.high), "low", block.low)  # an interval has both ends or none
        case Spans():
            _require_mark(block, (block.rows, block.starts, block.ends), (block.hover_text,))
            positions = (*block.starts, *block.ends)
            are_dates = all(isinstance(position, date) for position in positions)
            are_numbers = all(is_number(position) for position in positions)
            # The length of a bar is its end minus its start.
            _require(are_dates or are_numbers, "ends", "others")
        case Chart() | Grid():
            _require(0 < block.height <= MAXIMUM_PIXELS, "height", block.height)
            _require(block.weight > 0, "weight", block.weight)
        case Table():
            _require(len(block.titles) > 0, "titles", block.titles)


def _require_mark(mark: Any, columns: Sequence[Sequence[Any]], other_columns: Sequence[Sequence[Any]]) -> None:  # noqa: ANN401  (any mark)
    """Check the fields that all marks share: lengths of columns, colours, and the format of values.

    Args:
        mark: a mark of a chart.
        columns: columns that have a value for each point.
        other_columns: columns that have a value for each point, or are empty.

    Raises:
        ValueError: the mark cannot be drawn.
    """
    lengths = {*map(len, columns), *(len(column) for column in other_columns if column)}
    _require(len(lengths) == 1, "columns of lengths", sorted(lengths))
    colours = [mark.colour] if isinstance(mark.colour, str) else list(mark.colour)  # of all points, or of each
    _require(isinstance(mark.colour, str) or len(colours) == len(columns[0]), "colours", len(colours))
    for colour in colours:
        _require(_COLOUR.fullmatch(colour) is not None, "colour", colour)
    if isinstance(mark, Line | Dots | Bars):
        _require(is_specification(mark.form.removeprefix(",")), "form", mark.form)


def _require(condition: bool, name: str, value: object) -> None:  # noqa: FBT001  (a condition, as assert has it)
    """Raise a ValueError that names a field and its value if the condition does not hold."""
    if not condition:
        raise ValueError(f"{name} = {short_repr(value)}: cannot be drawn")
