"""Comparison of two runs of traders: the difference of their returns with its interval, and their equity."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np
import polars as pl

from flatwater.metrics.jsonl_lines import spread_indexes
from flatwater.recipe import Difference, NoDifferenceError
from flatwater.reports.records import RunRecords
from flatwater_trading.panel.calendar import Calendar, infer_calendar
from flatwater_trading.recipe.return_difference import (
    MINIMUM_PERIODS,
    OTHER_MARKET_NOTE,
    estimate_difference,
    is_same_market,
    period_returns,
)
from flatwater_trading.recipe.sections import equity_line
from flatwater_trading.recipe.tables import read_equity
from flatwater_trading.recipe.trader_names import BUY_AND_HOLD
from flatwater_watch.pages.chart import Axis, Chart
from flatwater_watch.pages.chart_values import MAXIMUM_POINTS


def champion_difference(runs: Mapping[str, RunRecords]) -> Difference:
    """Estimate the difference of two champions' returns in a year, from their equity on the same days.

    Args:
        runs: records of two runs by their letters on the page: `a` and then `b`, which `a` is compared with.

    Raises:
        NoDifferenceError: a run has no equity or an equity with gaps, or the runs have traded different or too few
            days, or their trained traders have different names.
        RunError: a table of a run is damaged.
    """
    equity_by_letter = {letter: read_equity(run.path) for letter, run in runs.items()}
    tables = [table for table in equity_by_letter.values() if table is not None]
    lacking = [letter for letter, table in equity_by_letter.items() if table is None]
    if lacking:
        letters = " and ".join(lacking)
        raise NoDifferenceError(f"for lack of the daily equity of {letters}, which only a trader with a result has")
    if not tables[0]["date"].equals(tables[1]["date"]):
        raise NoDifferenceError("their equity is of different days")
    *_, compared_run = runs.values()
    calendar = infer_calendar(tables[0]["date"].to_numpy())
    returns = _champion_returns(tables, compared_run.recipe.trained, calendar)
    difference = estimate_difference(*returns, a_year=calendar.a_year)
    # Whether both runs had the same market and costs shows only in what buy and hold earned, as recipes name their
    # settings of costs differently. A table of another version may lack this column, or an edited one its numbers.
    market_returns = [
        period_returns(table[BUY_AND_HOLD].to_numpy())
        for table in tables
        if table.schema.get(BUY_AND_HOLD, pl.String()).is_numeric()
    ]
    has_other_market = len(market_returns) == len(tables) and not is_same_market(*market_returns)
    return Difference(
        asdict(difference),
        len(returns[0]),
        calendar.units,
        difference.comparison_phrase,
        note=OTHER_MARKET_NOTE if has_other_market else "",
    )


def _champion_returns(tables: Sequence[pl.DataFrame], column: str, calendar: Calendar) -> list[np.ndarray]:
    """Return the returns of the champions in each period, one array for each run.

    Args:
        tables: equity of each run.
        column: column of the champion's equity; the table of a run that trained something else lacks it.
        calendar: frequency of the tables' rows.

    Raises:
        NoDifferenceError: the runs trained different things, or the periods are too few or lack a number.
    """
    returns = [period_returns(table[column].to_numpy()) for table in tables if column in table.columns]
    if len(returns) < len(tables):
        raise NoDifferenceError("they trained different things")
    if len(returns[0]) < MINIMUM_PERIODS:
        raise NoDifferenceError(f"fewer than {MINIMUM_PERIODS} {calendar.units}")
    if not all(np.isfinite(run_returns).all() for run_returns in returns):
        raise NoDifferenceError(f"an equity curve has {calendar.units} without a number")
    return returns


def comparison_charts(runs: Mapping[str, RunRecords], colours: Sequence[str]) -> list[Chart]:
    """Draw the equity of each run's champion, as change in percent since its first day; no chart without any equity.

    Args:
        runs: records of runs by their letters.
        colours: colours of the runs.
    """
    equity_by_letter = {letter: read_equity(run.path) for letter, run in runs.items()}
    # The champion's equity; a run that trained something else lacks it.
    return equity_charts(
        {
            letter: equity.select("date", champion=run.recipe.trained)
            for (letter, run), equity in zip(runs.items(), equity_by_letter.values(), strict=True)
            if equity is not None and run.recipe.trained in equity.columns
        },
        dict(zip(runs, colours, strict=True)),
        "run",
    )


def equity_charts(equity: Mapping[str, pl.DataFrame], colours: Mapping[str, str], noun: str) -> list[Chart]:
    """Draw the equity of champions over each other, as change in percent since their first day.

    Args:
        equity: table with the columns `date` and `champion`, by letter.
        colours: colours by letter.
        noun: what a letter stands for.

    Returns:
        One chart; none without any equity.
    """
    marks = []
    for letter, table in equity.items():
        shown_rows = table[spread_indexes(len(table), MAXIMUM_POINTS)]
        dates, values = shown_rows["date"].to_list(), shown_rows["champion"].to_list()
        stroke = (colours[letter], False)  # not dashed
        marks.append(equity_line(letter, dates, values, stroke, width=2, in_front=False))
    if not marks:
        return []
    return [
        Chart(
            title="Equity",
            reading=f"Change in percent since each {noun}'s first day, after costs.",
            marks=marks,
            x=Axis(kind="date"),
            y=Axis(unit="%", zero=True),
            height=360,
        )
    ]
