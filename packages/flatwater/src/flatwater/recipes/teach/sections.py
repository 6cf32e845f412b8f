"""Sections of teaching on its page and in its picture: learning, and the time of a step."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from flatwater.metrics.jsonl import finite_points
from flatwater.recipe import ShownTable
from flatwater.reports.learning_charts import Sections, update_charts
from flatwater.reports.metric_lines import JUDGED_COLOUR, returns_lines, share_lines
from flatwater.reports.records import RunRecords
from flatwater.reports.result_blocks import holdout_blocks, missing_paragraph, result_table
from flatwater_watch.format_strings import fill_format
from flatwater_watch.pages.blocks import Block, Heading, Paragraph, Table
from flatwater_watch.pages.chart import Axis, Bars, Chart, Line, Picture, round_axis

BASELINE_COLOURS = {"teacher": "--buy-and-hold", "random": "--random"}
PART_COLOURS = {
    "env": "--equal-weight",
    "teacher": "--buy-and-hold",
    "policy": "--champion",
    "store": "--quiet",
    "update": "--bad",
}
"""Parts of a step, as in the metrics `profile/*_us`."""
HANDOVER_LINES = {
    "train/agreement": ("student agrees with teacher", "--champion"),
    "lead/share": ("teacher leads", "--buy-and-hold"),
    "weight/supervision": ("weight of the supervision", "--equal-weight"),
    "weight/reinforcement": ("weight of PPO", "--random"),
}
LABEL_ROOM = 0.45
"""Part of the axis that is left free for the labels next to the longest bar."""
PROFILE_TITLES = ("part of a step", "µs an agent step", "share")


def teaching_sections(run: RunRecords) -> Sections:
    """Return the blocks of each section of the page by the section's title."""
    return {"Learning": learning_section(run), "Profile": profile_section(run)}


def teaching_picture(run: RunRecords) -> Picture:
    """Return rows of charts: returns and the hand-over over the blocks, then each player's return and a step's time."""
    result_charts = [] if run.result is None else [players_chart(run.result)]
    return [[learned_chart(run), handover_chart(run)], [*result_charts, profile_chart(run)]]


def learning_section(run: RunRecords) -> Iterator[Block]:
    """Yield charts of returns and the hand-over, then the result beside teacher and random; or what is missing."""
    if not run.metrics.get("round"):
        yield missing_paragraph("block", "metrics.jsonl", run.state, "after each block")
        return
    yield learned_chart(run)
    yield handover_chart(run)
    yield from update_charts(run)
    if run.result is None:
        yield missing_paragraph("result", "result.json", run.state)
        return
    yield Heading("Against the teacher")
    yield players_chart(run.result)
    yield result_table(run.recipe, run.result)
    form = "{episodes} {split} {episodes:episode} of {agents} {agents:agent} and {steps} {steps:step}"
    episodes = fill_format(form, run.result)
    yield Paragraph(f"{episodes}; one number for each agent. Note: {run.result['note']}.", "reading")
    yield from holdout_blocks(run)


def profile_section(run: RunRecords) -> Iterator[Block]:
    """Yield the time of a step by its parts: a table of medians and a chart over the blocks; or why there is none."""
    rows = profile_rows(run.metrics)
    if not rows:
        yield missing_paragraph("profile", "metrics.jsonl", run.state, "after each block")
        return
    yield Table(PROFILE_TITLES, rows)
    yield profile_chart(run)


def profile_rows(metrics: Mapping[str, Sequence[float]]) -> list[tuple[str, str, str]]:
    """Return a row for each part of a step, and one for all: the part, its median microseconds, its share of all.

    The rows are empty if no block was measured.
    """
    values_by_part = dict[str, list[float]]()
    for part in PART_COLOURS:
        _rounds, values_by_part[part] = finite_points(metrics["round"], metrics.get(f"profile/{part}_us", []))
    # Medians: a block that the machine was slow in does not move them.
    medians = {part: median(values) for part, values in values_by_part.items() if values}
    total = sum(medians.values())
    rows = [(part, f"{microseconds:.1f}", f"{microseconds / total:.0%}") for part, microseconds in medians.items()]
    return [*rows, ("all", f"{total:.1f}", "100%")] if rows else []


def profile_tables(metrics: Mapping[str, Sequence[float]]) -> list[ShownTable]:
    """Return the table of a step's time by its parts, for the terminal; no table if it was not measured."""
    rows = profile_rows(metrics)
    return [ShownTable(PROFILE_TITLES, rows)] if rows else []


def learned_chart(run: RunRecords) -> Chart:
    """Return a chart of training and held-out returns, against the teacher's and random actions."""
    return Chart(
        title="Return of an agent in an episode",
        reading="The teacher leads a part of the training episodes, a larger part early in the run. The held-out "
        "episodes are always the same; the student should come close to the level line of the teacher.",
        marks=returns_lines(run.metrics, "student", BASELINE_COLOURS),
        x=round_axis(run.metrics["round"], run.recipe.layout.round),
        height=360,
    )


def handover_chart(run: RunRecords) -> Chart:
    """Return a chart of the teacher's lead, the student's agreement with it, and the weights of both losses."""
    return Chart(
        title="From the teacher to the student",
        reading="Shares of steps, and weights of the two losses, in percent. The hand-over is where they cross.",
        marks=share_lines(run.metrics, HANDOVER_LINES),
        x=round_axis(run.metrics["round"], run.recipe.layout.round),
        y=Axis(unit="%", from_zero=True),
    )


def players_chart(result: Mapping[str, Any]) -> Chart:
    """Return a chart of each player's returns: the mean of its agents, and the worst to the best of them."""
    # Reversed, as rows of horizontal bars are drawn from below.
    rows = dict(reversed(result["players"].items()))
    low = [row.get("worst") for row in rows.values()]
    mean = [row.get("return") for row in rows.values()]
    high = [row.get("best") for row in rows.values()]
    bars = Bars(
        name="return",
        at=list(rows),
        values=mean,
        low=low,
        high=high,
        colour=[JUDGED_COLOUR if name == "student" else BASELINE_COLOURS.get(name, "--others") for name in rows],
        horizontal=True,
        labels=["" if value is None else f"mean {value:.1f}" for value in mean],
    )
    title = fill_format("{episodes} {split} {episodes:episode}: mean, and the worst to the best agent", result)
    # None for a return that is not finite: it does not widen the axis.
    minimum = min(0.0, *(value or 0.0 for value in low))
    maximum = max(value or 0.0 for value in [*mean, *high])
    span = (minimum, maximum + LABEL_ROOM * (maximum - minimum)) if maximum > minimum else None
    return Chart(title=title, marks=[bars], y=Axis(rows=list(rows)), x=Axis(zero=True, span=span), height=220)


def profile_chart(run: RunRecords) -> Chart:
    """Return a chart of the microseconds of an agent's step, by part."""
    metrics, rounds = run.metrics, run.metrics["round"]
    return Chart(
        title="Where the time of a step goes",
        reading="Microseconds on the wall for one step of one agent. All areas should keep their height: an area "
        "that grows is state whose cost grows, and is shown as a finding.",
        marks=[
            Line(name=part, x=rounds, y=metrics[f"profile/{part}_us"], colour=colour, stacked=True)
            for part, colour in PART_COLOURS.items()
            if f"profile/{part}_us" in metrics
        ],
        x=round_axis(rounds, run.recipe.layout.round),
        y=Axis(unit=" µs", from_zero=True),
    )
