"""Sections that only a population of traders has on its page: its learning, and its champion's trades."""

import re
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import cycle
from math import isfinite, nan
from typing import Any, Literal

import polars as pl

from flatwater.metrics.jsonl_lines import spread_indexes
from flatwater.reports.learning_charts import Sections
from flatwater.reports.metric_lines import Metrics, share_lines
from flatwater.reports.records import RunRecords
from flatwater.reports.result_blocks import holdout_blocks, missing_paragraph, result_table
from flatwater.rundir.results import DAMAGE_FAULTS, damaged_file_error
from flatwater_trading.panel.calendar import DAILY, calendar_of_year
from flatwater_trading.recipe.behaviour import (
    PERIOD_COLUMNS,
    calendar_of_equity,
    describe_habits,
    period_rows,
    regime_rows,
    regime_titles,
)
from flatwater_trading.recipe.rule_tables import rule_blocks
from flatwater_trading.recipe.tables import EQUITY, PRICES, SHEET, TRADES, TraderFolder, read_equity, read_table
from flatwater_trading.recipe.tear_sheet import score_blocks, tear_sheet
from flatwater_trading.recipe.trader_names import EQUAL_WEIGHT
from flatwater_watch.pages.blocks import Block, FoldedBlock, Heading, Paragraph, Table
from flatwater_watch.pages.chart import Axis, Band, Bars, Chart, Dots, Grid, Line, Mark, Picture, Spans, round_axis
from flatwater_watch.pages.chart_values import MAXIMUM_POINTS, largest_values

COLOURS = (
    "--champion",
    "--buy-and-hold",
    "--equal-weight",
    "--momentum",
    "--slow-momentum",
    "--ridge",
    "--random",
    "--oracle",
    "--quiet",
)
Stroke = tuple[str, bool]
"""A colour, and whether the line is dashed."""
STROKES: tuple[Stroke, ...] = (*((colour, False) for colour in COLOURS), *((colour, True) for colour in COLOURS[1:]))
"""Strokes that can be told apart; a dashed one of the champion's colour could be taken for the champion."""
KNOWN_TRADERS = (
    "champion",
    "buy and hold",
    "equal weight",
    "20-day momentum",
    "12-1 momentum",
    "ridge",
    "random",
    "oracle",
    "ridge, weights",
    "minimum variance",
    "inverse volatility",
    "risk parity",
    "volatility rule",
    "ridge, top five",
)
"""Traders in the order of `STROKES`: each has the same line in a run and in a study."""
RETURN, HOLDING = "validation/return", "validation/holding"
COURSE_CURVES = (
    ("fitness/mean", "fitness, mean", "--quiet", 1.6),
    ("validation/best", "validation, best member", "--buy-and-hold", 1.4),
    ("validation/champion", "validation, champion", "--champion", 2.4),
)
"""Metric, title, colour and line width of each curve."""
OUTCOME_MARKS = (("gained", pl.col("gain") > 0, "--equal-weight"), ("lost", pl.col("gain") <= 0, "--champion"))
"""Title, condition and colour of each outcome of a trade."""
ORDER_MARKS: tuple[tuple[str, str, Literal["up", "down"], str], ...] = (
    ("entry", "bought", "up", "--equal-weight"),
    ("exit", "sold", "down", "--champion"),
)
"""Prefix of a trade's columns, title, symbol and colour of purchases and sales."""
PLACED_COLUMNS = {"instrument", "entry_date", "entry_price", "exit_date", "exit_price"}
"""Columns of the trades that are drawn on prices."""
MAXIMUM_ROWS = 12
"""Most columns, features or instruments that are drawn."""
MAXIMUM_PRICE_CHARTS = 4
"""Most instruments whose trades are drawn on their prices."""
BEST_AND_WORST = 5
AXIS_MARGIN_SHARE = 0.08  # of the range, below and above the curves


def trading_sections(run: RunRecords) -> Sections:
    """Return the blocks of the sections that a run of traders has on its page, by the sections' titles."""
    return {
        "Trading": champion_section(run),
        "Tear sheet": sheet_section(run),
        "What it does": behaviour_section(run),
        "Learning": learning_section(run),
    }


def trading_picture(run: RunRecords) -> Picture:
    """Return the picture of a run: equity and fitness above, the champion's trades and the effects of columns below."""
    result = run.result or {}
    folder = TraderFolder(run.path)
    curves = read_equity(run.path)
    trades = read_table(folder.trades, TRADES)
    upper_charts: list[Chart] = [course_chart(run)]
    lower_charts: list[Chart] = []
    if curves is not None and len(curves):
        upper_charts.insert(0, equity_chart(curves, result["split"]))
    if trades is not None:
        lower_charts.append(trades_chart(trades))
    if result.get("column_effects"):
        lower_charts.append(columns_chart(result["column_effects"]))
    return [upper_charts, lower_charts] if lower_charts else [upper_charts]


def sheet_section(run: RunRecords) -> Iterator[Block]:
    """Yield the tear sheet and the scores of the holdout days or, while these are not played, of the validation days.

    Raises:
        RunError: the analysis of the scores is damaged.
    """
    folder = TraderFolder(run.path)
    split, result, file = "validation", run.result, folder.result
    equity_file, sheet_file = folder.equity, folder.sheet
    if run.holdout is not None and folder.holdout_equity.is_file():
        split, result, file = "holdout", run.holdout, folder.holdout
        equity_file, sheet_file = folder.holdout_equity, folder.holdout_sheet
    if result is None:
        yield missing_paragraph("result", "result.json", run.state)
        return
    yield Paragraph(f"On the {split} days.", "reading")
    equity = read_table(equity_file, EQUITY)
    sheet = read_table(sheet_file, SHEET)
    if equity is not None:
        yield from tear_sheet(equity, sheet, result)
    if "scores" in result:  # results of other versions have none
        yield Heading("Scores")
        try:
            yield from score_blocks(sheet, result)
        except DAMAGE_FAULTS as error:
            raise damaged_file_error(file, error) from error


def champion_section(run: RunRecords) -> Iterator[Block]:
    """Yield equity, table and verdict of the champion beside the baselines, then on the holdout; or what is missing."""
    if run.result is None:
        yield missing_paragraph("result", "result.json", run.state)
        return
    result = run.result
    equity = read_equity(run.path)
    holdout = read_table(TraderFolder(run.path).holdout_equity, EQUITY)
    if equity is not None and len(equity):
        yield equity_chart(equity, result["split"])
    yield result_table(run.recipe, result)
    a_year = result.get("periods_per_year")  # missing in results of other versions or edited results
    calendar = calendar_of_year(a_year) if isinstance(a_year, int) and a_year > 0 else DAILY
    period = f"{result['first_day']} to {result['last_day']}, {result['days']} {calendar.units}"
    yield Paragraph(f"{period}. {result.get('verdict', '')} Note: {result['note']}.", "reading")
    if run.holdout is not None and holdout is not None and len(holdout):
        yield equity_chart(holdout, "holdout")
    yield from holdout_blocks(run)
    yield from rule_blocks(run, calendar.unit)


def behaviour_section(run: RunRecords) -> Iterator[Block]:
    """Yield the champion's trades, gains by kind of market, and effects of features and columns; or what is missing."""
    if run.result is None:
        yield missing_paragraph("result", "result.json", run.state)
        return
    folder = TraderFolder(run.path)
    trades = read_table(folder.trades, TRADES)
    if trades is None or not len(trades):
        yield Paragraph("The champion closed no trade on these days.", "missing")
    else:
        yield from _trade_blocks(trades, read_equity(run.path), read_table(folder.prices, PRICES))
    if run.result.get("effects"):
        yield effects_chart(run.result["effects"])
    if run.result.get("column_effects"):
        yield columns_chart(run.result["column_effects"])


def _trade_blocks(trades: pl.DataFrame, equity: pl.DataFrame | None, prices: pl.DataFrame | None) -> Iterator[Block]:
    """Yield the blocks on the champion's trades; a block is left out if the tables lack its columns.

    Args:
        trades: table with the columns of `TRADES`, and possibly others.
        equity: curves by trader; None if the run has no such file.
        prices: closes of the instruments that were traded most; None if the run has no such file.
    """
    # Tables of other versions and edited tables may lack columns: blocks that need them are left out.
    has_holding_times = {"instrument", "exit_date"} <= set(trades.columns)
    # The first row of an equity is the opening cash, so one row has no day.
    if has_holding_times and equity is not None and len(equity) > 1 and EQUAL_WEIGHT in equity.columns:
        yield Paragraph(describe_habits(trades, equity), "reading")
        yield positions_chart(trades)
        yield Table(PERIOD_COLUMNS, period_rows(trades, equity))
        if regimes := regime_rows(equity):
            yield Table(regime_titles(equity), regimes)
    if prices is not None and len(prices.columns) > 1 and set(trades.columns) >= PLACED_COLUMNS:
        yield price_charts(prices, trades)
    yield trades_chart(trades)
    yield FoldedBlock("Its best and its worst trades", _extreme_trades(trades))


def _extreme_trades(trades: pl.DataFrame) -> Table:
    """Return a table of the trades that gained and lost most, `BEST_AND_WORST` of each; all if they are few."""
    names = [name for name in ("instrument", "entry_date", "exit_date", "reason", "gain") if name in trades.columns]
    ordered_trades = trades.sort("gain", descending=True).select(names).rows()
    shows_all = len(ordered_trades) <= 2 * BEST_AND_WORST
    rows = ordered_trades if shows_all else ordered_trades[:BEST_AND_WORST] + ordered_trades[-BEST_AND_WORST:]
    titles = [name.replace("_", " ") for name in names]
    # The gain is the last column, and the only number.
    return Table(titles, [[*map(str, row[:-1]), f"{row[-1]:+.2f}%"] for row in rows], text_columns=len(names) - 1)


def learning_section(run: RunRecords) -> Iterator[Block]:
    """Yield the champion's gain against holding, if it was recorded, and the population's fitness."""
    if not run.metrics.get("round"):
        yield missing_paragraph("generation", "metrics.jsonl", run.state, "after each round")
        return
    if RETURN in run.metrics and HOLDING in run.metrics:
        yield gain_chart(run)
    yield course_chart(run)


def course_chart(run: RunRecords) -> Chart:
    """Draw fitness of the members, and the champion's validation value, over the generations."""
    metrics, rounds = run.metrics, run.metrics["round"]
    marks: list[Mark] = []
    # A band of a single generation would have no width.
    if len(rounds) > 1 and {"fitness/min", "fitness/max"} <= metrics.keys():
        low, high = metrics["fitness/min"], metrics["fitness/max"]
        marks.append(Band(name="fitness, lowest to highest", x=rounds, low=low, high=high))
    marks += [
        Line(name=title, x=rounds, y=metrics[name], colour=colour, width=width)
        for name, title, colour, width in COURSE_CURVES
        if name in metrics
    ]
    if run.crowned:
        # `crowned` has a pair of generation and value for each new champion.
        x, y = zip(*run.crowned, strict=True)
        marks.append(Dots(name="new champion", x=x, y=y, colour="--champion"))
    return Chart(
        title="Fitness and validation",
        reading="Points of reward. Fitness is of training days, validation of validation days, where no noise is "
        "added. Each generation draws other days, so single values jump; look at the trend. A dot is a new champion.",
        marks=marks,
        x=round_axis(rounds, run.recipe.layout.round),
        y=Axis(span=robust_range(metrics), zero=True),
        height=360,
    )


def robust_range(metrics: Metrics) -> tuple[float, float] | None:
    """Return the lower and upper limit of the axis of fitness and validation; None without finite values.

    Some members open no position at first and lose ten thousand points, which would flatten every curve. So a mean of
    fitness is left out of the limits if it is further below the other values than these differ among each other.
    """
    names = ("fitness/max", "validation/champion", "validation/best")
    values = [value for name in names for value in metrics.get(name, []) if isfinite(value)]
    if not values:
        return None
    low, high = min(values), max(values)
    # 1 if all values are equal: an axis needs a length.
    value_range = (high - low) or 1.0
    shown_means = [mean for mean in metrics.get("fitness/mean", []) if isfinite(mean) and mean > low - value_range]
    low = min([low, *shown_means])
    margin = AXIS_MARGIN_SHARE * ((high - low) or 1.0)
    return low - margin, high + margin


def gain_chart(run: RunRecords) -> Chart:
    """Draw the champion's gain on each generation's validation slices, and that of holding all instruments."""
    return Chart(
        title="The champion against holding, generation by generation",
        reading="Mean gain in percent on the validation slices of each generation, after costs; holding is all "
        "instruments in equal parts, without costs. Both are played on the same slices, so look at the distance of the "
        "two lines; their height says how the drawn days went.",
        marks=share_lines(
            run.metrics, {HOLDING: ("holding all", "--buy-and-hold"), RETURN: ("champion", "--champion")}
        ),
        x=round_axis(run.metrics["round"], run.recipe.layout.round),
        y=Axis(unit="%", zero=True),
        height=280,
    )


def equity_line(
    name: str, dates: list[date], values: list[float], stroke: Stroke, *, width: float, in_front: bool
) -> Line:
    """Return a line of an equity, as change in percent since its first day, with the final value in its name.

    Args:
        name: name of the trader or run.
        dates: dates of the values.
        values: equity, in any unit; the first is 0 %.
        stroke: colour of the line, and whether it is dashed.
        width: width of the line, in pixels.
        in_front: whether the line is drawn above the others.
    """
    percent = [100 * (value / values[0] - 1) for value in values]
    colour, is_dashed = stroke
    # `spread_indexes` keeps the last day, so the last value of a thinned curve is its true end.
    title = f"{name} {percent[-1]:+.1f}%"
    return Line(
        name=title, x=dates, y=percent, colour=colour, dashed=is_dashed, width=width, in_front=in_front, form="+.1f"
    )


def trader_strokes(columns: Sequence[str]) -> dict[str, Stroke]:
    """Return the stroke of each trader among the columns: known traders first, others such as benchmarks last.

    No two traders have the same stroke while there are strokes left.
    """
    # Momentum over weeks or months, such as `4-week momentum`, has the stroke of `20-day momentum`.
    momentum = r"^\d+-(week|month|quarter|year|period) momentum$"
    column_by_trader = {re.sub(momentum, "20-day momentum", name): name for name in columns}
    # The first strokes belong to `KNOWN_TRADERS`, in their order.
    strokes = {name: stroke for name, stroke in zip(KNOWN_TRADERS, STROKES, strict=False) if name in column_by_trader}
    other_traders = [name for name in column_by_trader if name not in strokes and name != "date"]
    # The strokes after those are for other traders, again from the first of them if there are too few.
    strokes.update(zip(other_traders, cycle(STROKES[len(KNOWN_TRADERS) :]), strict=False))
    return {column_by_trader[name]: stroke for name, stroke in strokes.items()}


def equity_chart(equity: pl.DataFrame, split: str) -> Chart:
    """Draw the equity of the champion and the baselines, as change in percent since the first day."""
    shown_rows = equity[spread_indexes(len(equity), MAXIMUM_POINTS)]
    dates, marks = shown_rows["date"].to_list(), []
    for name, stroke in trader_strokes(shown_rows.columns).items():
        is_champion, values = name == "champion", shown_rows[name].to_list()
        width = 2.4 if is_champion else 1.5
        marks.append(equity_line(name, dates, values, stroke, width=width, in_front=is_champion))
    return Chart(
        title=f"Equity on the {split} {calendar_of_equity(equity).units}",
        reading="Change in percent since the first day, after costs, all with the same cash. The champion was chosen "
        "on the validation days: its lead there is worth something only if it holds on days that nobody has seen.",
        marks=marks,
        x=Axis(kind="date"),
        y=Axis(unit="%", zero=True),
        height=360,
    )


def trades_chart(trades: pl.DataFrame) -> Chart:
    """Draw each trade of the champion as a dot, by its day of entry and its gain."""
    shown_rows = trades[spread_indexes(len(trades), MAXIMUM_POINTS)]
    marks = []
    for title, has_outcome, colour in OUTCOME_MARKS:
        rows = shown_rows.filter(has_outcome)
        hover_texts = rows["instrument"].to_list() if "instrument" in rows.columns else []
        x, y = rows["entry_date"].to_list(), rows["gain"].to_list()
        marks.append(Dots(name=f"{title} ({len(rows)})", x=x, y=y, colour=colour, form="+.1f", hover_text=hover_texts))
    omission = f" {len(shown_rows)} of {len(trades)} are drawn." if len(shown_rows) < len(trades) else ""
    return Chart(
        title="The champion's trades",
        reading="One dot for each closed trade: the day of its purchase, and its gain in percent before costs. A "
        f"target that is met often shows as a row of dots at one height.{omission}",
        marks=marks,
        x=Axis(kind="date"),
        y=Axis(unit="%", zero=True),
        height=300,
    )


def positions_chart(trades: pl.DataFrame) -> Chart:
    """Draw each trade as a bar from its purchase to its sale, in the row of its instrument."""
    days_held = (pl.col("exit_date") - pl.col("entry_date")).sum().alias("days")
    # Sorted by days held, then by name, as the order of a group_by is not fixed: the last were held longest.
    instruments = trades.group_by("instrument").agg(days_held).sort("days", "instrument")
    rows = instruments["instrument"].to_list()[-MAXIMUM_ROWS:]
    # Instruments are chosen before trades are thinned out, so that each row has its share of bars.
    trades_in_rows = trades.filter(pl.col("instrument").is_in(rows))
    shown_rows = trades_in_rows[spread_indexes(len(trades_in_rows), MAXIMUM_POINTS)]
    marks = []
    for title, has_outcome, colour in OUTCOME_MARKS:
        trade_rows = shown_rows.filter(has_outcome).select("entry_date", "exit_date", "instrument", "gain").rows()
        # From rows to four columns; without any row, zip would give no columns.
        starts, ends, names, gains = zip(*trade_rows, strict=True) if trade_rows else ((), (), (), ())
        hover_texts = [f"{gain:+.1f}%, {start} to {end}" for gain, start, end in zip(gains, starts, ends, strict=True)]
        bars: dict[str, Any] = {"rows": names, "starts": starts, "ends": ends, "hover_text": hover_texts}
        marks.append(Spans(name=f"{title} ({len(trade_rows)})", colour=colour, thickness=0.4, **bars))
    other_count = len(instruments) - len(rows)
    omission = f" The {other_count} instruments that it held less are left out." if other_count else ""
    if len(shown_rows) < len(trades_in_rows):
        omission += f" {len(shown_rows)} of {len(trades_in_rows)} trades are drawn."
    return Chart(
        title="What it held, and when",
        reading="One bar for each closed trade, from purchase to sale. Gaps are days on which nothing of the "
        f"instrument was held.{omission}",
        marks=marks,
        x=Axis(kind="date"),
        y=Axis(rows=rows),
        height=90 + 26 * len(rows),  # pixels: title and axis, and a row for each instrument
    )


def price_charts(prices: pl.DataFrame, trades: pl.DataFrame) -> Grid:
    """Draw purchases and sales on the closes of the instruments that were traded most.

    Args:
        prices: date, and the closes of a column per instrument, the most traded first.
        trades: log of trades.
    """
    names = [name for name in prices.columns if name != "date"][:MAXIMUM_PRICE_CHARTS]
    other_count = trades["instrument"].n_unique() - len(names)
    omission = f" The {other_count} instruments that it traded less are left out." if other_count > 0 else ""
    return Grid(
        title="Its trades on their prices",
        reading="The closes of the instruments that it traded most. A triangle that points up is a purchase; "
        f"a triangle that points down is a sale.{omission}",
        charts=[_price_chart(name, prices, trades.filter(pl.col("instrument") == name)) for name in names],
        wide=420,
        columns=2,
    )


def _price_chart(name: str, prices: pl.DataFrame, trades: pl.DataFrame) -> Chart:
    """Draw an instrument's closes with the purchases and sales of its `trades`."""
    closes = prices[name].cast(pl.Float64).fill_null(nan).to_list()
    line = Line(name="close", x=prices["date"].to_list(), y=closes, colour="--quiet", width=1.2, form=".4g")
    orders = [
        Dots(
            name=title,
            x=trades[f"{prefix}_date"].to_list(),
            y=trades[f"{prefix}_price"].to_list(),
            colour=colour,
            symbol=symbol,
            form=".4g",
        )
        for prefix, title, symbol, colour in ORDER_MARKS  # the prefix is `entry` or `exit`
    ]
    return Chart(title=name, marks=[line, *orders], x=Axis(kind="date"), height=170)


def effects_chart(effects: dict[str, float]) -> Chart:
    """Draw the features whose absence changes the champion's coefficients most."""
    top, omission = largest_values(effects, MAXIMUM_ROWS, "features")
    return _effect_bars(
        top,
        title="Which features its decisions follow from",
        reading="By occlusion: a feature of all instruments is replaced by its mean, and the coefficients are "
        f"computed again; the bar is their mean change, up or down, on evenly spaced days.{omission}",
    )


def columns_chart(effects: dict[str, float]) -> Chart:
    """Draw the columns whose absence changes the champion's coefficients most."""
    top, omission = largest_values(effects, MAXIMUM_ROWS, "columns")
    return _effect_bars(
        top,
        title="Which columns its decisions follow from",
        reading="By occlusion: a column, even if it cannot be bought, is replaced by its mean, and the coefficients "
        f"of all instruments are computed again; the bar is their mean change, up or down, on the same days.{omission}",
    )


def _effect_bars(top: list[tuple[str, float]], *, title: str, reading: str) -> Chart:
    """Draw named values as horizontal bars, in the given order."""
    names, values = [name for name, _ in top], [value for _, value in top]
    return Chart(
        title=title,
        reading=reading,
        marks=[Bars(name=title, at=names, values=values, colour="--buy-and-hold", horizontal=True, form=".3g")],
        x=Axis(),
        y=Axis(rows=names),
        height=60 + 24 * len(top),  # pixels: title and axis, and a row for each value
    )
