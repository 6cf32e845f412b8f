"""`@config` marks a frozen, keyword-only value; its field docstrings are the command line's help text."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar, dataclass_transform, overload

from flatwater.config.bounds import check_fields

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

    Each field is held against the bounds declared with it; then the class's own `__post_init__` checks what must fit
    together.

    Args:
        cls: the class.
        table: where its settings stand in a run's configuration, for messages: `learner`, `env.fit`.
        removed: settings that there were, with a sentence each for those who still have them in a file: since when
            there is none, and what to change.
    """
    return _declared(cls, table, removed) if cls is not None else lambda later: _declared(later, table, removed)


def removed_settings(cls: type[Any]) -> Mapping[str, str]:
    """The settings that a configuration's class had once, and what to change."""
    found: Mapping[str, str] = cls.__removed__
    return found


def _declared(cls: type[Any], table: str, removed: Mapping[str, str]) -> type[Any]:
    together: Callable[[object], None] | None = next(
        (vars(each)["__post_init__"] for each in cls.__mro__ if "__post_init__" in vars(each)), None
    )

    def check(self: object) -> None:
        check_fields(self, table)
        if together is not None:
            together(self)

    cls.__post_init__ = check
    cls.__removed__ = removed
    return dataclass(frozen=True, kw_only=True, slots=True)(cls)
