"""The parts of a page that only a population of traders has: what it learned, and how its champion trades."""

from collections.abc import Iterator, Mapping

from flatwater.recipes.erl.charts import course_chart, equity_chart, importance_chart, trades_chart
from flatwater.reports.markup import Chart, Html, folded, paragraph, table
from flatwater.reports.missing import missing
from flatwater.reports.records import RunRecords
from flatwater.reports.results import result_table

BEST_AND_WORST = 5


def trading_parts(run: RunRecords) -> Mapping[str, Iterator[Html | Chart]]:
    """Title -> blocks."""
    return {"Learning": learning(run), "Trading": trading(run)}


def learning(run: RunRecords) -> Iterator[Html | Chart]:
    """Fitness and validation, and what the champion looks at."""
    if run.metrics.get("round"):
        yield course_chart(run.metrics, run.crowned)
    else:
        yield missing("generation", "metrics.jsonl", run, "after each round")
    if run.result is not None and run.result.get("importance"):
        yield importance_chart(run.result["importance"])


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
    if run.trades is None or not len(run.trades):
        yield paragraph("The champion closed no trade on these days.", class_="missing")
        return
    yield trades_chart(run.trades)
    yield folded("Its best and its worst trades", _extremes(run))


def _extremes(run: RunRecords) -> Html:
    assert run.trades is not None  # noqa: S101  (for the type checker: the caller has looked)
    names = [name for name in ("instrument", "entry_date", "exit_date", "reason", "gain") if name in run.trades.columns]
    ordered = run.trades.sort("gain", descending=True).select(names).rows()
    few = len(ordered) <= 2 * BEST_AND_WORST
    rows = ordered if few else ordered[:BEST_AND_WORST] + ordered[-BEST_AND_WORST:]
    titles = [name.replace("_", " ") for name in names]
    cells = [[*map(str, row[:-1]), f"{row[-1]:+.2f}%"] for row in rows]
    return table(titles, cells, words=len(names) - 1)
