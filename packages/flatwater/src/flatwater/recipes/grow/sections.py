"""Sections of growing networks on their page and in their picture: learning, and each slot's life."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from flatwater.recipes.grow.lives import SlotHistory, read_lives
from flatwater.reports.learning_charts import Sections
from flatwater.reports.metric_lines import JUDGED_COLOUR, returns_lines, share_lines
from flatwater.reports.records import RunRecords
from flatwater.reports.result_blocks import holdout_blocks, missing_paragraph, result_table
from flatwater_watch.format_strings import fill_format
from flatwater_watch.pages.blocks import Block, Paragraph
from flatwater_watch.pages.chart import Axis, Band, Bars, Chart, Grid, Line, Mark, Picture, Spans, round_axis

BASELINE_COLOURS = {"heuristic": "--buy-and-hold", "wait": "--equal-weight", "random": "--random"}
"""Colour of each baseline, a CSS variable of the page."""
OPERATION_COLOURS = {
    "wait": "--quiet",
    "germinate": "--equal-weight",
    "advance": "--buy-and-hold",
    "set_alpha_target": "--random",
    "fossilise": "--champion",
    "prune": "--bad",
}
"""Colour of each operation in the chart of their shares, a CSS variable of the page."""
STAGE_COLOURS = {
    "dormant": "#e2e8f0",
    "germinated": "#bef264",
    "training": "#facc15",
    "blending": "#38bdf8",
    "holding": "#2563eb",
    "fossilised": "#a78bfa",
    "pruned": "#dc2626",
    "embargoed": "#fca5a5",
    "resetting": "#fecaca",
}
"""Colours of the stages of a slot's life, in the order of their numbers."""
ACCURACY_COLOUR = "#0f172a"
"""Colour of the accuracy, dark in both themes: it crosses the stages, whose colours are bright in both."""
SHOWN_LIVES = 8
"""Number of episodes that are drawn."""


def growth_sections(run: RunRecords) -> Sections:
    """Return the blocks of each section of the page by the section's title."""
    return {"Learning": learning_section(run), "Growth": growth_section(run)}


def growth_picture(run: RunRecords) -> Picture:
    """Return rows of charts: returns over the batches and accuracies of all players, then each slot's life."""
    result_charts = [] if run.result is None else [accuracy_chart(run.result)]
    upper_row = [returns_chart(run), *result_charts]
    lives = read_lives(run.path)
    if lives is None or not len(lives["player"]):  # no file, or a file without rows
        return [upper_row]
    return [upper_row, [lives_grid(lives)]]


def learning_section(run: RunRecords) -> Iterator[Block]:
    """Yield charts of returns against the baselines and of the policy's operations, or why there are none."""
    if not run.metrics.get("round"):
        yield missing_paragraph("batch", "metrics.jsonl", run.state, "after each batch")
        return
    yield returns_chart(run)
    yield operations_chart(run)


def growth_section(run: RunRecords) -> Iterator[Block]:
    """Yield the policy's result against the baselines, and its episodes slot by slot, or why there are none."""
    if run.result is None:
        yield missing_paragraph("result", "result.json", run.state)
        return
    yield accuracy_chart(run.result)
    yield result_table(run.recipe, run.result)
    episodes = fill_format("{episodes} {split} {episodes:episode} of {steps} {steps:step}", run.result)
    yield Paragraph(f"{episodes}; seeds per episode. Note: {run.result['note']}.", "reading")
    yield from holdout_blocks(run)
    lives = read_lives(run.path)
    if lives is not None and len(lives["player"]):
        yield lives_grid(lives)


def returns_chart(run: RunRecords) -> Chart:
    """Return a chart of training and held-out returns, against the baselines' on the same held-out episodes."""
    metrics, marks = run.metrics, list[Mark]()
    if {"return/min", "return/max"} <= metrics.keys():
        low, high = metrics["return/min"], metrics["return/max"]
        marks.append(Band(name="training, lowest to highest", x=metrics["round"], low=low, high=high))
    return Chart(
        title="Return of an episode",
        reading="Training episodes are explored, so their mean lies lower. The held-out episodes are always the same, "
        "and the baselines' returns on them are level lines: the policy should rise above all of them.",
        marks=[*marks, *returns_lines(metrics, "policy", BASELINE_COLOURS)],
        x=round_axis(metrics["round"], run.recipe.layout.round),
        height=360,
    )


def operations_chart(run: RunRecords) -> Chart:
    """Return a chart of the share of each operation in the training episodes."""
    labels = {f"operation/{name}": (name.replace("_", " "), colour) for name, colour in OPERATION_COLOURS.items()}
    return Chart(
        title="What the policy does",
        reading="Share of each operation in the training episodes, in percent. Some are drawn at random, so that "
        "no operation dies out; a policy that only waits has learned nothing.",
        marks=share_lines(run.metrics, labels),
        x=round_axis(run.metrics["round"], run.recipe.layout.round),
        y=Axis(unit="%", from_zero=True),
    )


def accuracy_chart(result: Mapping[str, Any]) -> Chart:
    """Return bars of each player's accuracy on capable and on impaired hosts, or on all if they are of one kind."""
    players = result["players"]
    both_kinds = ("accuracy_capable", "accuracy_impaired")
    # `accuracy` if no host is impaired: then the players have no number for either kind.
    kinds = [kind for kind in both_kinds if any(row.get(kind) is not None for row in players.values())] or ["accuracy"]
    # `accuracy_capable` becomes "capable hosts", and `accuracy` becomes "hosts".
    host_kinds = [f"{kind.removeprefix('accuracy').removeprefix('_')} hosts".strip() for kind in kinds]
    marks = []
    for name, row in players.items():
        heights = [None if row.get(kind) is None else 100 * row[kind] for kind in kinds]
        labels = ["" if height is None else f"{height:.0f}" for height in heights]
        colour = JUDGED_COLOUR if name == "policy" else BASELINE_COLOURS.get(name, "--others")
        marks.append(Bars(name=name, at=host_kinds, values=heights, colour=colour, labels=labels, form=".1f"))
    return Chart(
        title=fill_format("Accuracy after the last step ({episodes} {split} {episodes:episode})", result),
        marks=marks,
        x=Axis(rows=host_kinds),
        # To 112, so that the label above a bar of 100 has room.
        y=Axis(unit="%", span=(0, 112)),
        height=280,
    )


def lives_grid(table: SlotHistory) -> Grid:
    """Return a grid with a chart for each of the policy's first `SHOWN_LIVES` episodes: the life of each slot."""
    is_policy = table["player"] == "policy"
    has_impaired = bool(table["impaired"].any())
    # A dict keeps the order of the episodes, which a set would lose.
    seeds = list(dict.fromkeys(table["env_seed"][is_policy].tolist()))[:SHOWN_LIVES]
    episodes = []
    for seed in seeds:
        rows = is_policy & (table["env_seed"] == seed)
        episodes.append({name: column[rows] for name, column in table.items()})
    return Grid(
        title="What the policy grows",
        reading="An episode each: a row is a slot of the host, from its first step to its last; the line is the host's "
        "accuracy, 0 to 100 %."
        + (" Capable hosts see 3 x 3 pixels, impaired ones single pixels." if has_impaired else ""),
        charts=[life_chart(episode, has_impaired=has_impaired) for episode in episodes],
        # One row of charts, or two for more than half of `SHOWN_LIVES`.
        height=170 * (1 + (len(seeds) > SHOWN_LIVES // 2)),
    )


def life_chart(episode: SlotHistory, *, has_impaired: bool) -> Chart:
    """Return a chart of one episode: its slots' stages by colour, and the host's accuracy.

    Args:
        episode: rows in the order of steps, with `stage` (one number a slot), `accuracy` and `impaired`.
        has_impaired: whether the run has impaired hosts.
    """
    stages: list[list[int]] = episode["stage"].tolist()
    accuracy: list[float] = episode["accuracy"].tolist()
    slots = len(stages[0])
    steps = len(stages)
    marks: list[Mark] = [_stage_spans(name, bars) for name, bars in _stage_segments(stages).items()]
    # Rows of slots are centred on whole numbers, so the axis goes from -0.5 (0 %) to slots - 0.5 (100 %).
    x, y = [step + 0.5 for step in range(steps)], [slots * value - 0.5 for value in accuracy]
    hover_texts = [f"accuracy {value:.0%}" for value in accuracy]
    marks.append(Line(name="accuracy", x=x, y=y, colour=ACCURACY_COLOUR, width=2, hover_text=hover_texts))
    kind = "impaired " if episode["impaired"][0] else "capable "
    return Chart(
        title=f"{kind if has_impaired else ''}host: {accuracy[-1]:.0%}",
        marks=marks,
        x=Axis(kind="round", span=(0, steps)),
        y=Axis(rows=[f"slot {slot}" for slot in reversed(range(slots))]),
        height=60 + 28 * slots,  # in pixels: title and axis, and a row for each slot
    )


def _stage_segments(stages: Sequence[Sequence[int]]) -> dict[str, list[tuple[int, int, int]]]:
    """Return, for each stage, the slot, first step and end of every stretch in it; `stages` is [steps][slots]."""
    names = list(STAGE_COLOURS)
    segments: dict[str, list[tuple[int, int, int]]] = {name: [] for name in names}
    for slot in range(len(stages[0])):
        stage_by_step = [step_stages[slot] for step_stages in stages]
        # A segment: the numbers of steps, one after the other, in which the slot has the same stage.
        for stage, segment in groupby(range(len(stages)), key=stage_by_step.__getitem__):
            steps = [*segment]
            segments[names[stage]].append((slot, steps[0], steps[-1] + 1))
    return segments


def _stage_spans(name: str, bars: Sequence[tuple[int, int, int]]) -> Spans:
    """Return bars in the colour of a stage, from the slot, first step and end of each."""
    slots, starts, ends = zip(*bars, strict=True) if bars else ((), (), ())
    return Spans(
        name=name,
        rows=[f"slot {slot}" for slot in slots],
        starts=starts,
        ends=ends,
        colour=STAGE_COLOURS[name],
        hover_text=[f"{name}, steps {start + 1} to {end}" for _, start, end in bars],
        thickness=0.96,  # of the distance between two rows
    )
