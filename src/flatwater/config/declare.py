"""`@config` marks a frozen, keyword-only value; its field docstrings are the command line's help text."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform, overload

from flatwater.config.bounds import check_fields

T = TypeVar("T")


@overload
def config(cls: type[T], /) -> type[T]: ...
@overload
def config(*, table: str) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, kw_only_default=True)
def config(cls: type[Any] | None = None, /, *, table: str = "") -> Any:
    """A frozen, keyword-only, slotted dataclass: compared by value, never changed after it was checked.

    Each field is held against the bounds declared with it; then the class's own `__post_init__` checks what must fit
    together.

    Args:
        cls: the class.
        table: where its settings stand in a run's configuration, for messages: `learner`, `env.fit`.
    """
    return _declared(cls, table) if cls is not None else lambda later: _declared(later, table)


def _declared(cls: type[Any], table: str) -> type[Any]:
    together: Callable[[object], None] | None = next(
        (vars(each)["__post_init__"] for each in cls.__mro__ if "__post_init__" in vars(each)), None
    )

    def check(self: object) -> None:
        check_fields(self, table)
        if together is not None:
            together(self)

    cls.__post_init__ = check
    return dataclass(frozen=True, kw_only=True, slots=True)(cls)
