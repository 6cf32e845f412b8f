"""The range of a number, declared with its field, and checked in one place for files, options and code alike.

    rate: Annotated[float, Bounds(0, 100, above=True)] = 1e-4

Every field of a configuration has one: a number that is not finite, or far too large, is refused before anything is
allocated for it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from numbers import Real
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from flatwater_watch.errors import require

E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class Bounds:
    """All numbers from `low` to `high`."""

    low: float
    high: float
    above: bool = False
    """Whether `low` itself is excluded."""
    below: bool = False
    """Whether `high` itself is excluded."""
    words: tuple[str, ...] = ()
    """Words that are allowed instead of a number."""

    def allows(self, value: Any) -> bool:  # noqa: ANN401  (what a user may have given)
        """Return whether a value is a number in the range, or an allowed word; infinities and NaN are in no range."""
        if not isinstance(value, Real):
            return value in self.words
        number: Any = value
        is_high_enough = self.low < number if self.above else self.low <= number
        is_low_enough = number < self.high if self.below else number <= self.high
        return bool(is_high_enough and is_low_enough)  # NaN is below nothing and above nothing, and the ends are finite

    def __str__(self) -> str:
        """Return the bounds in words: `a number from 0 to 1,000,000 or auto`, or `a number above 0 and at most 1`."""
        if not self.above and not self.below:  # only such bounds have words
            return " or ".join((f"a number from {_bound_words(self.low)} to {_bound_words(self.high)}", *self.words))
        return (
            f"a number {'above' if self.above else 'of at least'} {_bound_words(self.low)} and "
            f"{'below' if self.below else 'at most'} {_bound_words(self.high)}"
        )


Count = Annotated[int, Bounds(1, 1 << 20)]
"""A number of objects that each take memory or time of their own."""
Number = Annotated[int, Bounds(1, 1 << 40)]
"""A number of events, or an amount."""
OptionalNumber = Annotated[int, Bounds(0, 1 << 40)]
"""A number of events, or an amount; 0 turns it off."""
Seed = Annotated[int, Bounds(-(1 << 40), 1 << 40)]
Workers = Annotated[int | Literal["auto"], Bounds(1, 1 << 10, words=("auto",))]
"""Processes that compute a run together; auto takes one for each core that is free at the start."""
Share = Annotated[float, Bounds(0, 1)]
Rate = Annotated[float, Bounds(0, 100, above=True)]
"""Learning rates and the like: above 0."""
Weight = Annotated[float, Bounds(0, 1e6)]
"""A weight in a sum; 0 turns its term off."""


def check_fields(instance: Any, table: str) -> None:  # noqa: ANN401  (any dataclass)
    """Check every field of an instance against its declared bounds; `table` is the path of its settings in messages."""
    check_values(type(instance), {f.name: getattr(instance, f.name) for f in fields(instance)}, table)


def check_values(cls: type, values: Mapping[str, object], table: str) -> None:
    """Check the values of fields, by name, against the bounds that the class declares for them.

    Texts and paths must be UTF-8 without NUL. `table` is the path of the settings in messages.
    """
    bounds = bounds_of(cls)
    for name, value in values.items():
        path = f"{table}.{name}" if table else name
        items = list(_items_with_paths(path, value))
        if name in bounds:  # a bound of a tuple holds for each of its items
            for item_path, number in items:
                require(bounds[name].allows(number), item_path, number, str(bounds[name]))
        for item_path, text in items:
            if isinstance(text, str | Path):
                require(_is_storable(str(text)), item_path, text, "text in UTF-8, without the NUL character")


@cache
def bounds_of(cls: type) -> Mapping[str, Bounds]:
    """Return the bounds of a dataclass's fields by name, without fields that have none."""
    extras = ((f.name, declared_extras(f.type, Bounds)) for f in fields(cls))
    return {name: bounds[0] for name, bounds in extras if bounds}


def declared_extras(annotation: Any, kind: type[E]) -> list[E]:  # noqa: ANN401  (any annotation)
    """Return the metadata of one type in an annotation and the annotations within it, the outermost first.

    Of `Annotated[int, Bounds(0, 9)] | None` and the type `Bounds`, it is `[Bounds(0, 9)]`.
    """
    extras = annotation.__metadata__ if get_origin(annotation) is Annotated else ()
    own_extras = [extra for extra in extras if isinstance(extra, kind)]
    return own_extras + [extra for part in get_args(annotation) for extra in declared_extras(part, kind)]


def _items_with_paths(path: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield a value with its path; for a tuple its items with theirs, such as `rates[0]`; nothing for None."""
    if isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _items_with_paths(f"{path}[{index}]", item)
    elif value is not None:
        yield path, value


def _is_storable(text: str) -> bool:
    """Return whether a text can be written to a file and given to the system: it is UTF-8 without a NUL character."""
    try:
        text.encode()
    except UnicodeEncodeError:  # bytes of a command line that are no UTF-8
        return False
    return "\0" not in text


def _bound_words(number: float) -> str:
    """Return a bound as people write it, such as `1,000,000` for 1e6."""
    return f"{int(number):,}" if number == int(number) else f"{number:g}"
