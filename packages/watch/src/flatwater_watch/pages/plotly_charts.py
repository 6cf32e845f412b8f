"""Converts charts to the data that plotly.js reads, for a page.

plotly.js reads tags in names, texts, ticks and titles, so these are escaped. `meta` has the plain name for the legend,
which is text.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from html import escape
from typing import Any

from flatwater_watch.pages.chart import Axis, Band, Bars, Chart, Dots, Line, Mark, Spans
from flatwater_watch.pages.chart_values import finite_or_none

FEW_POINTS = 8
"""Maximum rounds of an axis with a mark for each."""
MINIMUM_LOG_RATIO = 10.0
"""Ratio of the highest to the lowest value above which a logarithmic axis has a mark for each power of ten."""
SYMBOLS = {"circle": "circle", "up": "triangle-up", "down": "triangle-down"}
DAY_MILLISECONDS = 86_400_000
"""Milliseconds of a day: plotly.js measures a span of dates in milliseconds."""

Trace = dict[str, Any]
"""What plotly.js draws as one: a curve, dots or bars."""


def plotly_figure(chart: Chart) -> dict[str, Any]:
    """Return a chart as plotly.js reads it from JSON: its traces and its layout."""
    traces = [_complete_trace(mark, trace) for mark in chart.marks for trace in _mark_traces(mark, chart)]
    layout = {
        "xaxis": _axis_layout(chart.x),
        "yaxis": _axis_layout(chart.drawn_y_axis, decades=_spans_decades(chart)),
        # The pointer shows the mark below it, or the values of all curves at its place.
        "hovermode": "closest" if _has_separate_marks(chart) else "x unified",
        "barmode": _bar_mode(chart.marks),
        # Gap between bars, as a share of their distance: smaller for rounds, of which there are many.
        "bargap": 0.12 if chart.x.kind == "round" else 0.3,
        "shapes": [_vertical_line_shape(place) for place in chart.vertical_lines],
    }
    return {"data": traces, "layout": _escape_texts(layout)}


def _spans_decades(chart: Chart) -> bool:
    """Return whether the values of the curves that a logarithmic axis shows, the positive ones, span over a decade."""
    curves = [mark for mark in chart.marks if isinstance(mark, Line)]
    positive_values = [value for curve in curves for value in finite_or_none(curve.y) if value and value > 0]
    return bool(positive_values) and max(positive_values) > MINIMUM_LOG_RATIO * min(positive_values)


def _has_separate_marks(chart: Chart) -> bool:
    """Return whether each mark is read by itself, as dots and rows are, and not against others at the same place."""
    if chart.y.rows:
        return True
    return all(isinstance(mark, Dots | Spans) or (isinstance(mark, Bars) and mark.horizontal) for mark in chart.marks)


def _complete_trace(mark: Mark, trace: Trace) -> Trace:
    """Return a trace with its columns as JSON, the mark's name, and every text escaped."""
    columns = {key: _escape_texts(_json_values(trace[key])) for key in ("x", "y", "text", "base") if trace.get(key)}
    return trace | columns | {"name": escape(mark.name), "meta": mark.name}


def _json_values(values: Sequence[Any]) -> list[Any]:
    return [str(value) if isinstance(value, date) else value for value in values]  # plotly.js reads ISO dates


def _bar_mode(marks: Sequence[Mark]) -> str:
    """Return the word of plotly.js for how bars at one place lie: over, on, or next to each other."""
    if any(isinstance(mark, Spans) for mark in marks):
        return "overlay"
    if any(isinstance(mark, Line | Bars) and mark.stacked for mark in marks):
        return "stack"
    return "group"


def _mark_traces(mark: Mark, chart: Chart) -> Iterator[Trace]:
    """Yield the traces that draw a mark: two for a band and for bars with intervals, else one."""
    match mark:
        case Line():
            yield _line_trace(mark, chart)
        case Band():
            edge: Trace = {"type": "scatter", "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "x": mark.x}
            if mark.opacity != 1:
                edge["opacity"] = mark.opacity
            # The lower curve first: `tonexty` fills the area to the trace before.
            yield edge | {"y": finite_or_none(mark.low), "showlegend": False}
            yield edge | {"y": finite_or_none(mark.high), "fill": "tonexty", "fillcolor": mark.colour}
        case Dots():
            # Pixels: a mark that points up is larger, to be seen below one that points down at the same place.
            size = 11 if mark.symbol == "up" else 8
            marker = {"color": mark.colour, "size": size, "symbol": SYMBOLS[mark.symbol]}
            yield {
                "type": "scatter",
                "mode": "markers",
                "x": mark.x,
                "y": finite_or_none(mark.y),
                "text": mark.hover_text,
                "marker": marker | {"line": {"color": "--card", "width": 1}},
                "cliponaxis": False,  # a mark on the edge of the chart is drawn whole
                "hovertemplate": f"%{{y:{mark.form}}}{escape(chart.y.unit)}{_hover_text_suffix(mark.hover_text)}",
            }
        case Bars():
            yield from _bar_traces(mark, chart)
        case Spans():
            yield _span_trace(mark, chart)


def _line_trace(mark: Line, chart: Chart) -> Trace:
    """Return the trace of a curve.

    A curve of a stack is an area, or a bar if it has a single point. Any other is a line, or a dot if it has one point.
    """
    values = finite_or_none(mark.y)
    has_no_line = sum(value is not None for value in values) < 2  # noqa: PLR2004  (a line has two points)
    common: Trace = {"x": mark.x, "y": values, "text": mark.hover_text}
    common["hovertemplate"] = f"%{{y:{mark.form}}}{escape(chart.y.unit)}{_hover_text_suffix(mark.hover_text)}"
    if mark.stacked and len(mark.x) == 1:  # an area of one point has no width
        return common | {"type": "bar", "marker": {"color": mark.colour}, "width": 0.5}
    common |= {"type": "scatter", "zorder": int(mark.in_front)}
    if mark.stacked:
        line = {"width": 0.5, "color": mark.colour}
        # plotly.js stacks the curves with one name of a group.
        return common | {"mode": "lines", "stackgroup": "all", "line": line, "fillcolor": mark.colour}
    line = {"color": mark.colour, "width": mark.width}
    if mark.dashed:
        line["dash"] = "dash"
    mode, dot_pixels = "lines+markers" if mark.dots else "lines", 5
    if has_no_line:  # a dot stands for the whole curve
        mode, dot_pixels = "markers", 7
    return common | {"mode": mode, "line": line, "marker": {"color": mark.colour, "size": dot_pixels}}


def _bar_traces(mark: Bars, chart: Chart) -> Iterator[Trace]:
    """Yield the trace of a mark's bars; for bars with intervals, first a trace of their labels at the upper ends."""
    # A bar stands at a place of one axis, and its length is a value on the other.
    value_axis, place_axis = (chart.x, chart.y) if mark.horizontal else (chart.y, chart.x)
    place_key, value_key = ("y", "x") if mark.horizontal else ("x", "y")
    positions, values = place_axis.place_values(mark.at), finite_or_none(mark.values)
    trace: Trace = {"type": "bar", "text": mark.labels, "marker": {"color": mark.colour, "line": {"width": 0}}}
    trace |= {"x": values, "y": positions, "orientation": "h"} if mark.horizontal else {"x": positions, "y": values}
    if mark.labels:  # beside the ends of the bars, not cut off at the edge, and never made smaller to fit
        trace |= {"textposition": "outside", "cliponaxis": False, "constraintext": "none"}
    # plotly.js fills in `%{y:,.2f}` for each bar. On an axis of named rows, the text begins with the name.
    prefix = f"%{{{place_key}}}: " if place_axis.rows else ""
    trace["hovertemplate"] = f"{prefix}%{{{value_key}:{mark.form}}}{escape(value_axis.unit)}"
    if mark.low:
        trace[f"error_{value_key}"] = _error_bars(mark)
        trace["textposition"] = "none"  # the bar's own label would lie on the interval
        yield {
            "type": "scatter",
            "text": mark.labels,
            "hoverinfo": "skip",
            "showlegend": False,
            "mode": "text",
            "textposition": "middle right" if mark.horizontal else "top center",
            "cliponaxis": False,
            place_key: positions,
            value_key: finite_or_none(mark.high),
        }
    yield trace


def _error_bars(mark: Bars) -> dict[str, Any]:
    """Return the intervals of bars as plotly.js has them, by their distances from the values; None is a gap."""
    rows = list(zip(mark.low, mark.values, mark.high, strict=True))
    lower = [None if low is None or value is None else value - low for low, value, _ in rows]
    upper = [None if high is None or value is None else high - value for _, value, high in rows]
    return {
        "type": "data",
        "symmetric": False,
        "arrayminus": finite_or_none(lower),
        "array": finite_or_none(upper),
        "color": "--ink",
        "thickness": 1.2,
        "width": 3,
    }


def _span_trace(mark: Spans, chart: Chart) -> Trace:
    """Return the trace of bars from starts to ends; the length of a bar between dates is in milliseconds."""
    lengths = [
        (end - start).days * DAY_MILLISECONDS if isinstance(start, date) else end - start
        for start, end in zip(mark.starts, mark.ends, strict=True)
    ]
    return {
        "type": "bar",
        "orientation": "h",
        "y": chart.y.place_values(mark.rows),
        "base": mark.starts,
        "x": lengths,
        "width": mark.thickness,
        "text": mark.hover_text,
        "textposition": "none",
        "marker": {"color": mark.colour, "line": {"width": 0}},
        "hovertemplate": f"%{{y}}{_hover_text_suffix(mark.hover_text)}",
    }


def _hover_text_suffix(texts: Sequence[str]) -> str:
    """Return the end of a template for the pointer's text: with a mark's further text, if it has any."""
    return " · %{text}" if texts else ""


def _vertical_line_shape(place: object) -> dict[str, Any]:
    """Return the shape of a thin vertical line over the whole height of a chart."""
    line = {"color": "--quiet", "width": 1}
    position = str(place)
    return {
        "type": "line",
        "x0": position,
        "x1": position,
        "yref": "paper",  # 0 is the lower edge of the drawing, and 1 the upper
        "y0": 0,
        "y1": 1,
        "line": line,
        "opacity": 0.35,
    }


def _axis_layout(axis: Axis, *, decades: bool = False) -> dict[str, Any]:
    """Return the layout of an axis for plotly.js.

    Args:
        axis: axis of a chart.
        decades: whether a logarithmic axis has a mark for each power of ten.
    """
    layout: dict[str, Any] = {"ticksuffix": axis.unit} if axis.unit else {}
    if axis.title:
        layout["title"] = {"text": axis.title}
    if axis.zero:
        layout["zeroline"] = True  # off in the layout of `page.js`
    if axis.from_zero:
        layout["rangemode"] = "tozero"
    if axis.span is not None:
        layout["range"] = list(axis.span)
    if axis.rows:
        layout |= {"tickvals": [*range(len(axis.rows))], "ticktext": [*axis.rows], "showgrid": False}
        layout["range"] = [-0.5, len(axis.rows) - 0.5]  # half a row at both ends, for the bars of the outer rows
    if axis.kind == "round":
        layout["tickformat"] = "d"  # whole numbers
        first, last = axis.span or (0, FEW_POINTS)  # without a span as if there were many rounds
        if last - first < FEW_POINTS:
            layout["dtick"] = 1
    elif axis.kind == "date":
        layout["type"] = "date"
    elif axis.kind == "log":
        layout |= {"type": "log"} | ({"dtick": 1} if decades else {})  # 1 is a power of ten here
    return layout


def _escape_texts(item: object) -> object:
    """Return the item with all its texts escaped for HTML, at any depth, but not its keys."""
    match item:
        case str():
            return escape(item)
        case Mapping():
            return {key: _escape_texts(value) for key, value in item.items()}
        case list() | tuple():
            return [_escape_texts(value) for value in item]
    return item
