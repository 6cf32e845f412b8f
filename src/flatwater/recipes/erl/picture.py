"""A finished run in one picture, drawn from its folder alone."""

import json
from pathlib import Path
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from flatwater.metrics.reader import read_metrics
from flatwater.recipes.erl.charts import robust_range
from flatwater.reports.style import FAINT, INK, write_picture

COLOURS = {
    "champion": "#c2410c",
    "buy and hold": "#1d4ed8",
    "equal weight": "#0d9488",
    "20-day momentum": "#a16207",
    "12-1 momentum": "#0891b2",
    "ridge": "#be185d",
    "random": "#94a3b8",
    "oracle": "#7c3aed",
}
"""The colour of each trader, in a run and in a study."""
MOST_COLUMNS = 12
"""Columns whose importance is drawn."""


def draw_trading(run: Path, out: Path) -> None:
    """Equity against the baselines, the course of evolution, the champion's trades and what it looks at.

    Args:
        run: folder of a finished run.
        out: PNG file to write, whole or not at all.

    Raises:
        RunError: it cannot be written.
    """
    result = json.loads((run / "result.json").read_text())

    def paint(figure: Figure) -> None:
        equity, course, trades, importance = figure.subplots(2, 2).flat
        _equity(equity, pl.read_parquet(run / "equity.parquet"), result)
        _course(course, read_metrics(run / "metrics.jsonl"))
        _trades(trades, pl.read_parquet(run / "trades.parquet"))
        trades.set_xlim(*equity.get_xlim())
        _importance(importance, result["importance"])

    write_picture(out, (11, 7), paint)


def _equity(axes: Axes, curves: pl.DataFrame, result: dict[str, Any]) -> None:
    dates = curves["date"].to_numpy()
    for name, colour in COLOURS.items():
        if name not in curves.columns:  # only an artificial market has an oracle
            continue
        curve = curves[name].to_numpy()
        change = 100 * (curve / curve[0] - 1)
        axes.plot(dates, change, color=colour, lw=2 if name == "champion" else 1.2, label=f"{name} {change[-1]:+.1f} %")
    axes.axhline(0, color=INK, lw=0.6)
    axes.set_title(f"Equity on the {result['split']} days, percent")
    axes.legend(frameon=False, fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.08))  # covers no curve
    _few_dates(axes)


def _few_dates(axes: Axes) -> None:
    locator = AutoDateLocator(minticks=2, maxticks=6)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def _course(axes: Axes, metrics: dict[str, list[float]]) -> None:
    rounds = metrics["round"]
    axes.fill_between(rounds, metrics["fitness/min"], metrics["fitness/max"], color=FAINT, label="fitness, min to max")
    axes.plot(rounds, metrics["fitness/mean"], color="#64748b", lw=1.4, label="fitness, mean")
    axes.plot(rounds, metrics["validation/champion"], color=COLOURS["champion"], lw=2, label="champion, validation")
    crowned = [n for n, new in zip(rounds, metrics["champion/crowned"], strict=True) if new]
    values = [metrics["validation/champion"][rounds.index(n)] for n in crowned]
    axes.plot(crowned, values, "o", ms=4, color=COLOURS["champion"], label="new champion")
    axes.set_ylim(robust_range(metrics))
    axes.set_title("Evolution, points of reward")
    axes.set_xlabel("generation")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False, fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.14))


def _trades(axes: Axes, log: pl.DataFrame) -> None:
    gains = log["gain"].to_numpy()
    colours = [COLOURS["equal weight"] if gain > 0 else COLOURS["champion"] for gain in gains]
    axes.bar(log["entry_date"].to_numpy(), gains, width=1.6, color=colours)
    axes.axhline(0, color=INK, lw=0.6)
    wins = int((gains > 0).sum())
    axes.set_title(f"The champion's {len(gains)} trades, percent gained ({wins} won)")
    _few_dates(axes)


def _importance(axes: Axes, importance: dict[str, float]) -> None:
    top = sorted(importance.items(), key=lambda item: item[1])[-MOST_COLUMNS:]
    axes.barh([name for name, _ in top], [100 * weight for _, weight in top], color=COLOURS["buy and hold"])
    axes.set_title("What the champion looks at, percent of attention")
    axes.grid(visible=False, axis="y")
