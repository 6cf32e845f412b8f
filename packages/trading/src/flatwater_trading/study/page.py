"""`report.html` and `study.png` of a study: the results of all its folds."""

from collections.abc import Callable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl

from flatwater.metrics.jsonl_lines import spread_indexes
from flatwater.metrics.short_numbers import nonzero_percent
from flatwater_trading.recipe.rule_tables import SAME_SCORES
from flatwater_trading.recipe.sections import trader_strokes
from flatwater_trading.recipe.tear_sheet import tear_sheet
from flatwater_trading.study.folder import StudyFolder
from flatwater_trading.study.records import StudyRecords, read_study
from flatwater_trading.study.table_rows import (
    calendar_of_study,
    chosen_rows,
    fold_rows,
    holding_rows,
    number_cell,
    percent_cell,
    search_rows,
    seed_rows,
    trader_rows,
)
from flatwater_watch.pages.blocks import Block, Heading, Paragraph, Piece, Section, Table, Tile
from flatwater_watch.pages.chart import Axis, Bars, Chart, Line, Picture
from flatwater_watch.pages.chart_values import MAXIMUM_POINTS
from flatwater_watch.pages.document import document
from flatwater_watch.phrases import noun_form


def study_page(study: StudyRecords) -> str:
    """Return the page of a study as HTML."""
    sections = [
        Section(title="Result", blocks=list(_result_section(study))),
        *_sheet_sections(study),
        Section(title="Folds", blocks=list(_folds_section(study))),
        *_rule_sections(study),
        Section(title="How sure", blocks=list(_certainty_section(study))),
        Section(title="Runs", blocks=list(_runs_section(study))),
    ]
    name = study.path.resolve().name
    # A study with a failed run is not finished, as that run is resumed when the study goes on.
    state = "finished" if all(run["state"] == "finished" for run in study.result["runs"]) else "stopped"
    return document(
        name,
        heading=[name, " ", Piece(state, f"state {state}")],
        subtitle=_page_subtitle(study),
        tiles=_figure_tiles(study),
        sections=sections,
        footer=f"Written by Flatwater, {study.read_at:%Y-%m-%d %H:%M %Z}.",
    )


def study_report(path: Path) -> tuple[Path, Callable[[], str]]:
    """Return the path at which `flatwater report` writes the page of a study, and a function that makes it."""
    return StudyFolder(path).report, lambda: study_page(read_study(path))


def study_picture(study: StudyRecords) -> Picture:
    """Return rows of charts: the pooled equity; the folds, and the differences with their intervals.

    There is no row before a fold is complete.
    """
    pooled_numbers = study.pooled_numbers
    if pooled_numbers is None:
        return []
    lower_charts: list[Chart] = [folds_chart(study), differences_chart(pooled_numbers)]
    return [lower_charts] if study.equity is None else [[equity_chart(study.equity, pooled_numbers)], lower_charts]


def _page_subtitle(study: StudyRecords) -> str:
    """Return the line below the title: the panel, the test days once a fold is complete, folds and seeds."""
    result = study.result
    phrases = [str(result.get("panel") or "the panel that comes with Flatwater")]
    if study.pooled_numbers is not None:
        units = calendar_of_study(study.pooled_numbers).units
        phrases.append(
            f"{study.pooled_numbers['days']:,} test {units}, {study.pooled_numbers['first_day']} to "
            f"{study.pooled_numbers['last_day']}"
        )
    seeds = noun_form(len(result["seeds"]), "seed")
    phrases.append(
        f"{result['folds']} {noun_form(result['folds'], 'fold')}, {seeds} {', '.join(map(str, result['seeds']))}"
    )
    return " · ".join(phrases)


def _figure_tiles(study: StudyRecords) -> Iterator[Tile]:
    """Yield the figures on top: return, Sharpe ratio, drawdown, differences; nothing before a fold is complete."""
    pooled_numbers = study.pooled_numbers
    if pooled_numbers is None:
        return
    champions, equal_weight = pooled_numbers["traders"]["champion"], pooled_numbers["traders"]["equal weight"]
    yield Tile(
        "champions, a year",
        percent_cell(champions["annual_return"]),
        f"equal weight {percent_cell(equal_weight['annual_return'])}",
    )
    yield Tile("Sharpe ratio", number_cell(champions["sharpe"]), f"equal weight {number_cell(equal_weight['sharpe'])}")
    market_drawdown = percent_cell(equal_weight["drawdown"], "{:.1%}")
    yield Tile("drawdown", percent_cell(champions["drawdown"], "{:.1%}"), f"equal weight {market_drawdown}")
    for title, difference in _difference_numbers(pooled_numbers).items():
        interval = f"90% interval {nonzero_percent(difference['low'], 1)} to {nonzero_percent(difference['high'], 1)}"
        kind = ""  # not coloured, as the interval contains 0
        if difference["low"] > 0:
            kind = "good"
        elif difference["high"] < 0:
            kind = "bad"
        yield Tile(title, nonzero_percent(difference["mean"], 1), interval, kind)
    deflated_sharpe = pooled_numbers["deflated"]
    yield Tile("deflated Sharpe", f"{deflated_sharpe['probability']:.0%}", f"for {deflated_sharpe['tries']:,} tries")


def _difference_numbers(pooled_numbers: Mapping[str, Any]) -> dict[str, Mapping[str, float]]:
    """Return the champions' return in a year less that of the best rule, and less that of equal weight, by title.

    Each has a `mean` and the ends of its interval, `low` and `high`.
    """
    comparison = pooled_numbers["comparison"]
    best_rule = {"mean": comparison["difference"], "low": comparison["low"], "high": comparison["high"]}
    return {f"less {comparison['best']}": best_rule, "less equal weight": pooled_numbers["against_equal_weight"]}


def _result_section(study: StudyRecords) -> Iterator[Block]:
    """Yield the section `Result`: verdict, pooled equity, and a table of the traders; or that no fold is complete."""
    pooled_numbers = study.pooled_numbers
    if pooled_numbers is None:
        yield Paragraph("No fold has been tested with every seed yet, so there is nothing to pool.", "missing")
        return
    yield Paragraph(pooled_numbers["verdict"])
    if study.equity is not None:
        yield equity_chart(study.equity, pooled_numbers)
    yield Table(*trader_rows(pooled_numbers))
    how_pooled = (
        "The champions of all seeds begin each fold with equal money; the next fold begins with what they ended with."
    )
    yield Paragraph(f"{how_pooled} Random: the median trader of each fold. Note: {study.result['note']}.", "reading")


def _sheet_sections(study: StudyRecords) -> Iterator[Section]:
    """Yield the tear sheet of the pooled equity, once a fold is complete."""
    if study.equity is not None and study.pooled_numbers is not None:
        # `sheet=None`: exposure and turnover of each day are known of runs, not of the pooled account.
        yield Section(
            title="Tear sheet", blocks=list(tear_sheet(study.equity, sheet=None, result=study.pooled_numbers))
        )


def equity_chart(equity: pl.DataFrame, pooled_numbers: Mapping[str, Any]) -> Chart:
    """Draw the equity over all test days, fold after fold."""
    shown_rows = equity[spread_indexes(len(equity), MAXIMUM_POINTS)]
    dates = shown_rows["date"].to_list()
    marks = []
    for name, (colour, is_dashed) in trader_strokes(shown_rows.columns).items():
        values = shown_rows[name].to_list()
        is_champion = name == "champion"
        title = f"{'champions' if is_champion else name} x {values[-1]:.2f}"
        line = Line(
            name=title,
            x=dates,
            y=values,
            colour=colour,
            dashed=is_dashed,
            width=2.4 if is_champion else 1.3,
            in_front=is_champion,
        )
        marks.append(line)
    return Chart(
        title=f"Equity over all test {calendar_of_study(pooled_numbers).units}",
        reading="In multiples of the money at the start, after costs; the scale is logarithmic. A vertical line begins "
        "a fold: traders are trained again there, on all days to its left.",
        marks=marks,
        x=Axis(kind="date"),
        y=Axis(kind="log", unit=" x"),
        height=420,
        vertical_lines=[date.fromisoformat(row["first_day"]) for row in pooled_numbers["by_fold"]],
    )


def folds_chart(study: StudyRecords) -> Chart:
    """Draw each fold's return next to those of equal weight and the best rule."""
    rows = () if study.pooled_numbers is None else study.pooled_numbers["by_fold"]
    fold_names = [f"{number}: {row['first_day'][:7]}" for number, row in enumerate(rows, 1)]

    def column(name: str) -> list[float]:
        """Return a number of each fold, in percent."""
        return [100 * row[name] for row in rows]

    has_range = len(study.result["seeds"]) > 1
    low = column("lowest") if has_range else []
    high = column("highest") if has_range else []
    champions = column("total_return")
    return Chart(
        title="Return in each fold, by its first month",
        reading="The champions of all seeds together, with the range of each seed's alone where there are several.",
        marks=[
            Bars(
                name="champions", at=fold_names, values=champions, low=low, high=high, colour="--champion", form="+.1f"
            ),
            Bars(
                name="equal weight", at=fold_names, values=column("equal_weight"), colour="--equal-weight", form="+.1f"
            ),
            Bars(name="best rule", at=fold_names, values=column("best_rule_return"), colour="--random", form="+.1f"),
        ],
        x=Axis(rows=fold_names),
        y=Axis(unit="%", zero=True),
        height=280,
        weight=1.6,
    )


def differences_chart(pooled_numbers: Mapping[str, Any]) -> Chart:
    """Draw the champions' yearly return less the best rule's and less equal weight's, with their intervals."""
    # Reversed, as an axis of rows is drawn from the bottom up.
    rows = dict(reversed(_difference_numbers(pooled_numbers).items()))
    mean = [100 * row["mean"] for row in rows.values()]
    low, high = [100 * row["low"] for row in rows.values()], [100 * row["high"] for row in rows.values()]
    bars = Bars(name="a year", at=list(rows), values=mean, low=low, high=high, colour="--champion", horizontal=True)
    return Chart(
        title="A year, 90% interval",
        reading="What the champions earned more in a year. An interval that holds 0 does not tell the two apart.",
        marks=[bars],
        x=Axis(unit="%", zero=True),
        y=Axis(rows=list(rows)),
        height=170,
    )


def _folds_section(study: StudyRecords) -> Iterator[Block]:
    """Yield the section `Folds`: each fold's return, drawn and as a table; or that no fold is complete."""
    if study.pooled_numbers is None:
        yield Paragraph("No fold is complete.", "missing")
        return
    yield folds_chart(study)
    yield Table(*fold_rows(study.pooled_numbers, all_columns=True))
    yield Paragraph(
        "Return of the champions together, of equal weight, and of the rule that earned most on these days; then "
        "the lowest and the highest seed alone, the turnover in the fold, and what share of the random traders with "
        "the same turnover earned less.",
        "reading",
    )
    search_table = search_rows(study.result)
    if search_table.rows:
        yield Heading("Settings that were searched")
        yield Table(*search_table)
        yield Paragraph(
            "In each fold the trial with the highest value on the validation days, which lie before the test days. All "
            "seeds of the fold trained with its settings.",
            "reading",
        )


def _rule_sections(study: StudyRecords) -> Iterator[Section]:
    """Yield the section `Rules` of a study of purchases: other holding times, and the chosen rules. Else nothing."""
    pooled_numbers = study.pooled_numbers
    if pooled_numbers is None:
        return
    times = holding_rows(pooled_numbers)
    if not times.rows:  # the study has no purchases
        return
    blocks: list[Block] = [Heading(SAME_SCORES), Table(*times)]
    note = "Return over all folds of the champions' choices if each position were held for so long."
    blocks.append(
        Paragraph(f"{note} The best of them is so partly by luck, as it is picked on the test days.", "reading")
    )
    chosen_table = chosen_rows(pooled_numbers)
    if chosen_table.rows:
        blocks += [
            Heading("Rules that were chosen"),
            Table(*chosen_table),
            Paragraph("By the validation days of each fold, which lie before its test days.", "reading"),
        ]
    yield Section(title="Rules", blocks=blocks)


def _certainty_section(study: StudyRecords) -> Iterator[Block]:
    """Yield the section `How sure`: intervals, a row a seed, deflated Sharpe ratios; or that no fold is complete."""
    if study.pooled_numbers is None:
        yield Paragraph("No fold is complete.", "missing")
        return
    calendar = calendar_of_study(study.pooled_numbers)
    yield differences_chart(study.pooled_numbers)
    yield Table(*seed_rows(study.pooled_numbers))
    deflated, lead = study.pooled_numbers["deflated"], study.pooled_numbers["deflated_lead_over_equal_weight"]
    yield Table(
        (f"Sharpe ratio of a {calendar.unit}", "measured", "the best of all tries by chance", "deflated"),
        [
            [name, f"{row['sharpe']:.4f}", f"{row['by_chance']:.4f}", f"{row['probability']:.0%}"]
            for name, row in (("champions", deflated), ("champions less equal weight", lead))
        ],
    )
    yield Paragraph(
        f"Intervals: Student's t of the differences of each {calendar.unit}, with the variance of a mean of dependent "
        "values (Lazarus, Lewis, Stock and Watson 2018). "
        f"Deflated: the probability that the true Sharpe ratio is above 0, although it may be the best of "
        f"{deflated['tries']:,} tries: {deflated.get('tried', 'members x generations')} of every run (Bailey and "
        "López de Prado 2014).",
        "reading",
    )


def _runs_section(study: StudyRecords) -> Iterator[Block]:
    """Yield the section `Runs`: a row for each run, and the command that shows a run."""
    rows = [[str(run[name]) for name in ("run", "state", "reason")] for run in study.result["runs"]]
    yield Table(("run", "state", "reason"), rows, text_columns=3)  # no column has numbers
    how_to_see = ("Each is a run folder of its own: ", Piece(f"flatwater report {study.path}/{rows[0][0]}"), ".")
    yield Paragraph(how_to_see, "reading")
