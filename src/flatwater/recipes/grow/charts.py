"""Charts of what a policy that grows networks learned, and of each slot's life."""

from collections.abc import Sequence
from itertools import groupby

import polars as pl

from flatwater.recipes.grow.stages import STAGES
from flatwater.reports.markup import Chart, Html, tag
from flatwater.reports.memory_charts import curve, round_axis
from flatwater.reports.returns_curves import returns_curves

PLAYERS = {"heuristic": "--buy-and-hold", "wait": "--equal-weight", "random": "--random"}
OPERATIONS = {
    "wait": "--quiet",
    "germinate": "--equal-weight",
    "advance": "--buy-and-hold",
    "set_alpha_target": "--random",
    "fossilise": "--champion",
    "prune": "--bad",
}
WIDTH, ROW = 300, 26
"""Pixels of a life, and of a slot's row in it."""


def returns_chart(metrics: dict[str, list[float]]) -> Chart:
    """Returns of training episodes and of held-out ones, against the baselines on the same held-out ones."""
    return Chart(
        title="Return of an episode",
        reading="Training episodes are explored, so their mean lies lower. The held-out episodes are always the same, "
        "and the baselines' returns on them are level lines: the policy should come to lie above all of them.",
        data=returns_curves(metrics, "policy", PLAYERS),
        layout={"xaxis": round_axis(metrics["round"])},
        height=360,
    )


def operations_chart(metrics: dict[str, list[float]]) -> Chart:
    """Share of each operation in the training episodes."""
    rounds = metrics["round"]
    data = [
        curve(rounds, [100 * share for share in metrics[f"operation/{name}"]], name.replace("_", " "), colour)
        for name, colour in OPERATIONS.items()
        if f"operation/{name}" in metrics
    ]
    return Chart(
        title="What the policy does",
        reading="Share of each operation in the training episodes, in percent. Some are drawn at random, so that "
        "none dies out; a policy that only waits has learned nothing.",
        data=data,
        layout={"xaxis": round_axis(rounds), "yaxis": {"ticksuffix": "%", "rangemode": "tozero"}},
    )


def stages_legend() -> Html:
    """A colour for each stage."""
    marks = [
        piece
        for name, colour in STAGES.items()
        for piece in (tag("i", style=f"background:{colour}"), tag("span", name))
    ]
    return tag("div", marks, class_="stages")


def host_name(episode: pl.DataFrame, *, kinds: bool) -> str:
    """How an episode's host is called: by its kind, where a run has two."""
    kind = "impaired " if episode["impaired"][0] else "capable "
    return f"{kind if kinds else ''}host"


def life(episode: pl.DataFrame, *, kinds: bool) -> Html:
    """One episode as a picture: its slots' stages by colour, and the host's accuracy.

    Args:
        episode: rows in the order of steps, with `stage` (a list, one number a slot), `accuracy` and `impaired`.
        kinds: whether the run has impaired hosts.
    """
    stages: list[list[int]] = episode["stage"].to_list()
    accuracy: list[float] = episode["accuracy"].to_list()
    slots, height = len(stages[0]), ROW * len(stages[0])
    bars = [bar for slot in range(slots) for bar in _bars([row[slot] for row in stages], slot)]
    step = WIDTH / len(stages)
    points = " ".join(f"{(at + 0.5) * step:.1f},{height * (1 - value):.1f}" for at, value in enumerate(accuracy))
    lines = [tag("polyline", points=points, class_=name) for name in ("halo", "accuracy")]
    picture = tag("svg", [*bars, *lines], viewBox=f"0 0 {WIDTH} {height}", role="img")
    said = f"{host_name(episode, kinds=kinds)}: {accuracy[-1]:.0%}"
    told = tag("figcaption", said, title=f"env seed {episode['env_seed'][0]}")
    return tag("figure", [told, picture], class_="life")


def _bars(stages: Sequence[int], slot: int) -> list[Html]:
    """A rectangle for each stretch of steps in one stage, which says what it is where the pointer rests."""
    names, step, at, bars = list(STAGES), WIDTH / len(stages), 0, []
    for stage, steps in groupby(stages):
        length = len(list(steps))
        said = f"slot {slot}: {names[stage]}, steps {at + 1} to {at + length}"
        bars.append(
            tag(
                "rect",
                tag("title", said),
                x=f"{at * step:.1f}",
                y=str(slot * ROW + 1),
                width=f"{length * step:.1f}",
                height=str(ROW - 2),
                fill=STAGES[names[stage]],
            )
        )
        at += length
    return bars
