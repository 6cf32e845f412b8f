"""The parts of a page that only a population of traders has: what it learned, and how its champion trades."""

from collections.abc import Iterator, Mapping

import polars as pl

from flatwater.recipes.erl.behaviour import HELD_AGAINST, PERIODS, REGIMES, by_period, by_regime, habits
from flatwater.recipes.erl.charts import (
    HOLDING,
    RETURN,
    course_chart,
    effects_chart,
    equity_chart,
    gain_chart,
    importance_chart,
    positions_chart,
    priced_chart,
    trades_chart,
)
from flatwater.reports.markup import Chart, Html, folded, paragraph, table
from flatwater.reports.missing import missing
from flatwater.reports.records import RunRecords
from flatwater.reports.results import result_table

BEST_AND_WORST = 5
PLACED = {"instrument", "entry_date", "entry_price", "exit_date", "exit_price"}
"""Columns of the trades that are drawn on prices."""


def trading_parts(run: RunRecords) -> Mapping[str, Iterator[Html | Chart]]:
    """Title -> blocks."""
    return {"Trading": trading(run), "What it does": behaviour(run), "Learning": learning(run)}


def learning(run: RunRecords) -> Iterator[Html | Chart]:
    """The champion beside holding, and the population's fitness."""
    if not run.metrics.get("round"):
        yield missing("generation", "metrics.jsonl", run, "after each round")
        return
    if RETURN in run.metrics and HOLDING in run.metrics:
        yield gain_chart(run.metrics)
    yield course_chart(run.metrics, run.crowned)


def trading(run: RunRecords) -> Iterator[Html | Chart]:
    """The champion against the baselines."""
    if run.result is None:
        yield missing("result", "result.json", run)
        return
    result = run.result
    if run.equity is not None and len(run.equity):
        yield equity_chart(run.equity, result["split"])
    yield result_table(run.recipe, result)
    days = f"{result['first_day']} to {result['last_day']}, {result['days']} days"
    yield paragraph(f"{days}. {result.get('verdict', '')} Note: {result['note']}.", class_="reading")


def behaviour(run: RunRecords) -> Iterator[Html | Chart]:
    """When the champion buys, what it holds, in which markets it gains, and what its decisions follow from."""
    if run.result is None:
        yield missing("result", "result.json", run)
        return
    if run.trades is None or not len(run.trades):
        yield paragraph("The champion closed no trade on these days.", class_="missing")
    else:
        yield from _deeds(run.trades, run.equity, run.prices)
    if run.result.get("effects"):
        yield effects_chart(run.result["effects"])
    if run.result.get("importance"):
        yield importance_chart(run.result["importance"])


def _deeds(trades: pl.DataFrame, equity: pl.DataFrame | None, prices: pl.DataFrame | None) -> Iterator[Html | Chart]:
    # Tables of other versions and of hands that edited them lack columns: what these are needed for is left out.
    placed = {"instrument", "exit_date"} <= set(trades.columns)
    if placed and equity is not None and len(equity) > 1 and HELD_AGAINST in equity.columns:
        yield paragraph(habits(trades, equity), class_="reading")
        yield positions_chart(trades)
        yield table(PERIODS, by_period(trades, equity))
        if regimes := by_regime(equity):
            yield table(REGIMES, regimes)
    if prices is not None and len(prices.columns) > 1 and set(trades.columns) >= PLACED:
        yield priced_chart(prices, trades)
    yield trades_chart(trades)
    yield folded("Its best and its worst trades", _extremes(trades))


def _extremes(trades: pl.DataFrame) -> Html:
    names = [name for name in ("instrument", "entry_date", "exit_date", "reason", "gain") if name in trades.columns]
    ordered = trades.sort("gain", descending=True).select(names).rows()
    few = len(ordered) <= 2 * BEST_AND_WORST
    rows = ordered if few else ordered[:BEST_AND_WORST] + ordered[-BEST_AND_WORST:]
    titles = [name.replace("_", " ") for name in names]
    cells = [[*map(str, row[:-1]), f"{row[-1]:+.2f}%"] for row in rows]
    return table(titles, cells, words=len(names) - 1)
