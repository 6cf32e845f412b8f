"""A finished run of growing networks in one picture, drawn from its folder alone."""

import json
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from flatwater.metrics.reader import read_metrics
from flatwater.recipes.grow.charts import host_name
from flatwater.recipes.grow.stages import STAGES
from flatwater.reports.style import FAINT, INK, write_picture

COLOURS = {"policy": "#c2410c", "heuristic": "#1d4ed8", "wait": "#0d9488", "random": "#94a3b8"}
LIVES = 8
"""Episodes whose slots are drawn."""
ROWS = 2


def draw_growth(run: Path, out: Path) -> None:
    """Returns over the batches, accuracies against the baselines, and what became of each slot.

    Args:
        run: folder of a finished run.
        out: PNG file to write, whole or not at all.

    Raises:
        RunError: it cannot be written.
    """
    result = json.loads((run / "result.json").read_text())
    lives = pl.read_parquet(run / "lives.parquet").filter(pl.col("player") == "policy")

    def paint(figure: Figure) -> None:
        halves = figure.add_gridspec(2, 1, height_ratios=(1, 1.1))
        above, below = figure.add_subfigure(halves[0]), figure.add_subfigure(halves[1])
        course, accuracy = above.subplots(1, 2)
        _course(course, read_metrics(run / "metrics.jsonl"))
        _accuracy(accuracy, result)
        _lives(below, lives)

    write_picture(out, (11, 8), paint)


def _lives(below: SubFigure, lives: pl.DataFrame) -> None:
    seeds = lives["env_seed"].unique(maintain_order=True).to_list()[:LIVES]
    grid = below.subplots(ROWS, -(-len(seeds) // ROWS), squeeze=False, sharex=True, sharey=True)
    for axes, seed in zip(grid.flat, seeds, strict=False):
        _life(axes, lives.filter(pl.col("env_seed") == seed), kinds=bool(lives["impaired"].any()))
    for axes in grid.flat[len(seeds) :]:
        axes.set_visible(False)
    below.suptitle(
        "What the policy grows: each slot's life in held-out episodes, and the host's accuracy",
        x=0.01,
        ha="left",
        fontsize=10,
        fontweight="bold",
    )
    patches = [Patch(color=colour, label=name) for name, colour in STAGES.items()]
    below.legend(handles=patches, loc="outside lower center", ncols=len(STAGES), frameon=False, fontsize=8)


def _course(axes: Axes, metrics: dict[str, list[float]]) -> None:
    rounds = metrics["round"]
    axes.fill_between(rounds, metrics["return/min"], metrics["return/max"], color=FAINT, label="training, min to max")
    axes.plot(rounds, metrics["return/mean"], color="#64748b", lw=1.2, label="training, mean")
    for name, colour in COLOURS.items():
        values = metrics.get(f"evaluation/{name}", [])
        known = [(n, value) for n, value in zip(rounds, values, strict=False) if isfinite(value)]
        if known and name == "policy":
            axes.plot(*zip(*known, strict=True), "-o", ms=3, color=colour, lw=2, label="policy, held out")
        elif known:
            axes.axhline(known[-1][1], color=colour, lw=1.2, ls="--", label=name)
    axes.set_title("Return of an episode")
    axes.set_xlabel("batch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False, fontsize=8, loc="lower right")


def _accuracy(axes: Axes, result: dict[str, Any]) -> None:
    """Bars for the two kinds of hosts, or for all where there is one kind."""
    players = result["players"]
    kinds = [kind for kind in ("accuracy_capable", "accuracy_impaired") if players["policy"][kind] is not None]
    kinds = kinds or ["accuracy"]
    at, width = np.arange(len(kinds)), 0.8 / len(players)
    for n, (name, numbers) in enumerate(players.items()):
        heights = [100 * numbers[kind] for kind in kinds]
        bars = axes.bar(
            at + (n - (len(players) - 1) / 2) * width, heights, 0.9 * width, color=COLOURS[name], label=name
        )
        axes.bar_label(bars, fmt="%.0f", fontsize=8)
    axes.set_xticks(at, [f"{kind.removeprefix('accuracy').removeprefix('_')} hosts".strip() for kind in kinds])
    axes.set_title(f"Accuracy after the last step, percent ({result['episodes']} {result['split']} episodes)")
    axes.grid(visible=False, axis="x")
    axes.set_ylim(0, 115)
    axes.legend(frameon=False, fontsize=8, ncols=len(players), loc="upper right")


def _life(axes: Axes, episode: pl.DataFrame, *, kinds: bool) -> None:
    stages = np.stack(episode["stage"].to_list()).T
    slots, steps = stages.shape
    colours = ListedColormap(list(STAGES.values()))
    norm = BoundaryNorm(np.arange(len(STAGES) + 1) - 0.5, len(STAGES))
    axes.imshow(
        stages, cmap=colours, norm=norm, aspect="auto", extent=(0.5, steps + 0.5, slots - 0.5, -0.5), alpha=0.85
    )
    axes.plot(episode["step"] + 1, slots - 0.5 - slots * episode["accuracy"], color=INK, lw=1.4)
    axes.grid(visible=False)
    axes.set_yticks(range(slots), [f"slot {n}" for n in range(slots)])
    said = f"{host_name(episode, kinds=kinds)}: {episode['accuracy'][-1]:.0%}"
    axes.set_title(said, fontsize=9, fontweight="normal")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
