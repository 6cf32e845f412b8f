"""JSON that comes from a disk or a store, read so that nothing in it can harm: bounded in size and depth, then typed.

Whatever does not fit is a `ValueError` that says where; nothing of it reaches the code behind. The types are
dataclasses, or msgspec's own where they say more than a type.
"""

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any, TypeVar

MOST_BYTES = 64 << 20
"""Of a text."""
MOST_DEPTH = 64
"""Brackets inside brackets."""
MOST_NUMBER = 1.7e308
T = TypeVar("T")


def parse_json(raw: bytes) -> Any:  # noqa: ANN401  (JSON)
    """The JSON in `raw`.

    Raises:
        ValueError: it is none, too large or too deep, or has NaN or infinities, which JSON does not know.
    """
    if len(raw) > MOST_BYTES:
        raise ValueError(f"{len(raw)} bytes are more than the {MOST_BYTES} that it may have")
    try:
        content = json.loads(raw, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("brackets are nested too deep") from None
    if raw.count(b"[") + raw.count(b"{") > MOST_DEPTH:  # else nothing can be nested deeper
        require_shallow(content)
    return content


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def require_shallow(content: object) -> None:
    """That brackets are nested at most `MOST_DEPTH` deep.

    Raises:
        ValueError: they are nested deeper.
    """
    level = [content]
    for _ in range(MOST_DEPTH):
        level = [below for each in level for below in _inside(each)]
        if not level:
            return
    raise ValueError(f"brackets are nested more than {MOST_DEPTH} deep")


def _inside(content: object) -> list[Any]:
    inside = content.values() if isinstance(content, dict) else content if isinstance(content, list) else ()
    return [each for each in inside if isinstance(each, dict | list)]


def convert_to(content: object, kind: type[T]) -> T:
    """`content` as a `kind`, once it fits: types to the letter, no field missing, none too many.

    Raises:
        ValueError: it does not fit; says where.
    """
    import msgspec  # noqa: PLC0415  (in the extra `train`; what only writes does without it)

    return msgspec.convert(content, kind, strict=True)


def plain_json_value(value: object) -> object:
    """The value for JSON: null for what is not finite, lists for tuples."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, list | tuple):
        return [plain_json_value(item) for item in value]
    if isinstance(value, Mapping):
        return {name: plain_json_value(item) for name, item in value.items()}
    return value


def is_number(value: object) -> bool:
    """Whether a value can be drawn and counted with: JSON knows numbers that no float holds."""
    return isinstance(value, int | float) and -MOST_NUMBER <= value <= MOST_NUMBER
