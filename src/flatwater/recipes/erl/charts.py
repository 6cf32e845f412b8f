"""Charts of what a population of traders learned: fitness, equity, trades, and what the champion follows."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

import polars as pl

from flatwater.metrics.lines import thinned
from flatwater.reports.markup import Chart
from flatwater.reports.memory_charts import curve, round_axis
from flatwater.reports.records import MOST_POINTS

TRADERS = {
    "champion": "--champion",
    "buy and hold": "--buy-and-hold",
    "equal weight": "--equal-weight",
    "20-day momentum": "--momentum",
    "12-1 momentum": "--slow-momentum",
    "ridge": "--ridge",
    "random": "--random",
    "oracle": "--oracle",
}
"""The colour of each trader, in a run and in a study."""
MOST_COLUMNS = 12
"""Columns, features or instruments that are drawn."""
MARGIN = 0.08


def course_chart(metrics: dict[str, list[float]], crowned: list[tuple[float, float]]) -> Chart:
    """Fitness of the members, and the champion's validation value, over the generations."""
    rounds = metrics["round"]
    band = {"type": "scatter", "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
    data: list[dict[str, Any]] = []
    if len(rounds) > 1:
        data = [
            band | {"x": rounds, "y": _known(metrics, "fitness/min"), "name": "lowest member"},
            band
            | {"x": rounds, "y": _known(metrics, "fitness/max"), "fill": "tonexty", "fillcolor": "--band"}
            | {"name": "fitness, lowest to highest", "showlegend": True},
        ]
    for name, title, colour, width in COURSE:
        if name in metrics:
            data.append(curve(rounds, metrics[name], title, colour, width=width))
    data.append(
        {
            "type": "scatter",
            "mode": "markers",
            "x": [at for at, _ in crowned],
            "y": [value if isfinite(value) else None for _, value in crowned],
            "name": "new champion",
            "marker": {"color": "--champion", "size": 8, "line": {"color": "--card", "width": 1.5}},
            "hoverinfo": "skip",
            "cliponaxis": False,
        }
    )
    limits = robust_range(metrics)
    return Chart(
        title="Fitness and validation",
        reading="Points of reward. Fitness is played on training days with noise, validation on walk-forward days "
        "without. Each generation draws other days, so single values jump; look at the trend. A dot is a new champion.",
        data=data,
        layout={
            "xaxis": round_axis(rounds),
            "yaxis": {} if limits is None else {"range": list(limits), "zeroline": True},
        },
        height=360,
    )


COURSE = (
    ("fitness/mean", "fitness, mean", "--quiet", 1.6),
    ("validation/best", "validation, best member", "--buy-and-hold", 1.4),
    ("validation/champion", "validation, champion", "--champion", 2.4),
)
"""Metric, what it is called, its colour, and the width of its line."""


def _known(metrics: dict[str, list[float]], name: str) -> list[float | None]:
    return _finite(metrics.get(name, []))


def _finite(values: Sequence[float]) -> list[float | None]:
    """A gap where there is no number: JSON knows none but these."""
    return [value if isfinite(value) else None for value in values]


def robust_range(metrics: dict[str, list[float]]) -> tuple[float, float] | None:
    """Limits of the axis of fitness and validation; None where there is nothing to show.

    Some members open no position at first, and are fined ten thousand points: that would flatten every curve. So a mean
    fitness below the others by more than their whole range is cut off.
    """
    names = ("fitness/max", "validation/champion", "validation/best")
    shown = [value for name in names for value in metrics.get(name, []) if isfinite(value)]
    if not shown:
        return None
    low, high = min(shown), max(shown)
    span = high - low or 1.0
    means = [value for value in metrics.get("fitness/mean", []) if isfinite(value) and value > low - span]
    low = min([low, *means])
    margin = MARGIN * (high - low or 1.0)
    return low - margin, high + margin


def equity_chart(equity: pl.DataFrame, split: str) -> Chart:
    """Equity of the champion and the baselines, in percent of the first day's."""
    kept = equity[thinned(len(equity), MOST_POINTS)]
    dates = [str(day) for day in kept["date"]]
    data = []
    for name, colour in TRADERS.items():
        if name not in kept.columns:
            continue
        values = kept[name].to_list()
        changes = [100 * (value / values[0] - 1) for value in values]
        first = name == "champion"
        title = f"{name} {changes[-1]:+.1f}%"
        line = curve(dates, changes, title, colour, hover="%{y:+.1f}%", width=2.6 if first else 1.5)
        data.append(line | {"zorder": int(first)})
    return Chart(
        title=f"Equity on the {split} days",
        reading="Change in percent since the first day, after costs, all with the same cash. The champion was chosen "
        "on the walk-forward days: its lead there is worth something only if it holds on days that nobody has seen.",
        data=data,
        layout={"xaxis": {"type": "date"}, "yaxis": {"ticksuffix": "%", "zeroline": True}},
        height=360,
    )


OUTCOMES = (("gained", pl.col("gain") > 0, "--equal-weight"), ("lost", pl.col("gain") <= 0, "--champion"))
"""Of trades, with their colours."""


def trades_chart(trades: pl.DataFrame) -> Chart:
    """Each trade of the champion by its day of entry, as a stem of what it gained."""
    kept = trades[thinned(len(trades), MOST_POINTS)]
    data = []
    for title, kind, colour in OUTCOMES:
        rows = kept.filter(kind)
        gains = rows["gain"].to_list()
        names = rows["instrument"].to_list() if "instrument" in rows.columns else [""] * len(rows)
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [str(day) for day in rows["entry_date"]],
                "y": gains,
                "text": names,
                "name": f"{title} ({len(rows)})",
                "marker": {"color": colour, "size": 7, "opacity": 0.8},
                "hovertemplate": "%{text} %{y:+.1f}%<extra></extra>",
            }
        )
    left_out = f" {len(kept)} of {len(trades)} are drawn." if len(kept) < len(trades) else ""
    return Chart(
        title="The champion's trades",
        reading="One dot for each closed trade: the day of its purchase, and its gain in percent before costs. A "
        f"target that is met often shows as a row of dots at one height.{left_out}",
        data=data,
        layout={
            "xaxis": {"type": "date"},
            "yaxis": {"ticksuffix": "%", "zeroline": True},
            "hovermode": "closest",
        },
        height=300,
    )


def gain_chart(metrics: dict[str, list[float]]) -> Chart:
    """What the champion gained on each generation's walk-forward slices, beside holding."""
    rounds = metrics["round"]
    columns = (("holding all", HOLDING, "--buy-and-hold", 1.6), ("champion", RETURN, "--champion", 2.4))
    return Chart(
        title="The champion beside holding, generation by generation",
        reading="Mean gain in percent on the walk-forward slices of each generation, after costs; holding is all "
        "instruments in equal parts, without costs. Both are played on the same slices, so look at the distance of the "
        "two lines; their height says how the drawn days went.",
        data=[
            curve(rounds, [100 * gain for gain in metrics[name]], title, colour, hover="%{y:+.1f}%", width=width)
            for title, name, colour, width in columns
        ],
        layout={"xaxis": round_axis(rounds), "yaxis": {"ticksuffix": "%", "zeroline": True}},
        height=280,
    )


RETURN, HOLDING = "validation/return", "validation/holding"


def positions_chart(trades: pl.DataFrame) -> Chart:
    """Each trade as a bar from its purchase to its sale, in the row of its instrument."""
    days = (pl.col("exit_date") - pl.col("entry_date")).sum()
    held = trades.group_by("instrument").agg(days.alias("days")).sort("days", "instrument")
    rows = held["instrument"].to_list()[-MOST_COLUMNS:]
    among = trades.filter(pl.col("instrument").is_in(rows))
    shown = among[thinned(len(among), MOST_POINTS // 3)]  # a bar is two points and a gap
    data = []
    for title, kind, colour in OUTCOMES:
        found = shown.filter(kind).select("entry_date", "exit_date", "instrument", "gain").rows()
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": [day for first, last, _, _ in found for day in (str(first), str(last), None)],
                "y": [name for _, _, instrument, _ in found for name in (instrument, instrument, None)],
                "text": [said for *_, gain in found for said in (f"{gain:+.1f}%",) * 3],
                "name": f"{title} ({len(found)})",
                "line": {"color": colour, "width": 9},
                "hovertemplate": "%{y} %{text}, %{x}<extra></extra>",
            }
        )
    others = len(held) - len(rows)
    more = f" The {others} instruments that it held less are left out." if others else ""
    more += f" {len(shown)} of {len(among)} trades are drawn." if len(shown) < len(among) else ""
    return Chart(
        title="What it held, and when",
        reading="One bar for each closed trade, from purchase to sale. Gaps are days on which nothing of the "
        f"instrument was held.{more}",
        data=data,
        layout={
            "xaxis": {"type": "date"},
            "yaxis": {
                "type": "category",
                "categoryorder": "array",
                "categoryarray": rows,
                "showgrid": False,
                "dtick": 1,
            },
            "hovermode": "closest",
        },
        height=90 + 26 * len(rows),
    )


MOST_PRICED = 4
"""Instruments whose trades are drawn on their prices, each in a frame of its own."""
FRAME, GAP = 150, 0.04
"""Pixels of a frame, and the part of the chart between two."""
DEEDS = (("entry", "bought", "triangle-up", "--equal-weight"), ("exit", "sold", "triangle-down", "--champion"))


def priced_chart(prices: pl.DataFrame, trades: pl.DataFrame) -> Chart:
    """Purchases and sales on the closes of the instruments that were traded most."""
    names = [name for name in prices.columns if name != "date"][:MOST_PRICED]
    height = (1 - GAP * (len(names) - 1)) / len(names)
    data, axes = list[dict[str, Any]](), dict[str, Any]()
    days = [str(day) for day in prices["date"]]
    for place, name in enumerate(names):
        number = "" if place == 0 else str(place + 1)
        closes = prices[name].cast(pl.Float64).fill_null(float("nan")).to_list()
        line = curve(days, closes, name, "--quiet", hover="%{y:.4g}", width=1.2)
        data.append(line | {"y": _finite(closes), "yaxis": f"y{number}", "showlegend": False})
        own = trades.filter(pl.col("instrument") == name)
        for kind, title, symbol, colour in DEEDS:
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "x": [str(day) for day in own[f"{kind}_date"]],
                    "y": _finite(own[f"{kind}_price"].to_list()),
                    "name": f"{name} {title}",
                    "showlegend": False,
                    "yaxis": f"y{number}",
                    "marker": {"color": colour, "size": 8, "symbol": symbol},
                    "hovertemplate": f"{title} at %{{y:.4g}}, %{{x}}<extra></extra>",
                }
            )
        top = 1 - place * (height + GAP)
        axes[f"yaxis{number}"] = {"domain": [max(0.0, top - height), top], "title": {"text": name}, "nticks": 4}
    others = trades["instrument"].n_unique() - len(names)
    more = f" The {others} instruments that it traded less are left out." if others > 0 else ""
    return Chart(
        title="Its trades on their prices",
        reading="The closes of the instruments that it traded most. A triangle that points up is a purchase, one that "
        f"points down a sale.{more}",
        data=data,
        layout={
            "xaxis": {"type": "date", "anchor": f"y{len(names)}" if len(names) > 1 else "y"},
            "hovermode": "closest",
        }
        | axes,
        height=60 + FRAME * len(names),
    )


def effects_chart(effects: dict[str, float]) -> Chart:
    """The features whose absence changes the champion's coefficients most."""
    return _bars(
        effects,
        title="Which features its decisions follow from",
        reading="By occlusion: a feature of all instruments is replaced by its mean, and the coefficients are asked "
        "for again; the bar is their mean change, up or down, on days evenly spaced over the stretch.",
        unit="",
        names="features",
    )


def importance_chart(importance: dict[str, float]) -> Chart:
    """The columns with most of the champion's attention."""
    return _bars(
        {name: 100 * share for name, share in importance.items()},
        title="Which columns it looks at",
        reading="Mean share of the champion's attention. Where all bars are equal it looks at no column in particular.",
        unit="%",
        names="columns",
    )


def _bars(values: dict[str, float], *, title: str, reading: str, unit: str, names: str) -> Chart:
    top = sorted(values.items(), key=lambda item: item[1])[-MOST_COLUMNS:]
    rest = len(values) - len(top)
    more = f" The other {rest} {names} have less each." if rest else ""
    return Chart(
        title=title,
        reading=reading + more,
        data=[
            {
                "type": "bar",
                "orientation": "h",
                "y": [name for name, _ in top],
                "x": [value for _, value in top],
                "name": names,
                "showlegend": False,
                "marker": {"color": "--buy-and-hold"},
                "hovertemplate": f"%{{x:.3g}}{unit}<extra></extra>",
            }
        ],
        layout={"xaxis": {"ticksuffix": unit}, "yaxis": {"dtick": 1, "showgrid": False}, "hovermode": "closest"},
        height=60 + 24 * len(top),
    )
