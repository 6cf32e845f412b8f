"""Charts of a run's learning: the default section and picture of a recipe, and charts that recipes' own pages share."""

from collections.abc import Iterator, Mapping, Sequence

from flatwater.description import Description
from flatwater.own_numbers import is_own
from flatwater.reports.metric_lines import EXPLAINED_METRIC, JUDGED_COLOUR, metric_line
from flatwater.reports.records import RunRecords
from flatwater.reports.result_blocks import holdout_blocks, missing_paragraph, result_table
from flatwater_watch.pages.blocks import Block, Heading, Paragraph
from flatwater_watch.pages.chart import Axis, Bars, Chart, Grid, Picture, round_axis

OTHER_COLOURS = ("--quiet", "--buy-and-hold", "--equal-weight")
METRICS_NOT_AVERAGED = frozenset({"sps", "skipped"})
"""Last words of the names of numbers of `train/`, of all agents or of one kind, that are not means over updates."""
LENGTH_METRIC = "episode/length"
"""Mean steps of the episodes that ended in the round."""
MAXIMUM_OWN = 24
"""Most numbers of the user's own, and agents, with a chart."""

Sections = Mapping[str, Iterator[Block]]
"""Blocks by title."""


def course_sections(run: RunRecords) -> Sections:
    """Return the blocks of the page, under one title, for a recipe without sections of its own."""
    return {"Learning": _learning_section(run)}


def course_picture(run: RunRecords) -> Picture:
    """Return one row of charts: the curves over the rounds, and the result's most important number of each player."""
    return [[course_chart(run), *headline_charts(run)]]


def _learning_section(run: RunRecords) -> Iterator[Block]:
    """Yield blocks of the curves, the result and the holdout; a paragraph says why a part is missing."""
    if not run.metrics.get("round"):
        yield missing_paragraph(run.recipe.layout.round, "metrics.jsonl", run.state, "after each round")
        return
    yield course_chart(run)
    yield from agent_charts(run)
    yield from update_charts(run)
    if run.result is None:
        yield missing_paragraph("result", "result.json", run.state)
        return
    yield Heading(run.recipe.result_title(run.result))
    yield result_table(run.recipe, run.result)
    yield Paragraph(f"{run.result.get('verdict', '')} Note: {run.result.get('note', '')}.".strip(), "reading")
    yield from holdout_blocks(run)


def course_chart(run: RunRecords) -> Chart:
    """Return a chart of the recipe's curves over the rounds, without those that have no point yet."""
    # Not strict: there is a colour even if a recipe has no curve.
    curves = [
        metric_line(run.metrics, metric, title, colour, width=2.2 if colour == JUDGED_COLOUR else 1.6)
        for (title, metric), colour in zip(run.recipe.curves.items(), _curve_colours(run.recipe), strict=False)
    ]
    nonempty = [curve for curve in curves if curve.x]
    has_last_curve = curves[-1:] == nonempty[-1:]  # it is left out while it has no point yet
    if has_last_curve:
        reading = "The run is judged by the last curve."
    else:  # a chart of one curve has no legend that names it
        reading = f"The curve: {nonempty[0].name}." if len(nonempty) == 1 else ""
    return Chart(
        title="What was learned",
        reading=reading,
        marks=nonempty,
        x=round_axis(run.metrics["round"], run.recipe.layout.round),
        height=360,
    )


def headline_charts(run: RunRecords) -> list[Chart]:
    """Return a chart with a bar for each player: the most important number of the result; no chart without a result."""
    if run.result is None:
        return []
    recipe, headline = run.recipe, run.recipe.headline
    # Reversed, as rows of horizontal bars are drawn from below.
    rows = {
        name: row for name, row in reversed(run.result[recipe.players].items()) if row.get(headline.key) is not None
    }
    return [
        Chart(
            title=headline.title.capitalize(),
            marks=[
                Bars(
                    name=headline.title,
                    at=list(rows),
                    values=[row[headline.key] for row in rows.values()],
                    colour=[JUDGED_COLOUR if name == recipe.trained else "--quiet" for name in rows],
                    horizontal=True,
                    labels=[headline.write(row[headline.key]) for row in rows.values()],
                )
            ],
            y=Axis(rows=list(rows)),
            height=360,
            weight=2 / 3,  # width beside the curves, whose chart has 1
        )
    ]


def update_charts(run: RunRecords) -> Iterator[Block]:
    """Yield a grid of small charts: losses and other numbers of updates, explained variance and episode length.

    Nothing is yielded if the run logged no number of updates.
    """
    train_names = [name for name in run.metrics if name.startswith("train/")]
    names = [name for name in train_names if name.rpartition("/")[2] not in METRICS_NOT_AVERAGED]
    titles = {name: name.removeprefix("train/").replace("_", " ") for name in names}
    if titles:
        reading = "Means over the updates of a round."
        if "train/clip_fraction" in names:
            reading += " The clip fraction is of a round's last minibatch."
        if EXPLAINED_METRIC in run.metrics:
            reading += " Explained variances below -1 are drawn at -1."
        titles[EXPLAINED_METRIC] = "explained variance of returns"  # without a chart where the run has no such number
        # Where each step pays 1, returns are the episodes' lengths, and are drawn already.
        if (lengths := run.metrics.get(LENGTH_METRIC)) and lengths != run.metrics.get("return/mean"):
            titles[LENGTH_METRIC] = "steps of an episode"
        yield numbers_grid(run, titles, title="Updates", reading=reading)


def agent_charts(run: RunRecords) -> Iterator[Block]:
    """Yield a grid of the held-out returns of each kind of agents, and of each agent; nothing for one kind."""
    beginning = f"evaluation/{run.recipe.trained}/"
    titles = {name: name.removeprefix(beginning) for name in run.metrics if name.startswith(beginning)}
    if titles:
        first_titles = dict([*titles.items()][:MAXIMUM_OWN])
        yield numbers_grid(run, first_titles, title="Held-out returns by agent")


def own_number_charts(run: RunRecords) -> Iterator[Block]:
    """Yield a grid of small charts of the numbers that the user has logged; nothing if there are none."""
    names = [name for name in run.metrics if is_own(name)]
    if names:
        titles = {name: name for name in names[:MAXIMUM_OWN]}
        yield numbers_grid(run, titles, title="")


def numbers_grid(run: RunRecords, titles: Mapping[str, str], *, title: str, reading: str = "") -> Grid:
    """Return a small chart over the rounds for each metric in `titles` (metric -> title) that has a point."""
    axis = round_axis(run.metrics["round"], run.recipe.layout.round)
    lines = {metric: metric_line(run.metrics, metric, "each round", JUDGED_COLOUR) for metric in titles}
    charts = [Chart(title=titles[metric], marks=[line], x=axis, height=170) for metric, line in lines.items() if line.x]
    return Grid(title=title, reading=reading, charts=charts)


def _curve_colours(recipe: Description) -> Sequence[str]:
    """Return a colour for each curve: `JUDGED_COLOUR` for the last, by which a run is judged, and others before it.

    Where there are more curves than `OTHER_COLOURS`, the further ones have the first of these colours.
    """
    other_colours = iter(OTHER_COLOURS)
    return [*(next(other_colours, OTHER_COLOURS[0]) for _ in range(len(recipe.curves) - 1)), JUDGED_COLOUR]
