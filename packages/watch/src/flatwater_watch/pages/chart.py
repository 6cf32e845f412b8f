"""A chart as data, drawn on a page by `pages.plotly_charts` and in a PNG file by `reports.picture`.

A colour is the name of a variable in `assets/page.css` (`--champion`), which has a light and a dark value, or
`#rrggbb`. A number that is not finite, or None, is a gap.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from flatwater_watch.pages.chart_values import finite_or_none

MINIMUM_SPAN_SHARE = 0.05
"""Smallest range of a fitted axis, as a share of the largest value on it."""

Values = Sequence[float | None]


@dataclass(frozen=True, kw_only=True)
class Line:
    """A curve, or a single point if it has no more."""

    name: str
    x: Sequence[Any]
    y: Values
    colour: str
    width: float = 1.8
    """Width in pixels."""
    dashed: bool = False
    """Whether the curve is drawn with dashes."""
    dots: bool = False
    """Whether each point has a dot."""
    stacked: bool = False
    """Whether the area down to the curves stacked below it is filled."""
    in_front: bool = False
    """Whether the curve is drawn over all others."""
    form: str = ",.2f"
    """Format of a value at the pointer."""
    hover_text: Sequence[str] = ()
    """Further text of each point at the pointer."""


@dataclass(frozen=True, kw_only=True)
class Band:
    """An area from a lower to an upper curve."""

    name: str
    x: Sequence[Any]
    low: Values
    high: Values
    colour: str = "--band"
    opacity: float = 1.0
    """From 0 to 1: bands of several colours lie over each other."""


@dataclass(frozen=True, kw_only=True)
class Dots:
    """A mark for each point."""

    name: str
    x: Sequence[Any]
    y: Values
    colour: str
    symbol: Literal["circle", "up", "down"] = "circle"
    form: str = ",.2f"
    """Format of a value at the pointer."""
    hover_text: Sequence[str] = ()
    """Further text of each point at the pointer."""


@dataclass(frozen=True, kw_only=True)
class Bars:
    """A bar for each place; bars of several names at one place stand side by side, or on each other."""

    name: str
    at: Sequence[Any]
    values: Values
    colour: str | Sequence[str]
    """Colour of all bars, or of each."""
    horizontal: bool = False
    """Whether bars go from left to right, from rows of the vertical axis."""
    stacked: bool = False
    """Whether bars of several names at one place stand on each other, not side by side."""
    low: Values = ()
    high: Values = ()
    """The ends of an interval around each value."""
    labels: Sequence[str] = ()
    """Text next to the end of each bar."""
    form: str = ",.2f"


@dataclass(frozen=True, kw_only=True)
class Spans:
    """Bars in rows of the vertical axis, each from a start to an end."""

    name: str
    rows: Sequence[Any]
    starts: Sequence[Any]
    ends: Sequence[Any]
    colour: str
    hover_text: Sequence[str] = ()
    """Further text of each bar at the pointer."""
    thickness: float = 0.6
    """Thickness of a bar, as a share of its row."""


Mark = Line | Band | Dots | Bars | Spans


@dataclass(frozen=True, kw_only=True)
class Axis:
    """An axis of a chart."""

    kind: Literal["number", "round", "date", "log"] = "number"
    """What its places are; `round` is a whole number, `log` a number on a logarithmic axis."""
    title: str = ""
    unit: str = ""
    """Unit behind each number."""
    span: tuple[float, float] | None = None
    """First and last value; None fits the axis to the marks."""
    zero: bool = False
    """Whether there is a line at 0."""
    from_zero: bool = False
    """Whether a fitted axis begins at 0."""
    rows: Sequence[str] = ()
    """Names instead of numbers, from below or from the left; marks give a name as their place."""

    def place_values(self, values: Sequence[Any]) -> list[Any]:
        """Return the places of marks on this axis: for the name of a row its number, any other value as it is."""
        numbers: dict[Hashable, int] = {name: number for number, name in enumerate(self.rows)}
        return [numbers.get(value, value) for value in values]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One chart."""

    shape: ClassVar = "chart"
    title: str
    marks: Sequence[Mark]
    """Marks, in the order of drawing."""
    reading: str = ""
    """Text below the chart on a page, on how to read it."""
    x: Axis = Axis()
    y: Axis = Axis()
    height: int = 320
    """Pixels of its drawing on a page; a picture keeps the proportion."""
    weight: float = 1.0
    """Relative width in a row of a picture."""
    vertical_lines: Sequence[Any] = ()
    """Places of thin vertical lines."""

    @property
    def drawn_y_axis(self) -> Axis:
        """The y axis as it is drawn: an axis that is fitted to curves has a minimum span, so that noise looks flat."""
        curves = [mark for mark in self.marks if isinstance(mark, Line) and not mark.stacked]
        values = [value for curve in curves for value in finite_or_none(curve.y) if value is not None]
        # Only an axis that fits itself to its values makes a small noise look large.
        is_fitted = self.y.span is None and self.y.kind == "number" and not self.y.rows and not self.y.from_zero
        has_only_curves = len(curves) == len(self.marks)
        if not values or not is_fitted or not has_only_curves:
            return self.y
        minimum_span = MINIMUM_SPAN_SHARE * max(map(abs, values))
        if max(values) - min(values) >= minimum_span:
            return self.y
        middle = (min(values) + max(values)) / 2  # the curves stay in the middle of the wider axis
        return replace(self.y, span=(middle - minimum_span / 2, middle + minimum_span / 2))


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Small charts of one kind side by side, with one legend."""

    shape: ClassVar = "grid"
    title: str
    charts: Sequence[Chart]
    reading: str = ""
    wide: int = 240
    """Minimum pixels of each chart on a page."""
    columns: int = 4
    """Maximum columns in a picture."""
    height: int = 320
    """Pixels of the whole grid in a picture."""
    weight: float = 1.0
    """Relative width in a row of a picture."""

    @property
    def legend(self) -> dict[str, Mark]:
        """The first mark of each name, by name."""
        marks: dict[str, Mark] = {}
        for mark in (mark for chart in self.charts for mark in chart.marks):
            marks.setdefault(mark.name, mark)
        return marks


Picture = Sequence[Sequence[Chart | Grid]]
"""Rows of charts, as a PNG file has them."""


def round_axis(rounds: Sequence[float], title: str = "round") -> Axis:
    """Return an axis that ends at the first and the last round; a single round is in its middle."""
    ends = (rounds[0] - 1, rounds[0] + 1) if len(rounds) == 1 else (rounds[0], rounds[-1])
    return Axis(kind="round", title=title, span=ends)


def axis_ends(rounds: Sequence[float]) -> list[float]:
    """Return the first and the last place on the axis of rounds, for a line from edge to edge."""
    first, last = round_axis(rounds).span or (0.0, 0.0)  # it always has a span
    return [first, last]
