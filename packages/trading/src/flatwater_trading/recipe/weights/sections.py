"""Sections that only a run of target weights has on its page: its equity, what it held, and how it was judged."""

from collections.abc import Iterator

import polars as pl

from flatwater.metrics.jsonl_lines import spread_indexes
from flatwater.reports.learning_charts import Sections, course_chart, update_charts
from flatwater.reports.metric_lines import join_equal_lines, metric_line
from flatwater.reports.records import RunRecords
from flatwater.reports.result_blocks import missing_paragraph
from flatwater_trading.recipe.sections import champion_section, equity_chart, sheet_section
from flatwater_trading.recipe.tables import TraderFolder, read_equity, read_table
from flatwater_watch.files.json_values import is_number
from flatwater_watch.pages.blocks import Block, Paragraph
from flatwater_watch.pages.chart import Axis, Chart, Line, Picture, round_axis
from flatwater_watch.pages.chart_values import MAXIMUM_POINTS

WEIGHTS = {"date": False}
COLOURS = ("--champion", "--buy-and-hold", "--equal-weight", "--momentum", "--slow-momentum", "--ridge")
"""Colours of the instruments that were held most."""


def weights_sections(run: RunRecords) -> Sections:
    """Return the blocks of the sections that a run of target weights has on its page, by the sections' titles."""
    return {
        "Trading": champion_section(run),
        "Tear sheet": sheet_section(run),
        "What it held": held_section(run),
        "Learning": learning_section(run),
    }


def weights_picture(run: RunRecords) -> Picture:
    """Return the picture of a run: equity and growth over the rounds above, the weights that were held below."""
    curves, weights = read_equity(run.path), read_table(TraderFolder(run.path).weights, WEIGHTS)
    upper_charts = [course_chart(run)]
    if curves is not None and len(curves) and run.result is not None:
        upper_charts.insert(0, equity_chart(curves, run.result["split"]))
    if weights is None or len(weights.columns) == 1:  # the date alone
        return [upper_charts]
    return [upper_charts, [held_chart(weights)]]


def held_section(run: RunRecords) -> Iterator[Block]:
    """Yield the part of the learned weights that is held, and a chart of the weights; or what is missing."""
    if run.result is None:
        yield missing_paragraph("result", "result.json", run.state)
        return
    result = run.result
    if is_number(held_share := result.get("held")):
        yield Paragraph(
            f"It holds {held_share:.0%} of the learned weights; the rest is {result.get('rest', 'cash')}. "
            "Decided on days that members had not learned from, by their lead less a margin for chance.",
            "reading",
        )
    weights = read_table(TraderFolder(run.path).weights, WEIGHTS)
    if weights is not None and len(weights.columns) > 1:
        yield held_chart(weights)


def held_chart(weights: pl.DataFrame) -> Chart:
    """Draw the weights of the instruments that were held most."""
    names = [name for name in weights.columns if name != "date"]
    # Sorted by the mean weight, the largest first; an empty table has no mean, so 0 takes its place.
    most_held = sorted(names, key=lambda name: -float(weights[name].mean() or 0))[: len(COLOURS)]  # type: ignore[arg-type]
    shown_rows = weights[spread_indexes(len(weights), MAXIMUM_POINTS)]
    omission = (
        f" The {len(names) - len(most_held)} that it held less are left out." if len(names) > len(most_held) else ""
    )
    return Chart(
        title="Weights of what it held most",
        reading=f"Part of the equity in each instrument at the close of each day, in percent.{omission}",
        marks=join_equal_lines(
            Line(
                name=name,
                x=shown_rows["date"].to_list(),
                y=[100 * value for value in shown_rows[name].to_list()],
                colour=colour,
                width=1.5,
                form=".1f",
            )
            for name, colour in zip(most_held, COLOURS, strict=False)
        ),
        x=Axis(kind="date"),
        y=Axis(unit="%", zero=True),
        height=320,
    )


def learning_section(run: RunRecords) -> Iterator[Block]:
    """Yield the growth on training days and on other days, then the updates; or what is missing."""
    if not run.metrics.get("round"):
        yield missing_paragraph("round", "metrics.jsonl", run.state, "after each round")
        return
    # Metric, title and colour.
    curves = (
        ("train/growth", "learned from", "--quiet"),
        ("unseen/resting", "equal weights or cash", "--equal-weight"),
        ("unseen/growth", "not learned from", "--champion"),
    )
    yield Chart(
        title="Growth on days that members learned from, and on others",
        reading="Log growth of a day after costs, in hundredths of a percent. A wide gap between the first and the "
        "last is overfitting: what was learned holds on the training days alone.",
        marks=[metric_line(run.metrics, name, title, colour) for name, title, colour in curves if name in run.metrics],
        x=round_axis(run.metrics["round"], run.recipe.layout.round),
        height=300,
    )
    yield from update_charts(run)
