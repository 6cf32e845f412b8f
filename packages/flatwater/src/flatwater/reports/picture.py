"""`result.png`: the charts of a run as one picture, by matplotlib, in the light colours of the page."""

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from flatwater.recipe import Recipe
from flatwater.reports.recipe_parts import own_picture
from flatwater.reports.records import read_run
from flatwater.rundir.layout import RunFolder
from flatwater_watch.files.directory import write_object
from flatwater_watch.pages.asset_files import read_asset
from flatwater_watch.pages.chart import Axis, Band, Bars, Chart, Dots, Grid, Line, Mark, Picture, Spans

WIDTH_INCHES = 11.0
"""Width in inches."""
PIXELS_PER_INCH = 92.0
"""Pixels of a chart on a page that make an inch of the picture."""
MARGIN_PIXELS = 50
"""Pixels that the title and the legend of a chart take."""
POINTS_PER_INCH = 72.0
"""Points of an inch."""
MAXIMUM_LETTERS = 30
"""Most letters of a name in a legend or at an axis."""
LETTER_POINTS, SYMBOL_LETTERS = 4.7, 8
"""Points of a letter in a legend, and the letters that a name's symbol takes."""
LOG_RATIO = 10.0
"""A logarithmic axis over more than this factor has a power of ten to mark."""
EDGE_SHARE = 0.02
"""Share of the rounds that is left free at both ends, so that dots are whole."""
MARKERS = {"circle": "o", "up": "^", "down": "v"}


def draw_run(path: Path, recipe: Recipe | None = None) -> None:
    """Draw a finished run into its folder, from that folder alone.

    Args:
        path: folder of the run.
        recipe: the recipe that has just trained it; None if the folder is only read.

    Raises:
        RunError: a file of the run is damaged, or the picture cannot be written.
    """
    run = read_run(path)
    write_picture(RunFolder(path).picture, own_picture(run, recipe))


def write_picture(out: Path, rows: Picture) -> None:
    """Write charts as a PNG file, whole or not at all.

    Args:
        out: file to write.
        rows: rows of charts, from above.

    Raises:
        RunError: the file cannot be written.
    """
    # Drawn in memory first: if that fails, the old file stays.
    buffer = io.BytesIO()
    with mpl.rc_context(_matplotlib_settings()):
        paint_figure(rows).savefig(buffer, dpi=130)
    with buffer.getbuffer() as picture:  # Python 3.13 warns of a buffer that is not released
        write_object(out, picture)


def paint_figure(rows: Picture) -> Figure:
    """Return a figure with the rows of charts, the first at the top."""
    heights = [max(part.height for part in row) + MARGIN_PIXELS for row in rows]
    with mpl.rc_context(_matplotlib_settings()):
        # A Figure of its own: pyplot keeps every figure in a registry until it is closed.
        figure = Figure(figsize=(WIDTH_INCHES, sum(heights) / PIXELS_PER_INCH), layout="constrained")
        row_figures = _subfigures(figure, len(rows), height_ratios=heights)
        for row_figure, row in zip(row_figures, rows, strict=True):
            weights = [chart.weight for chart in row]
            subfigures = _subfigures(row_figure, 1, columns=len(row), width_ratios=weights)
            for subfigure, chart in zip(subfigures, row, strict=True):
                _draw_part(subfigure, chart)
    return figure


def _subfigures(figure: Figure | SubFigure, rows: int, columns: int = 1, **ratios: Any) -> list[SubFigure]:  # noqa: ANN401  (matplotlib's)
    """Return a figure's subfigures row by row.

    Args:
        figure: the figure to divide.
        rows: number of rows.
        columns: number of columns.
        ratios: `height_ratios` or `width_ratios`, of matplotlib.
    """
    subfigures = figure.subfigures(rows, columns, squeeze=False, **ratios)
    return list(subfigures.flat)


def _matplotlib_settings() -> dict[Any, Any]:
    """Return the settings of matplotlib for these pictures, in the light theme of the pages."""
    ink, faint = theme_colour("--ink"), theme_colour("--faint")
    return {
        "font.size": 9,
        "axes.edgecolor": faint,
        "axes.labelcolor": ink,
        "axes.titleweight": "bold",
        "axes.titlesize": 10,
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": faint,
        "xtick.color": ink,
        "ytick.color": ink,
        "text.color": ink,
        "text.parse_math": False,  # names are the user's: one with dollars is not a formula
    }


@cache
def _light_colours() -> dict[str, str]:
    """Return the colours of the style sheet in the light theme, by name."""
    light, _, _ = read_asset("page.css").partition("@media")  # the dark theme follows in a media query
    return dict(re.findall(r"(--[\w-]+): (#[0-9a-f]{6})", light))


def theme_colour(name: str) -> str:
    """Return the colour of a name of the style sheet; `#rrggbb` is returned unchanged."""
    return _light_colours()[name] if name.startswith("--") else name


def _draw_part(subfigure: SubFigure, part: Chart | Grid) -> None:
    """Draw a chart, or a grid of small charts, and a legend below if the marks have several names."""
    if isinstance(part, Chart):
        axes = subfigure.subplots()
        axes.set_title(part.title)
        _paint_chart(axes, part)
        marks_by_name = {mark.name: mark for mark in part.marks}
    else:
        columns = min(part.columns, len(part.charts))
        row_count = -(-len(part.charts) // columns)  # rounded up
        grid = subfigure.subplots(row_count, columns, squeeze=False)
        for axes, chart in zip(grid.flat, part.charts, strict=False):
            axes.set_title(chart.title, fontsize=9, fontweight="normal")
            _paint_chart(axes, chart)
            # Charts with one and the same y axis have its labels in the first column alone.
            if chart.y == part.charts[0].y:
                axes.tick_params(labelleft=axes in grid[:, 0])
        for axes in grid.flat[len(part.charts) :]:  # places of the last row that have no chart
            axes.set_visible(False)
        subfigure.suptitle(part.title, x=0.01, ha="left", fontsize=10, fontweight="bold")
        marks_by_name = part.legend
    if len(marks_by_name) > 1:
        _draw_legend(subfigure, marks_by_name)


def _draw_legend(subfigure: SubFigure, marks_by_name: Mapping[str, Mark]) -> None:
    """Draw a legend below a chart, in as few rows as its width allows, all of about the same length."""
    names = list(map(_short_label, marks_by_name))
    handles = [_legend_handle(mark) for mark in marks_by_name.values()]
    width_points = subfigure.bbox.width / subfigure.dpi * POINTS_PER_INCH
    column_letters = max(map(len, names)) + SYMBOL_LETTERS
    fitting_columns = max(1, int(width_points / LETTER_POINTS / column_letters))
    rows = -(-len(names) // fitting_columns)  # rounded up, as are the columns
    columns = -(-len(names) // rows)
    subfigure.legend(handles, names, loc="outside lower center", ncols=columns, fontsize=8, frameon=False)


def _short_label(name: str) -> str:
    return name if len(name) <= MAXIMUM_LETTERS else f"{name[: MAXIMUM_LETTERS - 1]}…"


def _legend_handle(mark: Mark) -> Artist:
    """Return the artist that stands for a mark in the legend."""
    # Bars may have a colour each: the first stands for all.
    shade = theme_colour(mark.colour if isinstance(mark.colour, str) else mark.colour[0])
    if isinstance(mark, Dots):
        return Line2D([], [], ls="", marker=MARKERS[mark.symbol], ms=5, color=shade)
    if isinstance(mark, Line) and not mark.stacked:
        return Line2D([], [], color=shade, lw=mark.width, ls="--" if mark.dashed else "-")
    return Patch(color=shade)


def _paint_chart(axes: Axes, chart: Chart) -> None:
    """Paint a chart's marks, its vertical lines and both axes."""
    stack_heights: dict[Any, float] = {}  # height of the stack so far, by position
    side_by_side = [mark for mark in chart.marks if isinstance(mark, Bars) and not mark.stacked]
    for mark in chart.marks:
        match mark:
            case Line() if mark.stacked:
                _paint_stacked_mark(axes, mark.x, _finite_numbers(mark.y), mark, stack_heights)
            case Line():
                _paint_line(axes, mark)
            case Band():
                shade = theme_colour(mark.colour)
                area = _axis_places(mark.x), _finite_numbers(mark.low), _finite_numbers(mark.high)
                axes.fill_between(*area, color=shade, lw=0, alpha=mark.opacity)
            case Dots():
                symbol, shade = MARKERS[mark.symbol], theme_colour(mark.colour)
                axes.plot(_axis_places(mark.x), _finite_numbers(mark.y), symbol, ms=4, color=shade, zorder=3)
            case Bars() if mark.stacked:
                _paint_stacked_mark(axes, mark.at, _finite_numbers(mark.values), mark, stack_heights)
            case Bars():
                _paint_bars(axes, mark, chart, place=(side_by_side.index(mark), len(side_by_side)))
            case Spans():
                starts, ends = _axis_places(mark.starts), _axis_places(mark.ends)
                rows = chart.y.place_values(mark.rows)
                axes.barh(rows, ends - starts, mark.thickness, left=starts, color=theme_colour(mark.colour))
    for position in chart.vertical_lines:
        axes.axvline(_axis_places([position])[0], color=theme_colour("--quiet"), lw=0.7, ls=":", zorder=1)
    _paint_axis(axes, chart.x, "x")
    _paint_axis(axes, chart.drawn_y_axis, "y")


def _paint_line(axes: Axes, mark: Line) -> None:
    """Paint a line; a single finite value is a dot, as a line would have no length."""
    values = _finite_numbers(mark.y)
    has_dots = mark.dots or int(np.isfinite(values).sum()) == 1
    axes.plot(
        _axis_places(mark.x),
        values,
        "--" if mark.dashed else "-",
        marker="o" if has_dots else "",
        ms=3,
        lw=mark.width,
        color=theme_colour(mark.colour),
        zorder=3 if mark.in_front else 2,
    )


def _paint_stacked_mark(
    axes: Axes, positions: Sequence[Any], values: np.ndarray, mark: Line | Bars, stack_heights: dict[Any, float]
) -> None:
    """Paint an area, or bars, on top of those painted before.

    Args:
        axes: the axes to paint on.
        positions: positions of the values.
        values: heights; NaN adds nothing.
        mark: gives colour, and whether these are bars.
        stack_heights: height of the stack so far by position, updated.
    """
    bottoms = np.array([stack_heights.get(position, 0.0) for position in positions])
    shade = _bar_colours(mark)
    if isinstance(mark, Bars) or len(positions) == 1:  # an area needs two positions
        # As shares of the distance between positions; a single bar would otherwise fill the chart.
        width = 0.5 if len(positions) == 1 else 0.88
        axes.bar(positions, values, width, bottom=bottoms, color=shade)
    else:
        axes.fill_between(_axis_places(positions), bottoms, bottoms + values, color=shade, lw=0)
    stack_heights |= dict(zip(positions, bottoms + np.nan_to_num(values), strict=True))


def _paint_bars(axes: Axes, mark: Bars, chart: Chart, place: tuple[int, int]) -> None:
    """Paint bars of one name, next to the bars of other names.

    Args:
        axes: the axes to paint on.
        mark: the bars; horizontal if `horizontal` is set.
        chart: the chart, whose axes turn positions into numbers.
        place: index of this name among those that stand side by side, and their count.
    """
    axis = chart.y if mark.horizontal else chart.x
    index, count = place
    bar_width = 0.7 / count  # together the bars take 70 % of the distance between two positions
    offset = (index - (count - 1) / 2) * bar_width
    positions = np.asarray(axis.place_values(mark.at), dtype=float) + offset
    values = _finite_numbers(mark.values)
    draw_bars = axes.barh if mark.horizontal else axes.bar
    draw_bars(positions, values, 0.9 * bar_width, color=_bar_colours(mark))  # a tenth is left between neighbours
    ends = values
    if mark.low:
        low, high = _finite_numbers(mark.low), _finite_numbers(mark.high)
        error_bars = np.clip(np.stack([values - low, high - values]), 0, None)  # an interval need not hold the value
        error_position: Any = (
            {"x": values, "y": positions, "xerr": error_bars}
            if mark.horizontal
            else {"x": positions, "y": values, "yerr": error_bars}
        )
        axes.errorbar(**error_position, fmt="none", ecolor=theme_colour("--ink"), lw=1.2, capsize=3)
        ends = np.maximum(ends, high)
    if mark.labels:
        # Beside the end of the interval, and within the axes.
        for middle, end, label in zip(positions, np.nan_to_num(np.maximum(ends, 0)), mark.labels, strict=True):
            x, y, alignment, level = (
                (end, middle, "left", "center") if mark.horizontal else (middle, end, "center", "bottom")
            )
            axes.text(x, y, f" {_short_label(label)} ", ha=alignment, va=level, fontsize=8)
        # Room for the labels of the longest bars: a part of the axis along which bars extend.
        axes.margins(*((0.15, None) if mark.horizontal else (None, 0.15)))


def _bar_colours(mark: Line | Bars) -> Any:  # noqa: ANN401  (as matplotlib takes them)
    """Return the colour of a mark, or a list with the colour of each of its bars."""
    if isinstance(mark.colour, str):
        return theme_colour(mark.colour)
    return [theme_colour(name) for name in mark.colour]


def _axis_places(values: Iterable[Any]) -> np.ndarray:
    """Return dates as an array of days, and numbers as an array of floats."""
    items = list(values)
    return np.asarray(items, dtype="datetime64[D]" if items and isinstance(items[0], date) else float)


def _finite_numbers(values: Iterable[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], dtype=float)


def _paint_axis(axes: Axes, spec: Axis, name: str) -> None:
    """Set an axis' title, ticks and span; `name` is `x` or `y`. Call it after the marks, as it reads their extent."""
    axis = axes.xaxis if name == "x" else axes.yaxis
    set_limits = axes.set_xlim if name == "x" else axes.set_ylim
    (axes.set_xlabel if name == "x" else axes.set_ylabel)(spec.title)
    if spec.rows:
        axis.set_ticks(range(len(spec.rows)), [_short_label(label) for label in spec.rows])
        set_limits(-0.5, len(spec.rows) - 0.5)
        axes.grid(visible=False, axis=name)  # type: ignore[arg-type]
        return  # an axis of rows has no unit, zero or span
    if spec.kind == "date":
        locator = AutoDateLocator(minticks=2, maxticks=6)  # type: ignore[no-untyped-call]
        axis.set_major_locator(locator)
        axis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
        return  # nor has an axis of dates
    if spec.kind == "log":
        (axes.set_xscale if name == "x" else axes.set_yscale)("log")
        low, high = axes.dataLim.intervaly if name == "y" else axes.dataLim.intervalx
        # Within a decade there may be no power of ten to mark, so ticks are plain there.
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)) if high > LOG_RATIO * low > 0 else MaxNLocator(6))
        axis.set_minor_formatter(NullFormatter())
    elif spec.kind == "round":
        axis.set_major_locator(MaxNLocator(integer=True))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}{spec.unit}"))
    if spec.zero:
        (axes.axvline if name == "x" else axes.axhline)(0, color=theme_colour("--quiet"), lw=0.7)
    if spec.span is not None:
        start, end = spec.span
        margin = EDGE_SHARE * (end - start) if spec.kind == "round" else 0.0
        set_limits(start - margin, end + margin)
    elif spec.from_zero:
        low = axes.dataLim.x0 if name == "x" else axes.dataLim.y0
        if low >= 0:
            set_limits(0)
