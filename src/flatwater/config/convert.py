"""One plain value, as TOML or the command line gives it, into the type that a configuration field declares.

The types a field may have: `bool`, `int`, `float`, `str`, `Path`, a `Literal` of these, `tuple[X, ...]`, `tuple[X, Y]`,
another `@config` class, and `X | None`. Nothing is guessed: only an `int` given for a `float` is widened.
"""

import types
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from flatwater.errors import ConfigError
from flatwater.printable import shown

_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "text", Path: "a path, as text"}

Nested = Callable[[type[Any], Mapping[str, Any], str], object]
"""Builds a nested configuration from a class, its mapping and the dotted path to it."""


def to_plain(value: object) -> object:
    """A field's value as TOML and JSON can hold it: paths become text, tuples become lists."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    return value


def from_plain(declared: object, given: object, path: str, nested: Nested) -> object:
    """`given` as a value of the `declared` type.

    Raises:
        ConfigError: it does not fit; the message names `path`, what was given and what is wanted.
    """
    origin = get_origin(declared)
    if origin is Union or origin is types.UnionType:
        return _union(declared, given, path, nested)
    if origin is Literal:
        return _choice(declared, given, path)
    if origin is tuple:
        return _tuple(declared, given, path, nested)
    if isinstance(declared, type) and is_dataclass(declared):
        if not isinstance(given, Mapping):
            raise _refused(declared, given, path)
        return nested(declared, given, path)
    return _scalar(declared, given, path)


def _union(declared: object, given: object, path: str, nested: Nested) -> object:
    options = [option for option in get_args(declared) if option is not types.NoneType]
    if given is None and len(options) < len(get_args(declared)):
        return None
    if len(options) == 1:
        return from_plain(options[0], given, path, nested)
    for option in options:
        try:
            return from_plain(option, given, path, nested)
        except ConfigError:
            continue
    raise _refused(declared, given, path)


def _choice(declared: object, given: object, path: str) -> object:
    for option in get_args(declared):
        if type(option) is type(given) and option == given:
            return option
    hint = ""
    if isinstance(given, str):
        hint = did_you_mean(given, [option for option in get_args(declared) if isinstance(option, str)])
    raise ConfigError(f"{path} = {shown(given)}: must be {wanted(declared)}.{hint}")


def _tuple(declared: object, given: object, path: str, nested: Nested) -> tuple[object, ...]:
    if not isinstance(given, list | tuple):
        raise _refused(declared, given, path)
    items = get_args(declared)
    if len(items) > 1 and items[1] is Ellipsis:
        items = (items[0],) * len(given)
    if len(items) != len(given):
        raise ConfigError(f"{path} = {shown(list(given))}: must have {len(items)} entries, not {len(given)}")
    return tuple(
        from_plain(item, value, f"{path}[{at}]", nested)
        for at, (item, value) in enumerate(zip(items, given, strict=True))
    )


def _scalar(declared: object, given: object, path: str) -> object:
    if declared is float and type(given) is int:
        return float(given)
    if declared is Path and isinstance(given, str | Path):
        return Path(given)
    if type(given) is declared:
        return given
    if declared in _NAMES:
        raise _refused(declared, given, path)
    raise TypeError(f"{path}: a configuration field cannot be declared as {declared}")


def _refused(declared: object, given: object, path: str) -> ConfigError:
    kind = _NAMES.get(type(given), type(given).__name__) if not isinstance(given, Mapping) else "a table"
    kind = "a list" if isinstance(given, list | tuple) else kind
    return ConfigError(f"{path} = {shown(given)}: must be {wanted(declared)}, not {kind}")


def wanted(declared: object) -> str:
    """The declared type in words for an error message: `a whole number`, `one of "ddpg", "td3"`."""
    origin = get_origin(declared)
    if origin is Literal:
        return "one of " + ", ".join(
            f'"{option}"' if isinstance(option, str) else str(option) for option in get_args(declared)
        )
    if origin is Union or origin is types.UnionType:
        return " or ".join(wanted(option) for option in get_args(declared) if option is not types.NoneType)
    if origin is tuple:
        items = [item for item in get_args(declared) if item is not Ellipsis]
        return f"a list ({', '.join(wanted(item) for item in items)})"
    if isinstance(declared, type) and is_dataclass(declared):
        return "a table of settings"
    return _NAMES.get(declared, str(declared)) if isinstance(declared, type) else str(declared)


def did_you_mean(given: str, known: list[str]) -> str:
    """` Did you mean "x"?` with the nearest known name, or an empty text where none is near."""
    near = get_close_matches(given, known, n=1, cutoff=0.6)
    return f' Did you mean "{near[0]}"?' if near else ""
