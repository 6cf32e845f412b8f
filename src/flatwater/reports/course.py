"""What a page and a picture show of any recipe: the course of its curves, and the table of its result."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from flatwater.config.toml import read_toml
from flatwater.metrics.reader import known, read_metrics
from flatwater.recipe import Recipe, recipe_of
from flatwater.reports.markup import Chart, Html, paragraph, tag
from flatwater.reports.memory_charts import curve, round_axis
from flatwater.reports.missing import missing
from flatwater.reports.records import RunRecords
from flatwater.reports.results import result_table
from flatwater.reports.style import write_picture

PALETTE = (
    ("#64748b", "--quiet"),
    ("#c2410c", "--champion"),
    ("#1d4ed8", "--buy-and-hold"),
    ("#0d9488", "--equal-weight"),
)
"""Of the picture and of the page. The curve that a run is judged by has the second."""


def course_sections(run: RunRecords) -> Mapping[str, Iterator[Html | Chart]]:
    """Title -> blocks."""
    return {"Learning": _learning(run)}


def _learning(run: RunRecords) -> Iterator[Html | Chart]:
    rounds = run.metrics.get("round")
    if not rounds:
        yield missing(run.recipe.layout.round, "metrics.jsonl", run, "after each round")
        return
    yield Chart(
        title="What was learned",
        reading="The last curve is the one by which the run is judged.",
        data=[
            curve(*known(rounds, run.metrics.get(metric, [])), title, colour, width=1.6)
            for (title, metric), (_, colour) in zip(run.recipe.curves.items(), _colours(run.recipe), strict=False)
        ],
        layout={"xaxis": round_axis(rounds)},
        height=360,
    )
    if run.result is None:
        yield missing("result", "result.json", run)
        return
    yield tag("h3", run.recipe.title.format(**run.result))
    yield result_table(run.recipe, run.result)
    yield paragraph(f"{run.result.get('verdict', '')} Note: {run.result['note']}.".strip(), class_="reading")


def draw_course(run: Path, out: Path) -> None:
    """The curves over the rounds, and the headline of each row of the result.

    Args:
        run: folder of a finished run.
        out: PNG file to write, whole or not at all.

    Raises:
        RunError: it cannot be written.
    """
    recipe = recipe_of(read_toml(run / "config.toml"), str(run / "config.toml"))
    result, metrics = json.loads((run / "result.json").read_text()), read_metrics(run / "metrics.jsonl")

    def paint(figure: Figure) -> None:
        course, rows = figure.subplots(1, 2, width_ratios=(3, 2))
        for (title, metric), (colour, _) in zip(recipe.curves.items(), _colours(recipe), strict=False):
            course.plot(*known(metrics["round"], metrics.get(metric, [])), "-o", ms=2, color=colour, label=title)
        course.set_xlabel(recipe.layout.round)
        course.xaxis.set_major_locator(MaxNLocator(integer=True))
        course.set_title("What was learned")
        course.legend(frameon=False, fontsize=8)
        _rows(rows, recipe, result[recipe.players])

    write_picture(out, (11, 4), paint)


def _rows(axes: Axes, recipe: Recipe, players: Mapping[str, Mapping[str, float | None]]) -> None:
    for at, (name, row) in enumerate(players.items()):
        value = row.get(recipe.headline.key)
        if value is not None:
            axes.barh(at, value, color=PALETTE[1 if name == recipe.trained else 0][0], height=0.6)
            axes.text(max(value, 0), at, f"  {recipe.headline.form.format(value)}", va="center")
    axes.set_yticks(range(len(players)), list(players))
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.2)
    axes.set_title(recipe.headline.title)


def _colours(recipe: Recipe) -> list[tuple[str, str]]:
    judged = len(recipe.curves) - 1
    others = iter((PALETTE[0], *PALETTE[2:]))
    return [PALETTE[1] if at == judged else next(others, PALETTE[0]) for at in range(len(recipe.curves))]
