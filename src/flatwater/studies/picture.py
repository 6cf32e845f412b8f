"""A study in one picture: equity over all test days, and each fold beside equal weight and the best rule."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter, ScalarFormatter

from flatwater.recipes.erl.picture import COLOURS
from flatwater.reports.style import INK, write_picture
from flatwater.studies.records import StudyRecords


def draw_study(study: StudyRecords, out: Path) -> None:
    """Draw the pooled equity, the folds, and the intervals of the differences.

    Args:
        study: with at least one complete fold.
        out: PNG file to write, whole or not at all.

    Raises:
        RunError: it cannot be written.
    """

    def paint(figure: Figure) -> None:
        grid = figure.add_gridspec(2, 2, height_ratios=(3, 2), width_ratios=(3, 1))
        _equity(figure.add_subplot(grid[0, :]), study)
        _folds(figure.add_subplot(grid[1, 0]), study)
        _differences(figure.add_subplot(grid[1, 1]), study)

    write_picture(out, (11, 7.5), paint)


def _equity(axes: Axes, study: StudyRecords) -> None:
    assert study.equity is not None  # noqa: S101  (for the type checker: a fold is complete)
    assert study.pooled is not None  # noqa: S101
    dates = study.equity["date"].to_numpy()
    for name in (column for column in study.equity.columns if column != "date"):
        curve, first = study.equity[name].to_numpy(), name == "champion"
        label = f"{'champions' if first else name} x {curve[-1]:.2f}"
        axes.plot(dates, curve, color=COLOURS[name], lw=2.2 if first else 1.1, zorder=3 if first else 2, label=label)
    for row in study.pooled["by_fold"]:
        axes.axvline(np.datetime64(row["first_day"]), color=INK, lw=0.7, ls=":", zorder=1)  # type: ignore[arg-type]
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(ScalarFormatter())
    days = study.pooled["days"]
    axes.set_title(f"Equity on {days:,} test days, in multiples of the start; a line begins a fold, trained anew")
    axes.legend(frameon=False, fontsize=8, ncols=2)
    locator = AutoDateLocator(minticks=4, maxticks=12)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def _folds(axes: Axes, study: StudyRecords) -> None:
    assert study.pooled is not None  # noqa: S101  (same)
    rows = study.pooled["by_fold"]
    at = np.arange(len(rows))
    own = np.array([row["total_return"] for row in rows], dtype=float)
    low, high = (np.array([row[name] for row in rows], dtype=float) for name in ("lowest", "highest"))
    around = np.clip(np.stack([own - low, high - own]), 0, None)
    axes.bar(at - 0.27, own, 0.26, color=COLOURS["champion"], label="champions (and each seed's range)")
    if len(study.result["seeds"]) > 1:
        axes.errorbar(at - 0.27, own, yerr=around, fmt="none", ecolor=INK, lw=1, capsize=2)
    axes.bar(at, [row["equal_weight"] for row in rows], 0.26, color=COLOURS["equal weight"], label="equal weight")
    best = [row["best_rule_return"] for row in rows]
    axes.bar(at + 0.27, best, 0.26, color=COLOURS["random"], label="the rule that earned most")
    low_end, high_end = axes.get_ylim()
    axes.set_ylim(low_end, high_end + 0.2 * (high_end - low_end))  # room for the legend
    axes.axhline(0, color=INK, lw=0.6)
    axes.set_xticks(at, [f"{row['first_day'][:7]}" for row in rows], fontsize=8)
    axes.grid(visible=False, axis="x")
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_title("Return in each fold, by its first month")
    axes.legend(frameon=False, fontsize=8, ncols=3, loc="upper left")


def _differences(axes: Axes, study: StudyRecords) -> None:
    assert study.pooled is not None  # noqa: S101  (same)
    comparison, equal = study.pooled["comparison"], study.pooled["against_equal_weight"]
    rows = [("less\nequal weight", equal["mean"], equal["low"], equal["high"])]
    if comparison["best"] != "equal weight":
        best = f"less\n{comparison['best']}"
        rows = [(best, comparison["difference"], comparison["low"], comparison["high"]), *rows]
    for at, (_, mean, low, high) in enumerate(rows):
        axes.plot([low, high], [at, at], color=COLOURS["champion"], lw=3, solid_capstyle="butt")
        axes.plot([mean], [at], "o", color=INK, ms=5)
    axes.axvline(0, color=INK, lw=0.8)
    axes.set_yticks(range(len(rows)), [name for name, *_ in rows], fontsize=8)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.grid(visible=False, axis="y")
    axes.set_title("Champions less a rule, a year,\n90 % interval")
