"""The decorator `@config` for frozen, keyword-only values; the docstring below each field is its help text."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar, dataclass_transform, overload

from flatwater_watch.errors import ConfigError
from flatwater_watch.options.bounds import check_fields
from flatwater_watch.options.setting_text import short_setting

T = TypeVar("T")


class WordOption:
    """Mark of an option whose value people write without its name, as in `mirror RUN URL`."""


@overload
def config(cls: type[T], /) -> type[T]: ...
@overload
def config(*, table: str = ..., removed: Mapping[str, str] = ...) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, kw_only_default=True)
def config(
    cls: type[Any] | None = None, /, *, table: str = "", removed: Mapping[str, str] = MappingProxyType({})
) -> Any:
    """Make a class a frozen, keyword-only, slotted dataclass, each instance of which is checked.

    The check compares each field with its declared bounds, and then calls the class's own `__post_init__`.

    Args:
        cls: the class.
        table: path of its settings in a run's configuration, for messages: `learner`, `env.fit`.
        removed: settings of earlier versions, each with a sentence for users who still have them in a file: the version
            that removed it, and what to change.
    """
    if cls is None:  # `@config(...)`, with arguments
        return lambda declared: _declare_class(declared, table, removed)
    return _declare_class(cls, table, removed)


def removed_settings(cls: type[Any]) -> Mapping[str, str]:
    """Return the settings that earlier versions of a configuration's class had, each with the change to make."""
    removed: Mapping[str, str] = cls.__removed__
    return removed


def variant_class(cls: type[Any], values: Mapping[str, Any]) -> type[Any]:
    """Return the class to build from values: what `cls.__variant__(values)` returns, if a class has that; else `cls`.

    A variant has further settings, such as those of the algorithm that the values name.
    """
    has_variants = any("__variant__" in vars(owner) for owner in cls.__mro__)
    variant: type[Any] = cls.__variant__(values) if has_variants else cls
    return variant


def absent_settings(cls: type[Any]) -> Mapping[str, str]:
    """Return settings that users may expect in a configuration's class, each with the reason why it is missing.

    The class, or a base class, names them in its attribute `absent`.
    """
    field_names = {field.name for field in fields(cls)}
    declaring_classes = [owner for owner in cls.__mro__ if "absent" in vars(owner)]  # the class itself comes first
    reasons: Mapping[str, str] = vars(declaring_classes[0])["absent"] if declaring_classes else {}
    return {name: reason for name, reason in reasons.items() if name not in field_names}


def _declare_class(cls: type[Any], table: str, removed: Mapping[str, str]) -> type[Any]:
    """Make a class a frozen dataclass, whose instances are checked: each field, then by the class's own rules."""
    # The class's own `__post_init__`, or that of its nearest base class.
    declared_check: Callable[[object], None] | None = next(
        (vars(owner)["__post_init__"] for owner in cls.__mro__ if "__post_init__" in vars(owner)), None
    )

    def check(self: object) -> None:
        check_fields(self, table)
        if declared_check is not None:
            declared_check(self)

    cls.__post_init__ = check
    cls.__removed__ = removed
    return dataclass(frozen=True, kw_only=True, slots=True)(cls)


@cache
def field_docs(cls: type) -> dict[str, str]:
    """Return the docstrings of fields by name, inherited fields included, without fields that have none."""
    docs: dict[str, str] = {}
    for owner in reversed(cls.__mro__[:-1]):  # without `object`, and the class itself last, as its texts count
        docs |= _own_docs(owner)
    return docs


def _own_docs(cls: type) -> dict[str, str]:
    """Return the docstrings of the fields that a class itself declares, read from its source; none without source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except OSError:  # a class made in an interactive session has no source
        return {}
    body = tree.body[0]
    if not isinstance(body, ast.ClassDef):
        return {}
    docs = {}
    # Each statement with the next one: the last has none.
    for statement, next_statement in zip(body.body, body.body[1:], strict=False):
        match statement, next_statement:  # a field, and a text below it
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = inspect.cleandoc(text)
    return docs


def refuse_given_settings(config: Any, table: str, reason: str) -> None:  # noqa: ANN401  (any settings)
    """Raise an error if a setting of a table that nobody reads differs from its default.

    Args:
        config: settings of the table.
        table: dotted path of the table.
        reason: text behind "expected its default (...) ": the other setting, and the change to make.

    Raises:
        ConfigError: a setting differs; the message names the first.
    """
    defaults = type(config)()  # settings have defaults
    for field in fields(config):
        value, default = getattr(config, field.name), getattr(defaults, field.name)
        if value != default:
            raise ConfigError(
                f"{table}.{field.name} = {short_setting(value)}: "
                f"expected its default ({short_setting(default)}) {reason}"
            )
