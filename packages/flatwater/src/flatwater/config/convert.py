"""Conversion of plain values, as TOML or the command line gives them, to the types of configuration fields.

msgspec decides whether a value fits, and this module says in words why not. The types of a field: `bool`, `int`,
`float`, `str`, `Path`, a `Literal` of these, `tuple[X, ...]`, `tuple[X, Y]`, another `@config` class, and `X | None`.
Nothing is guessed: only an `int` given for a `float` is widened.
"""

import re
import types
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from datetime import date, datetime, time
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from flatwater_watch.errors import ConfigError
from flatwater_watch.files.directory import expand_home
from flatwater_watch.options.setting_text import short_setting

_TYPE_NAMES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path, as text",
    date: "a date",
    datetime: "a date with a time",
    time: "a time",
}

BuildTable = Callable[[type[Any], Mapping[str, Any], str], object]
"""Function that builds a nested configuration from a class, its mapping and the dotted path to it."""


def to_plain(value: object) -> object:
    """Return a field's value as TOML and JSON can hold it: paths become text, tuples become lists."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    return value


def from_plain(declared_type: Any, value: Any, path: str, build_table: BuildTable) -> object:  # noqa: ANN401  (a type and a value of any setting)
    """Return `value` as a value of the type `declared_type`.

    Args:
        declared_type: type of a field: of plain values, a path, a table, or one of these or None.
        value: value of a TOML or JSON file, or of Python.
        path: dotted name of the setting, for messages.
        build_table: builds a table's configuration from its class, its mapping and its path.

    Raises:
        ConfigError: the value does not fit; the message names `path`, the value and the expected type.
    """
    type_arguments = [option for option in get_args(declared_type) if option is not types.NoneType]
    # `X | None` with a value is an X.
    if _is_union(declared_type) and len(type_arguments) == 1 and value is not None:
        return from_plain(type_arguments[0], value, path, build_table)
    if isinstance(declared_type, type) and is_dataclass(declared_type) and isinstance(value, Mapping):
        return build_table(declared_type, value, path)
    try:
        return msgspec.convert(value, declared_type, strict=True, dec_hook=_convert_path)  # strict: "1" is not a number
    except msgspec.ValidationError as error:
        # msgspec's message ends in the place of a wrong list entry: "... - at `$[2]`".
        entry = re.search(r"at `\$\[(\d+)\]", str(error))
        if entry is None:
            raise _conversion_error(declared_type, value, path) from None
        # The entry is converted alone, to raise an error that quotes the entry and not the whole list.
        index = int(entry[1])
        has_one_type = type_arguments[-1] is Ellipsis  # `tuple[X, ...]`, and not `tuple[X, Y]`
        entry_type = type_arguments[0 if has_one_type else index]
        return from_plain(entry_type, value[index], f"{path}[{index}]", build_table)


def _is_union(declared_type: object) -> bool:
    return get_origin(declared_type) in {Union, types.UnionType}


def _convert_path(declared_type: type, value: object) -> Path:
    """Return the path that a text stands for; msgspec calls this for declared types that it does not know.

    Raises:
        TypeError: another type than `Path` is declared, or the value is no text; msgspec makes a ValidationError of it.
    """
    if declared_type is Path and isinstance(value, str | Path):
        return expand_home(value)
    raise TypeError


def _conversion_error(declared_type: object, value: object, path: str) -> ConfigError:
    """Return the error of a value that is not of the declared type, in words for the user."""
    if get_origin(declared_type) is Literal:
        literals = [option for option in get_args(declared_type) if isinstance(option, str)]
        hint = did_you_mean(value, literals) if isinstance(value, str) else ""
        return ConfigError(f"{path} = {short_setting(value)}: expected {type_in_words(declared_type)}.{hint}")
    if isinstance(value, list | tuple) and get_origin(declared_type) is tuple:
        # `from_plain` has an error of its own for a wrong entry, so only the number of entries can be wrong here.
        items = get_args(declared_type)
        return ConfigError(f"{path} = {short_setting(list(value))}: expected {len(items)} entries, got {len(value)}")
    if declared_type is float and type(value) is int:
        kind = "a number of too many digits"  # other whole numbers are taken for a `float`
    elif isinstance(value, list | tuple):
        kind = "a list"
    elif isinstance(value, Mapping):
        kind = "a table"
    else:
        kind = _TYPE_NAMES.get(type(value), type(value).__name__)
    return ConfigError(f"{path} = {short_setting(value)}: expected {type_in_words(declared_type)}, got {kind}")


def type_in_words(declared_type: object) -> str:
    """Return the declared type in words for an error message: `a whole number`, `one of "ddpg", "td3"`."""
    origin = get_origin(declared_type)
    if origin is Literal:
        return "one of " + ", ".join(
            f'"{option}"' if isinstance(option, str) else str(option) for option in get_args(declared_type)
        )
    if _is_union(declared_type):
        return " or ".join(type_in_words(option) for option in get_args(declared_type) if option is not types.NoneType)
    if origin is tuple:
        items = [item for item in get_args(declared_type) if item is not Ellipsis]
        return f"a list ({', '.join(type_in_words(item) for item in items)})"
    if isinstance(declared_type, type) and is_dataclass(declared_type):
        return "a table of settings"
    if isinstance(declared_type, type) and declared_type in _TYPE_NAMES:
        return _TYPE_NAMES[declared_type]
    return str(declared_type)


def did_you_mean(name: str, known_names: list[str]) -> str:
    """Return ` Did you mean "x"?` with the nearest known name, or an empty text where none is near."""
    similar = get_close_matches(name, known_names, n=1, cutoff=0.6)
    return f' Did you mean "{similar[0]}"?' if similar else ""
