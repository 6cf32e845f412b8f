"""A chart as data, drawn on a page by `reports.plotly_charts` and in a PNG file by `reports.picture`.

A colour is the name of a variable in `assets/page.css` (`--champion`), which has a light and a dark value, or
`#rrggbb`. A number that is not finite, or None, is a gap.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from math import isfinite
from typing import Any, ClassVar, Literal

MOST_POINTS = 500
"""Points of a curve: more than a screen can show, and few enough for a page of any run."""
UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1))

Values = Sequence[float | None]


@dataclass(frozen=True, kw_only=True)
class Line:
    """A curve; where it has one point only, that point."""

    name: str
    x: Sequence[Any]
    y: Values
    colour: str
    width: float = 1.8
    dashed: bool = False
    dots: bool = False
    """A dot at each point."""
    stacked: bool = False
    """The area between this curve and those that are stacked below it."""
    front: bool = False
    """Drawn over all others."""
    form: str = ",.2f"
    """How a value is written where the pointer rests."""
    said: Sequence[str] = ()
    """What is said of each point besides."""


@dataclass(frozen=True, kw_only=True)
class Band:
    """From a lower to an upper curve."""

    name: str
    x: Sequence[Any]
    low: Values
    high: Values
    colour: str = "--band"


@dataclass(frozen=True, kw_only=True)
class Dots:
    """A mark for each point."""

    name: str
    x: Sequence[Any]
    y: Values
    colour: str
    symbol: Literal["circle", "up", "down"] = "circle"
    form: str = ",.2f"
    said: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Bars:
    """A bar for each place; bars of several names at one place stand beside each other, or on each other."""

    name: str
    at: Sequence[Any]
    values: Values
    colour: str | Sequence[str]
    """Of all, or of each."""
    across: bool = False
    """From left to right, from rows of the vertical axis."""
    stacked: bool = False
    low: Values = ()
    high: Values = ()
    """The ends of an interval around each value."""
    labels: Sequence[str] = ()
    """Beside the end of each bar."""
    form: str = ",.2f"


@dataclass(frozen=True, kw_only=True)
class Spans:
    """Bars in rows of the vertical axis, each from a start to an end."""

    name: str
    rows: Sequence[Any]
    starts: Sequence[Any]
    ends: Sequence[Any]
    colour: str
    said: Sequence[str] = ()
    thick: float = 0.6
    """Part of the row."""


Mark = Line | Band | Dots | Bars | Spans


@dataclass(frozen=True, kw_only=True)
class Axis:
    """What the marks are measured on."""

    kind: Literal["number", "round", "date", "log"] = "number"
    title: str = ""
    unit: str = ""
    """Behind each number."""
    span: tuple[float, float] | None = None
    """Where it begins and ends. Left out: as the marks need it."""
    zero: bool = False
    """A line at 0."""
    from_zero: bool = False
    rows: Sequence[str] = ()
    """Names instead of numbers, from below or from the left; marks give a name as their place."""

    def place_values(self, values: Sequence[Any]) -> list[Any]:
        """Names of rows as their numbers; all others as they are."""
        numbers: dict[Hashable, int] = {name: number for number, name in enumerate(self.rows)}
        return [numbers.get(value, value) for value in values]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One chart."""

    shape: ClassVar = "chart"
    title: str
    marks: Sequence[Mark]
    """Drawn in this order."""
    reading: str = ""
    """Below it on a page: how to read it."""
    x: Axis = Axis()
    y: Axis = Axis()
    height: int = 320
    """Pixels of its drawing on a page; a picture keeps the proportion."""
    weight: float = 1.0
    """How wide it is in a row of a picture, beside the others."""
    uprights: Sequence[Any] = ()
    """Places with a thin line from below to above."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Small charts of one kind beside each other, with one legend."""

    shape: ClassVar = "grid"
    title: str
    charts: Sequence[Chart]
    reading: str = ""
    wide: int = 240
    """Pixels of each on a page at least."""
    columns: int = 4
    """In a picture at most."""
    height: int = 320
    """Pixels of all together in a picture."""
    weight: float = 1.0

    @property
    def legend(self) -> dict[str, Mark]:
        """Each name, with the first mark that has it."""
        found: dict[str, Mark] = {}
        for mark in (mark for chart in self.charts for mark in chart.marks):
            found.setdefault(mark.name, mark)
        return found


Picture = Sequence[Sequence[Chart | Grid]]
"""Rows of charts."""


def read_asset(name: str) -> str:
    """A file of `assets/`."""
    return files("flatwater_watch.pages").joinpath("assets", name).read_text(encoding="utf-8")


def round_axis(rounds: Sequence[float], title: str = "round") -> Axis:
    """The axis of rounds from edge to edge; one round alone stands in the middle."""
    ends = (rounds[0] - 1, rounds[0] + 1) if len(rounds) == 1 else (rounds[0], rounds[-1])
    return Axis(kind="round", title=title, span=ends)


def axis_ends(rounds: Sequence[float]) -> list[float]:
    """The first and the last place on the axis of rounds, for a line from edge to edge."""
    first, last = round_axis(rounds).span or (0.0, 0.0)
    return [first, last]


def finite_or_none(values: Iterable[float | None]) -> list[float | None]:
    """None where there is no number."""
    return [value if value is not None and isfinite(value) else None for value in values]


def byte_unit(values: Iterable[float]) -> tuple[str, int]:
    """The largest unit in which the largest value is at least 1, with its bytes."""
    most = max((abs(value) for value in values), default=0)
    return next((found for found in UNITS if most >= found[1]), UNITS[-1])


def largest_values(values: dict[str, float], most: int, names: str) -> tuple[list[tuple[str, float]], str]:
    """The largest values, from the smallest of them up, and a sentence on the others.

    Args:
        values: by name.
        most: of them are shown.
        names: what they are, in the plural.
    """
    shown = sorted(values.items(), key=lambda item: item[1])[-most:]
    rest = len(values) - len(shown)
    return shown, f" The other {rest} {names} have less each." if rest else ""
