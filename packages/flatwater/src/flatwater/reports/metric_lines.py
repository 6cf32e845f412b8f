"""Lines of a run's metrics over the rounds, for the charts of any recipe."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from flatwater.metrics.jsonl import finite_points
from flatwater_watch.pages.chart import Line

JUDGED_COLOUR = "--champion"
"""Colour of the curve and the row that a run is judged by."""
EXPLAINED_METRIC = "critic/explained"
"""Share of the returns' variance that the critic explains: 1 is perfect, 0 no better than a constant. Where returns
hardly differ it falls far below 0."""

Metrics = dict[str, list[float]]


def metric_line(metrics: Metrics, metric: str, title: str, colour: str, *, width: float = 1.6) -> Line:
    """Return a line of a metric over the rounds that have a number of it.

    Args:
        metrics: columns of the run's metrics, `round` among them; a missing column gives an empty line.
        metric: name of the column.
        title: name of the line.
        colour: CSS variable of its colour, such as `--quiet`.
        width: width of the stroke in pixels.
    """
    x, y = finite_points(metrics["round"], metrics.get(metric, []))
    # A value far below -1 would flatten the rest of the line.
    if metric == EXPLAINED_METRIC:
        y = [max(value, -1.0) for value in y]
    return Line(name=title, x=x, y=y, colour=colour, width=width, dots=True)


def returns_lines(metrics: Metrics, trained_player: str, levels: Mapping[str, str]) -> list[Line]:
    """Return lines of a policy's returns in training and in held-out episodes, and a level line for each baseline.

    Args:
        metrics: columns; `return/mean` and `evaluation/*` may have rounds without a number.
        trained_player: name of the player that learns.
        levels: colour of each baseline by name. Its line is level, as held-out episodes are always the same.
    """
    rounds, lines = metrics["round"], list[Line]()
    if "return/mean" in metrics:
        lines.append(metric_line(metrics, "return/mean", "training, mean", "--quiet", width=1.4))
    for name, colour in levels.items():
        _, baseline_returns = finite_points(rounds, metrics.get(f"evaluation/{name}", []))
        if baseline_returns:
            y = [baseline_returns[-1]] * len(rounds)  # over all rounds, also those before the first evaluation
            lines.append(Line(name=name, x=rounds, y=y, colour=colour, width=1.4, dashed=True))
    title = f"{trained_player}, held out"
    held_out_line = metric_line(metrics, f"evaluation/{trained_player}", title, JUDGED_COLOUR, width=2.4)
    if held_out_line.x:  # without a point before the first evaluation
        lines.append(held_out_line)
    return lines


def join_equal_lines(lines: Iterable[Line]) -> list[Line]:
    """Return the lines, of which those with the same points are one, as it would cover the others; it has all names."""
    equal_lines: dict[tuple[Any, ...], list[Line]] = {}
    for line in lines:
        equal_lines.setdefault((*line.x, *line.y), []).append(line)
    return [replace(same[0], name=", ".join(line.name for line in same)) for same in equal_lines.values()]


def share_lines(metrics: Metrics, titles: Mapping[str, tuple[str, str]]) -> list[Line]:
    """Return a line in percent for each metric in `titles` (metric -> title and colour) that the run has."""
    return [
        Line(name=title, x=metrics["round"], y=[100 * value for value in metrics[metric]], colour=colour)
        for metric, (title, colour) in titles.items()
        if metric in metrics
    ]
