"""A finished run of teaching in one picture, drawn from its folder alone."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from flatwater.metrics.reader import known, read_metrics
from flatwater.reports.style import INK, write_picture

COLOURS = {"student": "#c2410c", "teacher": "#1d4ed8", "random": "#94a3b8"}
PARTS = {"env": "#0d9488", "teacher": "#1d4ed8", "student": "#c2410c", "store": "#94a3b8", "update": "#7c3aed"}

Metrics = dict[str, list[float]]


def draw_teaching(run: Path, out: Path) -> None:
    """Returns and the hand-over over the blocks, what each agent is paid, and where the time of a step goes.

    Args:
        run: folder of a finished run.
        out: PNG file to write, whole or not at all.

    Raises:
        RunError: it cannot be written.
    """
    result, metrics = json.loads((run / "result.json").read_text()), read_metrics(run / "metrics.jsonl")

    def paint(figure: Figure) -> None:
        course, handover, players, profile = figure.subplots(2, 2).flat
        _course(course, metrics)
        _handover(handover, metrics)
        _players(players, result)
        _profile(profile, metrics)

    write_picture(out, (11, 7), paint)


def _course(axes: Axes, metrics: Metrics) -> None:
    rounds = metrics["round"]
    if "return/mean" in metrics:
        shown = known(rounds, metrics["return/mean"])
        axes.plot(*shown, "-o", ms=2, color="#64748b", lw=1.2, label="training, led in part")
    axes.plot(
        *known(rounds, metrics.get("evaluation/student", [])),
        "-o", ms=3, color=COLOURS["student"], lw=2, label="student, held out",
    )  # fmt: skip
    for name in ("teacher", "random"):
        _, level = known(rounds, metrics[f"evaluation/{name}"])
        if level:
            axes.axhline(level[-1], color=COLOURS[name], lw=1.2, ls="--", label=name)
    axes.set_xlim(rounds[0] - 0.5, rounds[-1] + 0.5)
    axes.set_title("What an agent is paid in an episode")
    axes.legend(frameon=False, fontsize=8)
    _blocks(axes)


def _handover(axes: Axes, metrics: Metrics) -> None:
    lines = {
        "train/agreement": ("student agrees with the teacher", COLOURS["student"]),
        "lead/share": ("teacher leads", COLOURS["teacher"]),
        "weight/supervision": ("weight of the supervision", "#0d9488"),
        "weight/reinforcement": ("weight of PPO", "#7c3aed"),
    }
    for name, (label, colour) in lines.items():
        axes.plot(metrics["round"], 100 * np.array(metrics[name]), color=colour, lw=1.4, label=label)
    axes.set_title("From the teacher to the student, percent")
    axes.set_ylim(-3, 105)
    axes.legend(frameon=False, fontsize=8)
    _blocks(axes)


def _players(axes: Axes, result: dict[str, Any]) -> None:
    players = result["players"]
    for at, (name, row) in enumerate(players.items()):
        axes.barh(at, row["return"], color=COLOURS[name], height=0.6)
        axes.plot([row["worst"], row["best"]], [at, at], color=INK, lw=0.8)
        axes.text(row["best"], at, f"  {row['return']:.1f}", va="center", color=INK)
    axes.set_yticks(range(len(players)), list(players))
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlim(left=0, right=1.15 * max(row["best"] for row in players.values()) or 1)
    axes.set_title(f"{result['episodes']} {result['split']} episodes: mean, and the worst to the best agent")


def _profile(axes: Axes, metrics: Metrics) -> None:
    shown = {part: known(metrics["round"], metrics.get(f"profile/{part}_us", [])) for part in PARTS}
    shown = {part: course for part, course in shown.items() if course[0]}
    if shown:
        rounds, *_ = next(iter(shown.values()))
        heights = np.array([heights for _, heights in shown.values()])
        axes.stackplot(rounds, *heights, labels=list(shown), colors=[PARTS[part] for part in shown], alpha=0.8)
        axes.legend(frameon=False, fontsize=8, ncols=len(shown), loc="upper center")
        axes.set_ylim(0, 1.25 * float(heights.sum(0).max()))
    axes.set_title("Where the time of a step goes, µs for each agent")
    _blocks(axes)


def _blocks(axes: Axes) -> None:
    axes.set_xlabel("block")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
