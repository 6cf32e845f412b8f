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


@overload
def config(cls: type[T], /) -> type[T]: ...
@overload
def config(*, table: str = ..., removed: Mapping[str, str] = ...) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, kw_only_default=True)
def config(
    cls: type[Any] | None = None, /, *, table: str = "", removed: Mapping[str, str] = MappingProxyType({})
) -> Any:
    """A frozen, keyword-only, slotted dataclass: compared by value, never changed after it was checked.

    Each field is checked against its declared bounds; then the class's own `__post_init__` checks combinations.

    Args:
        cls: the class.
        table: path of its settings in a run's configuration, for messages: `learner`, `env.fit`.
        removed: settings of earlier versions, each with a sentence for users who still have them in a file: the version
            that removed it, and what to change.
    """
    return (
        _declare_class(cls, table, removed)
        if cls is not None
        else lambda declared: _declare_class(declared, table, removed)
    )


def removed_settings(cls: type[Any]) -> Mapping[str, str]:
    """The settings that earlier versions of a configuration's class had, each with the change to make."""
    removed: Mapping[str, str] = cls.__removed__
    return removed


def variant_class(cls: type[Any], values: Mapping[str, Any]) -> type[Any]:
    """The class to build from values: one with `__variant__` may have more settings for some of them."""
    has_some = any("__variant__" in vars(owner) for owner in cls.__mro__)
    variant: type[Any] = cls.__variant__(values) if has_some else cls
    return variant


def absent_settings(cls: type[Any]) -> Mapping[str, str]:
    """Settings that users may expect in a configuration's class, and the reason why it has none."""
    field_names = {each.name for each in fields(cls)}
    reasons: Mapping[str, str] = next((vars(each)["absent"] for each in cls.__mro__ if "absent" in vars(each)), {})
    return {name: reason for name, reason in reasons.items() if name not in field_names}


def _declare_class(cls: type[Any], table: str, removed: Mapping[str, str]) -> type[Any]:
    """Make a class a frozen dataclass; each value that is built is checked, its fields first, then its own rules."""
    whole_check: Callable[[object], None] | None = next(
        (vars(owner)["__post_init__"] for owner in cls.__mro__ if "__post_init__" in vars(owner)), None
    )

    def check(self: object) -> None:
        check_fields(self, table)
        if whole_check is not None:
            whole_check(self)

    cls.__post_init__ = check
    cls.__removed__ = removed
    return dataclass(frozen=True, kw_only=True, slots=True)(cls)


@cache
def field_docs(cls: type) -> dict[str, str]:
    """The docstrings of fields by name, inherited fields included; fields without one are left out."""
    docs: dict[str, str] = {}
    for owner in reversed(cls.__mro__[:-1]):
        docs |= _own_docs(owner)
    return docs


def _own_docs(cls: type) -> dict[str, str]:
    """Docstrings of the fields that a class itself declares, from its source; empty if there is no source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except OSError:  # a class made in an interactive session has no source
        return {}
    body = tree.body[0]
    if not isinstance(body, ast.ClassDef):
        return {}
    docs = {}
    for statement, sentence in zip(body.body, body.body[1:], strict=False):
        match statement, sentence:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = inspect.cleandoc(text)
    return docs


def refuse_given(config: Any, table: str, because: str) -> None:  # noqa: ANN401  (any settings)
    """Refuse a table with a setting that differs from its default.

    Args:
        config: settings of a table that nobody reads.
        table: dotted path of the table.
        because: text behind "must be left at its default (...) ": the other setting, and the change to make.

    Raises:
        ConfigError: a setting differs; the message names the first.
    """
    defaults = type(config)()  # settings have defaults
    for f in fields(config):
        value, default = getattr(config, f.name), getattr(defaults, f.name)
        if value != default:
            raise ConfigError(
                f"{table}.{f.name} = {short_setting(value)}: must be left at its default ({short_setting(default)}) "
                f"{because}"
            )
