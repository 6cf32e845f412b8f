"""`@config` marks a frozen, keyword-only value; its field docstrings are the command line's help text."""

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def config(cls: type[T]) -> type[T]:
    """A frozen, keyword-only, slotted dataclass: compared by value, never changed after it was checked."""
    return dataclass(frozen=True, kw_only=True, slots=True)(cls)
