"""The page of a comparison: the curves of all runs over each other, their numbers, and how sure a difference is."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from statistics import quantiles

import numpy as np

from flatwater.comparisons.seed_statistics import (
    CURVE_RESAMPLES,
    INTERVAL_LEVEL,
    MINIMUM_SEEDS,
    interquartile_mean,
    seed_statistics,
)
from flatwater.comparisons.side_by_side import (
    SEEDS_UNIT,
    ComparedSide,
    Rows,
    differences_from_first,
    list_curves,
    number_rows,
    setting_rows,
)
from flatwater.metrics.jsonl import finite_points
from flatwater.metrics.short_numbers import MIB
from flatwater.recipe import find_installed_recipe
from flatwater_watch.pages.blocks import Block, Paragraph, Section, Table, Tile
from flatwater_watch.pages.chart import Axis, Band, Chart, Line, round_axis
from flatwater_watch.pages.document import document

MINIMUM_VALUES = 8
"""Fewest values among which there can be outliers."""
OUTLIER_DISTANCE = 5.0
"""Distance from the quartiles beyond which a value is an outlier, in interquartile ranges."""
MARGIN_SHARE = 0.06
"""Space above and below the curves, as a share of their range."""
BAND_OPACITY = 0.18
"""Opacity of an interval."""


def comparison_page(sides: Sequence[ComparedSide], written_at: datetime) -> str:
    """Return the page of a comparison as HTML; `written_at` is the time in its footer.

    A side is a run, or a group of runs that differ in their seeds; a single side is a group.
    """
    sections = [
        Section(title="Result", blocks=[*_result_blocks(sides)]),
        Section(title="Curves", blocks=[*_curve_charts(sides)]),
    ]
    if len(sides) > 1:
        sections.append(Section(title="Settings that differ", blocks=[*_settings_table(sides)]))
    return document(
        f"{len(sides)} runs" if len(sides) > 1 else f"{len(sides[0].members)} seeds",
        subtitle=" · ".join(f"{side.letter}: {side.source}" for side in sides),
        tiles=_headline_tiles(sides),
        sections=sections,
        footer=f"Written by Flatwater from the runs' folders, {written_at:%Y-%m-%d %H:%M %Z}.",
    )


def run_colour(index: int) -> str:
    """Return the style sheet's name of the colour that run `index`, from 0, has in every chart."""
    return f"--owner-{index + 1}"


def _headline_tiles(sides: Sequence[ComparedSide]) -> Iterator[Tile]:
    """Yield a tile for each side: its headline number, and its rounds, or for a group the statistics over seeds."""
    for side in sides:
        headline = side.run.recipe.headline
        value = side.result_numbers.get(headline.key)
        value_text = "-" if value is None else headline.write(value)
        statistics = side.statistics
        if statistics is None:
            note = f"{side.run.done} of {side.run.rounds} rounds"
        else:
            interval = f"{headline.write(statistics.low)} to {headline.write(statistics.high)}"
            middle = headline.write(statistics.interquartile_mean)
            note = f"mean of {len(side.scores)} seeds; interquartile mean {middle}, {interval}"
        yield Tile(f"{side.letter}: {headline.title}", value_text, below=note)


def _result_blocks(sides: Sequence[ComparedSide]) -> Iterator[Block]:
    """Yield the differences from the first side, the recipe's own charts, the numbers, and warnings."""
    differences = differences_from_first(sides)
    for difference in differences:
        yield Paragraph(difference.sentence)
    yield from _recipe_charts(sides)
    yield rows_table([side.letter for side in sides], number_rows(sides))
    # A warning for each unit, such as seeds or days, and not for each run.
    intervals = [difference.difference for difference in differences if difference.difference is not None]
    for units in dict.fromkeys(interval.units for interval in intervals):
        if units == SEEDS_UNIT:
            yield Paragraph(
                "If an interval contains 0, the two cannot be told apart with these seeds; more seeds make it "
                f"narrower. It is the {INTERVAL_LEVEL:.0%} interval of the difference of interquartile means, from a "
                "bootstrap over the seeds of each side.",
                kind="reading",
            )
            continue
        yield Paragraph(
            "If an interval contains 0, neither run is better with certainty. Runs that were chosen on the "
            f"{units} of this comparison look better than they are: these are not the {units} of the holdout.",
            kind="reading",
        )


def _curve_charts(sides: Sequence[ComparedSide]) -> Iterator[Block]:
    """Yield a chart for each curve of any run's recipe, and one of resident memory."""
    sides_by_colour = {run_colour(index): side for index, side in enumerate(sides)}
    charts = []
    for title, metric in list_curves(sides):
        drawn_sides = {colour: side for colour, side in sides_by_colour.items() if side.has_curve(title, metric)}
        charts.append(_curve_chart(drawn_sides, metric, title))
    charts.append(_curve_chart(sides_by_colour, "memory/resident", "resident memory, MiB", unit=MIB))
    drawn_charts = [chart for chart in charts if chart is not None]
    yield from drawn_charts
    if not drawn_charts:
        yield Paragraph("No run has recorded a round yet.", kind="missing")


def _curve_chart(sides: Mapping[str, ComparedSide], metric: str, title: str, unit: float = 1.0) -> Chart | None:
    """Return a chart of one number of all sides over the rounds; None if no run has it.

    Args:
        sides: the sides that are drawn, by colour.
        metric: the number's name in `metrics.jsonl`.
        title: title of the chart.
        unit: values are divided by it.
    """
    bands, lines, rounds = list[Band](), list[Line](), set[float]()
    for colour, side in sides.items():
        points = _points_by_round(side, metric, unit)
        x = [*points]
        if x:
            # Of several seeds the curve is their interquartile mean, of one its values.
            y = [float(interquartile_mean(np.asarray(values))) for values in points.values()]
            lines.append(Line(name=side.letter, x=x, y=y, colour=colour, width=2))
            rounds |= {*x}
        if side.group:
            # Rounds that a single seed has reached have no interval.
            shared_points = {number: values for number, values in points.items() if len(values) >= MINIMUM_SEEDS}
            bands.append(_interval_band(side.letter, shared_points, colour))
    if not lines:
        return None
    span = range_without_outliers([value for line in lines for value in line.y if value is not None])
    outside = " Some values are above or below the picture." if span else ""
    band_sentence = (
        f" Of a group: the interquartile mean over seeds, and its {INTERVAL_LEVEL:.0%} interval." if bands else ""
    )
    reading = f"{metric} of each run, over its own rounds.{band_sentence}{outside}"
    return Chart(title=title, reading=reading, marks=[*bands, *lines], x=round_axis(sorted(rounds)), y=Axis(span=span))


def _points_by_round(side: ComparedSide, metric: str, unit: float) -> dict[float, list[float]]:
    """Return the values of a metric in all runs of a side by round, in order; they are divided by `unit`."""
    values: dict[float, list[float]] = {}
    for member in side.members:
        rounds, finite_values = finite_points(member.metrics.get("round", []), member.metrics.get(metric, []))
        for round_number, value in zip(rounds, finite_values, strict=True):
            values.setdefault(round_number, []).append(value / unit)
    return dict(sorted(values.items()))


def _interval_band(letter: str, points: dict[float, list[float]], colour: str) -> Band:
    """Return the interval over seeds, from the values by round, as a shaded band of the run's colour."""
    statistics = [seed_statistics(values, resamples=CURVE_RESAMPLES) for values in points.values()]
    return Band(
        name=f"{letter}, {INTERVAL_LEVEL:.0%} interval",
        x=[*points],
        low=[interval.low for interval in statistics],
        high=[interval.high for interval in statistics],
        colour=colour,
        opacity=BAND_OPACITY,
    )


def range_without_outliers(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the range of an axis that leaves out outliers, which would flatten every curve; None without outliers."""
    if len(values) < MINIMUM_VALUES:
        return None
    low_quartile, _, high_quartile = quantiles(values, n=4)
    # Tukey's fences are at 1.5 interquartile ranges, which would cut the beginning of many learning curves.
    fence = OUTLIER_DISTANCE * (high_quartile - low_quartile)
    inside = [value for value in values if low_quartile - fence <= value <= high_quartile + fence]
    margin = MARGIN_SHARE * (max(inside) - min(inside))
    has_outliers = len(inside) < len(values)
    if not has_outliers or not margin:  # without a margin all values inside are equal: an axis would have no length
        return None
    return min(inside) - margin, max(inside) + margin


def _recipe_charts(sides: Sequence[ComparedSide]) -> Sequence[Chart]:
    """Return the charts that the recipe of the first side draws of compared runs; none for groups of seeds."""
    recipe = find_installed_recipe(sides[0].run.recipe.name)
    if recipe is None or recipe.comparison is None or any(side.group for side in sides):
        return []
    colours = [run_colour(index) for index in range(len(sides))]
    charts: Sequence[Chart] = recipe.comparison({side.letter: side.run for side in sides}, colours)
    return charts


def _settings_table(sides: Sequence[ComparedSide]) -> Iterator[Block]:
    yield settings_block([side.letter for side in sides], setting_rows(sides))


def settings_block(letters: Sequence[str], rows: Rows) -> Block:
    """Return a table of the settings that differ, or the sentence that none does."""
    return rows_table(letters, rows) if rows else Paragraph("All settings are the same.")


def rows_table(letters: Sequence[str], rows: Rows) -> Table:
    """Return a table with a column for each side of a comparison."""
    return Table(("", *letters), [(name, *cells) for name, cells in rows])
