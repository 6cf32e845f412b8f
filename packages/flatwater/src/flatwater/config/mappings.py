"""Configurations from nested mappings and to them."""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from inspect import isfunction
from pathlib import Path
from typing import Any, Protocol, TypeVar, get_type_hints, runtime_checkable

from flatwater.config.code import code_fields, name_of_code
from flatwater.config.convert import did_you_mean, from_plain, to_plain, type_in_words
from flatwater_watch.errors import ConfigError
from flatwater_watch.options.bounds import check_values
from flatwater_watch.options.declare import absent_settings, removed_settings, variant_class

C = TypeVar("C")


def from_mapping(cls: type[C], mapping: Mapping[str, Any], where: str) -> C:
    """Return a configuration of the class `cls` with the values of `mapping`.

    Args:
        cls: a `@config` class.
        mapping: values by field name, a nested mapping for a nested configuration; other fields keep their defaults.
        where: source of the values, such as a file's name, with which every message begins.

    Raises:
        ConfigError: an unknown field (with the nearest known one, or what to do without it), a wrong type, a missing
            value, or a value that the class itself refuses.
    """
    try:
        config = _build_config(cls, mapping, path="")
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    assert isinstance(config, cls)  # noqa: S101  (for the type checker: `_build_config` calls `cls`)
    return config


def _build_config(cls: type[Any], mapping: Mapping[str, Any], path: str) -> object:
    """Return a configuration of the class `cls`, or of its variant that `mapping` chooses.

    Args:
        cls: a `@config` class.
        mapping: values by field name.
        path: dotted name of the table that has these settings; empty for the whole file.

    Raises:
        ConfigError: a setting is unknown, was removed, or is missing and has no default.
    """
    cls = variant_class(cls, mapping)  # some classes have variants, which one of their settings chooses
    fields_by_name = {f.name: f for f in fields(cls)}
    all_hints = get_type_hints(cls)
    hints = {name: all_hints[name] for name in fields_by_name}  # without class variables
    declared_code = code_fields(cls)
    values: dict[str, object] = {}
    for name, value in mapping.items():
        dotted_name = f"{path}.{name}" if path else name
        # Removed before unknown: an old file says what to write now.
        if name in removed_settings(cls):
            raise ConfigError(f"{dotted_name}: this setting was removed. {removed_settings(cls)[name]}")
        if name not in fields_by_name:
            if reason := absent_settings(cls).get(name):
                raise ConfigError(f"{dotted_name}: {reason}")
            raise ConfigError(f"{dotted_name}: no setting has this name.{_unknown_name_hint(name, path, hints)}")
        file_value = _as_in_file(value, dotted_name, is_code=name in declared_code)
        values[name] = from_plain(hints[name], file_value, dotted_name, build_table=_build_config)
    for name, declared_field in fields_by_name.items():
        if name not in values and _has_no_default(declared_field):
            raise ConfigError(
                f"{f'{path}.{name}' if path else name}: is missing and has no default. "
                f"Give {type_in_words(hints[name])}."
            )
    check_values(cls, values, path)
    return cls(**values)


@runtime_checkable
class _ArrayLike(Protocol):
    """An array or a tensor, or a number of NumPy."""

    def tolist(self) -> object:
        """Return it as Python's numbers, in lists where it has axes."""


def _as_in_file(value: object, path: str, *, is_code: bool) -> object:
    """Return a value of Python as a file would have it: NumPy's numbers as Python's, classes and functions by name.

    Args:
        value: the value, or a list of values.
        path: dotted name of the setting, for messages.
        is_code: whether the setting names code.

    Raises:
        ConfigError: a class or a function has no name by which it is found again.
    """
    if isinstance(value, list | tuple):
        return [_as_in_file(entry, f"{path}[{index}]", is_code=is_code) for index, entry in enumerate(value)]
    if is_code and callable(value):
        return name_of_code(value, path)
    if isinstance(value, type) or isfunction(value):  # no value of this setting, as the conversion will say
        return value
    return value.tolist() if isinstance(value, _ArrayLike) else value


def _unknown_name_hint(name: str, path: str, hints: Mapping[str, Any]) -> str:
    """Return ` Expected ...` with what to write for an unknown setting; `hints` are the types of known settings."""
    # First a table below that has the name: a setting in the wrong table is a likelier slip than a misspelt one.
    elsewhere = [f"{path}.{table}.{name}".lstrip(".") for table in hints if name in _setting_names(hints[table])]
    if elsewhere:
        return f" Expected {', '.join(elsewhere)}."
    return did_you_mean(name, list(hints)) or f" Expected one of {', '.join(hints)}."


def _setting_names(declared_type: object) -> list[str]:
    """Return the names of the settings of a table's class; none for other types."""
    if isinstance(declared_type, type) and is_dataclass(declared_type):
        return [f.name for f in fields(declared_type)]
    return []


def _has_no_default(declared_field: Field[Any]) -> bool:
    return declared_field.default is MISSING and declared_field.default_factory is MISSING


def to_mapping(config: object) -> dict[str, Any]:
    """Return the configuration as nested plain values by field name, fields that are None included."""
    mapping: dict[str, Any] = {}
    for name, value in field_values(config):
        mapping[name] = to_mapping(value) if is_dataclass(value) else to_plain(value)
    return mapping


def field_values(config: object) -> Iterator[tuple[str, object]]:
    """Yield a configuration's fields with their values, in the order of the class."""
    assert is_dataclass(config)  # noqa: S101  (for the type checker)
    assert not isinstance(config, type)  # noqa: S101  (for the type checker)
    for f in fields(config):
        yield f.name, getattr(config, f.name)


def merge_tables(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of both tables and their inner tables; `overrides` wins, and its None drops a setting."""
    merged_table = dict(base)
    for name, value in overrides.items():
        old_value = merged_table.get(name, {})
        if isinstance(value, Mapping) and isinstance(old_value, Mapping):
            merged_table[name] = merge_tables(old_value, value)
        elif isinstance(value, Path):  # TOML has no paths and no tuples
            merged_table[name] = str(value)
        elif isinstance(value, tuple):
            merged_table[name] = list(value)
        else:
            merged_table[name] = value
    return {name: value for name, value in merged_table.items() if value is not None}


def flat_settings(mapping: Mapping[str, Any], table_path: str = "") -> dict[str, Any]:
    """Return all settings of nested tables in one dict by dotted path; `table_path` is the path of `mapping` itself."""
    flat: dict[str, Any] = {}
    for name, value in mapping.items():
        path = f"{table_path}.{name}" if table_path else name
        if isinstance(value, Mapping):
            flat |= flat_settings(value, path)
        else:
            flat[path] = value
    return flat


def with_settings(base: C, settings: Mapping[str, object], where: str) -> C:
    """Return a copy of `base` with other values, given by dotted path; `where` names their source in messages."""
    mapping = to_mapping(base)
    for name, value in settings.items():
        *tables, field_name = name.split(".")
        table = mapping
        for table_name in tables:
            table = table[table_name]
        table[field_name] = value
    return from_mapping(type(base), mapping, where)  # through the same checks as a file
