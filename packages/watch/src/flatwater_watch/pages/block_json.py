"""Converts blocks of a page to plain values for JSON and back; a file from any source becomes blocks or is refused.

A block is a mapping that names its class under `is`, and leaves out fields with their default:
`{"is": "Heading", "text": "Trades"}`. Markup of a recipe's own becomes its text: a page that is made from a file runs
nothing that the file brings.
"""

import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import date, datetime
from functools import cache
from math import isfinite
from numbers import Integral, Real
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from markupsafe import Markup

from flatwater_watch.files.json_values import is_number
from flatwater_watch.pages.block_checks import require_drawable
from flatwater_watch.pages.blocks import (
    Block,
    Card,
    Cards,
    FoldedBlock,
    Heading,
    Lines,
    Listing,
    Paragraph,
    Piece,
    Table,
)
from flatwater_watch.pages.chart import Axis, Band, Bars, Chart, Dots, Grid, Line, Spans
from flatwater_watch.sanitize import escape_controls, short_repr

CLASS_KEY, DATE_KEY = "is", "date"
"""Keys of the class in the mapping of a block, and of the only item in the mapping of a date."""
KINDS: Mapping[str, type] = {
    kind.__name__: kind
    for kind in (
        *(Card, Cards, FoldedBlock, Heading, Lines, Listing, Paragraph, Piece, Table),
        *(Axis, Band, Bars, Chart, Dots, Grid, Line, Spans),
    )
}
"""Classes of blocks, and of their parts, by name."""
_NAMES_IN_FILES = {
    "hover_text": "said",
    "horizontal": "across",
    "in_front": "front",
    "text_columns": "words",
    "thickness": "thick",
    "vertical_lines": "uprights",
}
"""Name of a field -> its name in files, which is that of earlier versions."""
_CLASS_NAMES_IN_FILES = {"FoldedBlock": "Folded"}
"""Name of a class -> its name in files, likewise."""
_FIELD_BY_NAME_IN_FILES = {name_in_files: field for field, name_in_files in _NAMES_IN_FILES.items()}
SequenceType = get_origin(Sequence[int])


def to_plain(value: object) -> Any:  # noqa: ANN401  (JSON)
    """Convert a block, or the value of a block's field, to plain values for JSON; a number that is not finite is None.

    Raises:
        TypeError: the value is neither a block nor a plain value.
    """
    match value:
        # The order counts: Markup is a str, and a bool a number to Python.
        case Markup():
            return value.striptags()
        case None | bool() | str():
            return value
        case Integral():
            return int(value)
        case Real():
            return float(value) if isfinite(value) else None
        case date():
            return {DATE_KEY: value.isoformat()}
    return _mapping_or_list(value)


def _mapping_or_list(value: object) -> Any:  # noqa: ANN401  (JSON)
    """Convert a block to a mapping with its class under `is` and without default fields, a sequence to a list.

    Raises:
        TypeError: the value is neither a block nor a sequence.
    """
    if type(value).__name__ in KINDS and is_dataclass(value) and not isinstance(value, type):
        content = {
            _NAMES_IN_FILES.get(field.name, field.name): to_plain(getattr(value, field.name))
            for field in fields(value)
            if not _is_default(field, getattr(value, field.name))
        }
        return {CLASS_KEY: _class_name_in_files(type(value))} | content
    if isinstance(value, Iterable):
        return [to_plain(item) for item in value]
    raise TypeError(f"{short_repr(value)}: expected a block of flatwater.reports, got a {type(value).__name__}")


def _class_name_in_files(kind: type) -> str:
    return _CLASS_NAMES_IN_FILES.get(kind.__name__, kind.__name__)


def _is_default(field: "Field[Any]", value: object) -> bool:
    """Return whether the value of a field is its default, and is left out of JSON."""
    # By type as well: True equals 1, and must not be left out for it.
    return field.default is not MISSING and type(value) is type(field.default) and value == field.default


def from_plain(content: object, hint: Any = Block) -> Any:  # noqa: ANN401  (JSON, and a type)
    """Convert JSON to a value of the type `hint`, and check it.

    Args:
        content: the JSON.
        hint: annotation of a field, such as `Sequence[float | None]`; by default that of any block.

    Raises:
        ValueError: the content does not fit the type.
    """
    origin = get_origin(hint)
    if hint is Any:  # as the places of marks on an axis are declared
        return _parse_axis_place(content)
    if origin in {Union, types.UnionType}:
        return _convert_union(content, get_args(hint))
    if origin is not None:
        return _convert_generic(content, origin, get_args(hint))
    if hint in KINDS.values():
        return _build_block(hint, content)
    return _convert_scalar(content, hint)


def _convert_generic(content: object, origin: object, kinds: Sequence[Any]) -> object:
    """Convert JSON to a literal, a sequence or a tuple.

    Raises:
        ValueError: the content does not fit.
    """
    if origin is Literal and content in kinds:
        return content
    if origin is SequenceType and isinstance(content, list):  # its only argument is the type of all items
        return [from_plain(item, kinds[0]) for item in content]
    if origin is tuple and isinstance(content, list) and len(content) == len(kinds):
        return tuple(from_plain(item, kind) for item, kind in zip(content, kinds, strict=True))
    raise ValueError(f"{short_repr(content)}: expected {short_repr(kinds)}")


def _convert_scalar(content: object, kind: Any) -> object:  # noqa: ANN401  (a type)
    """Check that JSON is of a type: a number, a text or None; control characters of a text are escaped.

    Raises:
        ValueError: the content is of another type.
    """
    # JSON may write a float without a point, as `1`; and to Python a bool is a number.
    if kind is float and is_number(content) and not isinstance(content, bool):
        return content
    if kind is str and isinstance(content, str):
        return escape_controls(content)
    if kind is types.NoneType and content is None:
        return None
    if kind in {bool, int} and type(content) is kind and is_number(content):
        return content
    raise ValueError(f"{short_repr(content)}: expected {kind.__name__}")


def _parse_axis_place(content: object) -> object:
    """Convert JSON to a place on an axis: a text, a number, None, or a date, from `{"date": "2013-01-31"}`."""
    if isinstance(content, dict) and content.keys() == {DATE_KEY} and isinstance(content[DATE_KEY], str):
        text = content[DATE_KEY]
        return datetime.fromisoformat(text) if "T" in text else date.fromisoformat(text)
    if content is None or is_number(content):
        return content
    return from_plain(content, str)  # which raises for anything else


def _convert_union(content: object, kinds: Sequence[Any]) -> object:
    """Convert JSON to the first type of a union that it fits; JSON of a block names its class under `is`.

    Raises:
        ValueError: the content fits no type of the union.
    """
    for kind in kinds:
        is_block = kind in KINDS.values()
        # Of the blocks in the union, only the one that the content names is tried.
        if is_block and not (isinstance(content, dict) and content.get(CLASS_KEY) == _class_name_in_files(kind)):
            continue
        try:
            return from_plain(content, kind)
        except ValueError:
            if is_block:  # the class is named, so the error inside of it says more than "no block"
                raise
    raise ValueError(f"{short_repr(content)}: expected a block, or a part of one")


def _build_block(kind: type[Any], content: object) -> object:
    """Make a block of one class from JSON that names this class under `is`, and check that it can be drawn.

    Raises:
        ValueError: the content names another class, has an unknown or a missing field, or cannot be drawn.
    """
    if not isinstance(content, dict) or content.get(CLASS_KEY) != _class_name_in_files(kind):
        raise ValueError(f"{short_repr(content)}: expected a {kind.__name__}")
    hints = _field_types(kind.__name__)
    content_by_field: dict[str, object] = {
        _FIELD_BY_NAME_IN_FILES.get(str(name), str(name)): item for name, item in content.items() if name != CLASS_KEY
    }
    if unknown_names := content_by_field.keys() - hints.keys():
        raise ValueError(f"{short_repr(min(unknown_names))}: {kind.__name__} has no such field")
    values = {name: from_plain(item, hints[name]) for name, item in content_by_field.items()}
    try:
        block = kind(**values)
    except TypeError as error:
        raise ValueError(f"{kind.__name__}: {error}") from error
    require_drawable(block)
    return block


@cache
def _field_types(name: str) -> Mapping[str, Any]:
    kind: Any = KINDS[name]
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}
