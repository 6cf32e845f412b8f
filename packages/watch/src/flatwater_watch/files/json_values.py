"""JSON from a disk or a store, which is bounded in size and depth, and then converted to a type.

A value that does not fit its type is a `ValueError` that names its place, so that the callers see typed values only.
The types are dataclasses, or msgspec's own for constraints beyond a type.
"""

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any, TypeVar

MAXIMUM_BYTES = 64 << 20
"""Maximum bytes of a text."""
MAXIMUM_DEPTH = 64
"""Maximum depth of brackets inside brackets."""
MAXIMUM_NUMBER = 1.7e308
"""Largest number that passes, just below the largest float: JSON knows larger numbers."""
T = TypeVar("T")


def parse_json(raw: bytes) -> Any:  # noqa: ANN401  (JSON)
    """Return the value of a JSON text.

    Raises:
        ValueError: the text is no JSON, too large or too deep, or has NaN or infinities, which JSON does not know.
    """
    if len(raw) > MAXIMUM_BYTES:
        raise ValueError(f"{len(raw)} bytes are more than the {MAXIMUM_BYTES} that it may have")
    try:
        content = json.loads(raw, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("brackets are nested too deep") from None
    # Only with more brackets than the maximum depth can they be nested deeper; brackets in texts count here too.
    if raw.count(b"[") + raw.count(b"{") > MAXIMUM_DEPTH:
        require_shallow(content)
    return content


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def require_shallow(content: object) -> None:
    """Check that brackets are nested at most `MAXIMUM_DEPTH` deep.

    Raises:
        ValueError: the brackets are nested deeper.
    """
    # Level by level, not recursively: the content may be nested deeper than Python's stack.
    containers = [content]
    for _ in range(MAXIMUM_DEPTH):
        containers = [child for container in containers for child in _child_containers(container)]
        if not containers:
            return
    raise ValueError(f"brackets are nested more than {MAXIMUM_DEPTH} deep")


def _child_containers(content: object) -> list[Any]:
    """Return the dicts and lists that are items of a dict or a list; empty for any other content."""
    if isinstance(content, dict):
        items = list(content.values())
    elif isinstance(content, list):
        items = content
    else:
        return []
    return [item for item in items if isinstance(item, dict | list)]


def convert_to_type(content: object, kind: type[T]) -> T:
    """Convert content to a type: types must match exactly, with no field missing and none too many.

    Raises:
        ValueError: the content does not fit; the message names the place.
    """
    import msgspec  # noqa: PLC0415  (in the extra `train`; code that only writes does without it)

    return msgspec.convert(content, kind, strict=True)


def encode_json(value: object) -> bytes:
    """Return the value as JSON in one line: null for numbers that are not finite, lists for tuples."""
    import msgspec  # noqa: PLC0415  (takes as long to import as a command that only reads may take)

    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError):
        # Slower, but takes what msgspec refuses: subclasses of float, text that is no Unicode, integers of any size.
        return json.dumps(plain_json_value(value)).encode()


def indent_json(value: object) -> bytes:
    """Return the value as JSON with a line for each item, as the json module indents it by 1, in a third of its time.

    Raises:
        ValueError: a number is not finite.
    """
    import msgspec  # noqa: PLC0415  (takes as long to import as a command that only reads may take)

    try:
        return msgspec.json.format(json.dumps(value, allow_nan=False).encode(), indent=1)
    except msgspec.DecodeError:  # text that is no Unicode
        return json.dumps(value, allow_nan=False, indent=1).encode()


def plain_json_value(value: object) -> object:
    """Return the value for JSON, at any depth: None for numbers that are not finite, lists for tuples."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, list | tuple):
        return [plain_json_value(item) for item in value]
    if isinstance(value, Mapping):
        return {name: plain_json_value(item) for name, item in value.items()}
    return value


def is_number(value: object) -> bool:
    """Return whether a value is a number that a float can hold; JSON has larger numbers."""
    return isinstance(value, int | float) and -MAXIMUM_NUMBER <= value <= MAXIMUM_NUMBER
