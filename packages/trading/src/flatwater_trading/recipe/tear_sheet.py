"""The tear sheet of played days: losses under water, rolling ratios, exposure and turnover, months, and the scores."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from math import nan
from typing import Any, NamedTuple

import polars as pl

from flatwater.metrics.jsonl_lines import spread_indexes
from flatwater_trading.panel.calendar import Calendar
from flatwater_trading.recipe.behaviour import calendar_of_equity
from flatwater_trading.recipe.score_analysis import HorizonScore, read_horizons
from flatwater_trading.recipe.trader_names import CHAMPION, EQUAL_WEIGHT
from flatwater_watch.pages.blocks import Block, FoldedBlock, Paragraph, Table
from flatwater_watch.pages.chart import Axis, Bars, Chart, Grid, Line
from flatwater_watch.pages.chart_values import MAXIMUM_POINTS

MINIMUM_WINDOW = 8
"""Fewest rows of a rolling number."""
MINIMUM_DEVIATION = 1e-7
"""Deviation of returns below which an equity does not move."""
DEEPEST = 5
"""Drawdowns that are listed."""
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
COLOURS = {CHAMPION: "--champion"}
BENCHMARK_COLOUR = "--equal-weight"
HORIZON_COLOURS = ("--champion", "--buy-and-hold", "--equal-weight", "--momentum", "--ridge")
"""Colours of the horizons of the scores."""


def tear_sheet(equity: pl.DataFrame, sheet: pl.DataFrame | None, result: Mapping[str, Any]) -> Iterator[Block]:
    """Yield the blocks about the course of the champion's account, beside its benchmark.

    Args:
        equity: equity of each trader, with a first row for the opening cash.
        sheet: exposure and turnover of each day; None where they were not written.
        result: result of the days, which names the benchmark.
    """
    if len(equity) <= MINIMUM_WINDOW:
        yield Paragraph("There are too few days for a tear sheet.", "missing")
        return
    calendar, benchmark = calendar_of_equity(equity), result.get("benchmark", EQUAL_WEIGHT)
    if benchmark not in equity.columns:
        benchmark = EQUAL_WEIGHT
    traders = [CHAMPION]
    # A table that was edited, or is of another version, may lack the benchmark: the champion is then drawn alone.
    if benchmark in equity.columns and equity[benchmark].dtype.is_numeric():
        traders.append(benchmark)
    yield underwater_chart(equity, traders)
    yield rolling_charts(equity, traders, calendar)
    if sheet is not None and len(sheet):
        yield account_charts(sheet, calendar)
    months = month_rows(equity)
    # A single year of quarters or longer periods would be one row of mostly empty months.
    if len(months) > 1 or calendar.a_year >= len(MONTHS):
        yield Table(("year", *MONTHS, "year's return"), months)
    yield FoldedBlock("Its deepest drawdowns", drawdown_table(equity))


def underwater_chart(equity: pl.DataFrame, traders: Sequence[str]) -> Chart:
    """Draw how far each trader is below its highest equity so far."""
    losses = equity.select("date", *((pl.col(name) / pl.col(name).cum_max() - 1) * 100 for name in traders))
    return Chart(
        title="Under water",
        reading="Percent below the highest equity so far. A long stretch below 0 is a long wait for a new high.",
        marks=_trader_lines(losses, traders, form=".1f"),
        x=Axis(kind="date"),
        y=Axis(unit="%", zero=True),
        height=240,
    )


def rolling_window(rows: int, calendar: Calendar) -> int:
    """Return the rows of a rolling window: half a year, or a third of `rows` if fewer, but never below the minimum."""
    return max(MINIMUM_WINDOW, min(calendar.a_year // 2, rows // 3))


def rolling_frame(equity: pl.DataFrame, traders: Sequence[str], calendar: Calendar) -> pl.DataFrame:
    """Return a table of rolling numbers: `date`, the Sharpe ratio a year of each trader under its name, and `beta`.

    `beta` is that of the first trader to the second, and is left out with a single trader. The numbers of a row are of
    the last `rolling_window` rows; they are null on the rows before the first window is full.
    """
    window = rolling_window(len(equity) - 1, calendar)  # the first row has no return
    returns = equity.select("date", *(pl.col(name).pct_change() for name in traders))
    deviations = {name: pl.col(name).rolling_std(window) for name in traders}
    ratios = [
        # Equity that does not move deviates by rounding alone: it has no ratio.
        pl.when(deviation > MINIMUM_DEVIATION)
        .then(pl.col(name).rolling_mean(window) / deviation * calendar.a_year**0.5)
        .alias(name)
        for name, deviation in deviations.items()
    ]
    if len(traders) == 1:
        return returns.select("date", *ratios)
    own_return, other_return = pl.col(traders[0]), pl.col(traders[1])
    own_mean, other_mean = own_return.rolling_mean(window), other_return.rolling_mean(window)
    covariance = (own_return * other_return).rolling_mean(window) - own_mean * other_mean
    variance = other_return.pow(2).rolling_mean(window) - other_mean.pow(2)
    # Null where the other trader's equity does not move.
    beta = pl.when(variance > MINIMUM_DEVIATION**2).then(covariance / variance).alias("beta")
    return returns.select("date", *ratios, beta)


def rolling_charts(equity: pl.DataFrame, traders: Sequence[str], calendar: Calendar) -> Grid:
    """Draw the rolling Sharpe ratio of each trader and, with a benchmark, the champion's rolling beta."""
    frame = rolling_frame(equity, traders, calendar)
    window = f"{rolling_window(len(equity) - 1, calendar)} {calendar.units}"
    charts = [_small_chart("Sharpe ratio, a year", frame, traders)]
    if "beta" in frame.columns:
        # Named like the champion, so that it is drawn in the champion's colour.
        beta = frame.select("date", pl.col("beta").alias(CHAMPION))
        charts.append(_small_chart(f"beta to {traders[1]}", beta, [CHAMPION]))
    beta_sentence = " The beta is the slope of the returns on the benchmark's." if len(charts) > 1 else ""
    return Grid(
        title=f"Rolling, over {window}",
        reading="A ratio of so few days is uncertain by about one over the root of the years: look for its changes."
        f"{beta_sentence}",
        charts=charts,
        wide=420,
        columns=2,
    )


def account_charts(sheet: pl.DataFrame, calendar: Calendar) -> Grid:
    """Draw the part of the equity that is invested on each day, and the part that is traded, averaged over a month."""
    month = max(1, round(calendar.a_year / len(MONTHS)))
    shown_rows = sheet.select(
        "date",
        (100 * pl.col("exposure")).alias("exposure"),
        (100 * pl.col("turnover").rolling_mean(month, min_samples=1)).alias("turnover"),
    )
    smoothing = f", mean of {month} {calendar.units}" if month > 1 else ""
    return Grid(
        title="Exposure and turnover",
        reading="In percent of the equity. A purchase and a later sale of all of it are a turnover of 200 % in all.",
        # Each column is named like the champion, so that it is drawn in the champion's colour.
        charts=[
            _small_chart(
                "exposure", shown_rows.select("date", pl.col("exposure").alias(CHAMPION)), [CHAMPION], unit="%"
            ),
            _small_chart(
                f"turnover of a {calendar.unit}{smoothing}",
                shown_rows.select("date", pl.col("turnover").alias(CHAMPION)),
                [CHAMPION],
                unit="%",
            ),
        ],
        wide=420,
        columns=2,
    )


def month_rows(equity: pl.DataFrame) -> list[list[str]]:
    """Return a row for each year: the champion's return in each month, and in the year."""
    # Without the first row, the opening cash, as its day may be in an earlier month.
    months = equity[1:].group_by(pl.col("date").dt.truncate("1mo").alias("month"), maintain_order=True)
    opening = equity[CHAMPION][0]
    # Year -> number of the month -> return.
    years: dict[int, dict[int, float]] = {}
    for month, closing in months.agg(pl.col(CHAMPION).last()).rows():
        # An account that has lost everything earns nothing more.
        years.setdefault(month.year, {})[month.month] = closing / opening - 1 if opening > 0 else 0.0
        opening = closing
    rows = []
    for year, returns in years.items():
        growth = 1.0
        for month_return in returns.values():
            growth *= 1 + month_return
        cells = [f"{returns[number]:+.1%}" if number in returns else "" for number in range(1, len(MONTHS) + 1)]
        rows.append([str(year), *cells, f"{growth - 1:+.1%}"])
    return rows


class Drawdown(NamedTuple):
    """A stretch of rows on which equity is below an earlier high."""

    peak: int
    """Row of the high."""
    trough: int
    """Row of the lowest value."""
    end: int | None
    """First row that is as high again; None if there is none yet."""
    depth: float
    """Change from the high to the lowest value, a fraction below 0."""


def drawdown_table(equity: pl.DataFrame) -> Table:
    """Return a table of the deepest drawdowns: their dates, depth and length."""
    dates, values = equity["date"].to_list(), equity[CHAMPION].to_list()
    deepest = sorted(find_drawdowns(values), key=lambda drawdown: drawdown.depth)[:DEEPEST]
    rows = [
        (
            str(dates[peak]),
            str(dates[trough]),
            "not yet" if end is None else str(dates[end]),
            f"{depth:.1%}",
            # A drawdown that has not ended lasts up to the last day.
            str((dates[-1 if end is None else end] - dates[peak]).days),
        )
        for peak, trough, end, depth in deepest
    ]
    titles = ("highest on", "lowest on", "as high again on", "depth", "calendar days")
    return Table(titles, rows, text_columns=3)  # the first three are dates


def find_drawdowns(values: Sequence[float]) -> list[Drawdown]:
    """Return the drawdowns of an equity curve, the earliest first; the last may have no end yet."""
    drawdowns = list[Drawdown]()
    # Row of the highest value so far, and of the lowest since then; the same row while there is no lower one.
    peak = trough = 0
    for row, value in enumerate(values):
        # A new high ends the drawdown, if equity was below the high before.
        if value >= values[peak]:
            if trough > peak:
                drawdowns.append(Drawdown(peak, trough, end=row, depth=values[trough] / values[peak] - 1))
            peak = trough = row
        # The first row below the high, or a lower one than the lowest so far.
        elif trough == peak or value < values[trough]:
            trough = row
    # Below the high at the end: this drawdown has no end yet.
    if trough > peak:
        drawdowns.append(Drawdown(peak, trough, end=None, depth=values[trough] / values[peak] - 1))
    return drawdowns


def score_blocks(sheet: pl.DataFrame | None, result: Mapping[str, Any]) -> Iterator[Block]:
    """Yield the blocks about the champion's scores: their rank correlation with later returns, and their quantiles.

    Raises:
        ValueError: the result's analysis is damaged.
    """
    horizons = read_horizons(result)
    if not horizons:
        yield Paragraph("Scores are analysed from four instruments and ten days on that differ.", "missing")
        return
    kind = "learned weight, whether held or not" if result.get("trainer") == "weights" else "coefficient"
    yield Paragraph(f"An instrument's score is its {kind}.", "reading")
    yield Grid(
        title="Do the scores order the returns?",
        reading="Left: the mean rank correlation of the scores of a day with the returns up to the horizon (the "
        "information coefficient): it falls as the signal decays. Right: the mean return of the instruments in each "
        "quantile of the score, less the mean of all; a score that orders returns rises from left to right.",
        charts=[decay_chart(horizons), quantile_chart(horizons)],
        wide=420,
        columns=2,
    )
    # The daily correlations of the shortest horizon, as `result.sheet_frame` names them.
    shortest = f"ic {horizons[0].rows}"
    if sheet is not None and shortest in sheet.columns:
        yield correlation_chart(sheet, shortest)
    yield score_table(horizons)
    yield Paragraph(
        "t: the mean over its error, with one day counted in each horizon, as neighbouring days share most of a long "
        "one; below 2 it is hardly more than chance. Spread: the highest quantile less the lowest. Kept: the part of "
        "the highest quantile that is in it still at the horizon; same order: the rank correlation of the scores "
        "with the scores at the horizon. Both are low where much has to be traded.",
        "reading",
    )


def score_table(horizons: Sequence[HorizonScore]) -> Table:
    """Return a table with a row for each horizon of the scores."""
    titles = ("rows", "coefficient", "deviation", "t", "above 0", "spread", "kept", "same order", "days")
    rows = [
        (
            str(horizon.rows),
            f"{horizon.ic:+.3f}",
            f"{horizon.deviation:.3f}",
            f"{horizon.t:+.1f}",
            f"{horizon.positive:.0%}",
            f"{horizon.quantiles[-1] - horizon.quantiles[0]:+.2%}",
            f"{horizon.kept:.0%}",
            f"{horizon.same_order:.2f}",
            str(horizon.days),
        )
        for horizon in horizons
    ]
    return Table(titles, rows)


def decay_chart(horizons: Sequence[HorizonScore]) -> Chart:
    """Draw the rank correlation at each horizon, with twice its error."""
    names = [str(horizon.rows) for horizon in horizons]
    # `t` is the mean over its error, so the error is the mean over `t`.
    double_errors = [2 * abs(horizon.ic / horizon.t) if horizon.t else 0.0 for horizon in horizons]
    means = [horizon.ic for horizon in horizons]
    bars = Bars(
        name="coefficient",
        at=names,
        values=means,
        low=[mean - error for mean, error in zip(means, double_errors, strict=True)],
        high=[mean + error for mean, error in zip(means, double_errors, strict=True)],
        colour="--champion",
        form="+.3f",
    )
    title = "Information coefficient by rows, with two errors"
    return Chart(title=title, marks=[bars], x=Axis(rows=names), y=Axis(zero=True), height=240)


def quantile_chart(horizons: Sequence[HorizonScore]) -> Chart:
    """Draw each quantile's mean return above that of all instruments, at each horizon, in basis points a row."""
    names = [str(number) for number in range(1, len(horizons[0].quantiles) + 1)]
    marks = [
        Bars(
            name=f"{horizon.rows} row{'s' if horizon.rows > 1 else ''}",
            at=names,
            values=[10_000 * value / horizon.rows for value in horizon.quantiles],
            colour=colour,
            form="+.1f",
        )
        for horizon, colour in zip(horizons, HORIZON_COLOURS, strict=False)
    ]
    title = "Lead of each quantile, basis points a row"
    return Chart(title=title, marks=marks, x=Axis(rows=names), y=Axis(zero=True), height=240)


def correlation_chart(sheet: pl.DataFrame, column: str) -> Chart:
    """Draw the sum so far of the daily rank correlations in `column`."""
    # A day without a correlation adds nothing. Named like the champion, to be drawn in its colour.
    total = sheet.select("date", pl.col(column).fill_nan(None).fill_null(0).cum_sum().alias(CHAMPION))
    return Chart(
        title="Sum of the daily information coefficients",
        reading="A straight rise is a score that orders returns evenly; where the line is level or falls, it did not.",
        marks=_trader_lines(total, [CHAMPION], form=".1f"),
        x=Axis(kind="date"),
        y=Axis(zero=True),
        height=220,
    )


def _small_chart(title: str, frame: pl.DataFrame, columns: Sequence[str], unit: str = "") -> Chart:
    """Draw columns of a table over its dates as a small chart."""
    marks = _trader_lines(frame, columns, form=".2f" if not unit else ".1f")
    return Chart(title=title, marks=marks, x=Axis(kind="date"), y=Axis(unit=unit, zero=True), height=200)


def _trader_lines(frame: pl.DataFrame, columns: Sequence[str], *, form: str) -> list[Line]:
    """Return a line for each column over the dates, the champion's in front, with gaps where values are unknown."""
    shown_rows = frame[spread_indexes(len(frame), MAXIMUM_POINTS)]
    dates: list[date] = shown_rows["date"].to_list()
    return [
        Line(
            name=name,
            x=dates,
            y=shown_rows[name].cast(pl.Float64).fill_null(nan).to_list(),
            colour=COLOURS.get(name, BENCHMARK_COLOUR),
            width=2.0 if name == CHAMPION else 1.3,
            in_front=name == CHAMPION,
            form=form,
        )
        for name in columns
    ]
