"""Tables of a study as rows of text: its folds, traders, seeds, holding times, chosen rules and searched settings."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from flatwater_trading.panel.calendar import DAILY, Calendar, calendar_of_year
from flatwater_trading.recipe.rule_tables import BY_SETTINGS, RULE_TITLES, rule_cells
from flatwater_watch.phrases import count_phrase


class TableRows(NamedTuple):
    """The contents of a table."""

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    text_columns: int
    """Number of columns on the left that hold text; the others are aligned right."""


def calendar_of_study(pooled_numbers: Mapping[str, Any]) -> Calendar:
    """Return the calendar of the test days; daily for a study of a version that did not write it."""
    return calendar_of_year(int(pooled_numbers.get("periods_per_year", DAILY.a_year)))


def fold_rows(pooled_numbers: Mapping[str, Any], *, all_columns: bool = False) -> TableRows:
    """Return a table with a row for each fold, the newest last.

    Args:
        pooled_numbers: numbers of the study.
        all_columns: add the range of the seeds, the turnover, and the share of random traders that earned less.
    """
    titles = ["fold", "first day", "champions", "equal", "best rule", "Sharpe", "drawdown"]
    more_titles = ["each seed", "turnover", "chance"]  # shown with `all_columns`
    rows = []
    for number, row in enumerate(pooled_numbers["by_fold"], 1):
        best_rule_text = f"{percent_cell(row['best_rule_return'])} {row['best_rule']}"
        cells = [
            str(number),
            str(row["first_day"]),
            percent_cell(row["total_return"]),
            percent_cell(row["equal_weight"]),
            best_rule_text,
        ]
        cells += [number_cell(row["sharpe"]), percent_cell(row["drawdown"], "{:.1%}")]
        more_cells = [f"{percent_cell(row['lowest'], '{:+.0%}')} … {percent_cell(row['highest'], '{:+.0%}')}"]
        more_cells += [number_cell(row["turnover"], "{:.0f} x"), percent_cell(row["beaten"], "{:.0%}")]
        rows.append([*cells, *more_cells] if all_columns else cells)
    return TableRows(
        [*titles, *more_titles] if all_columns else titles,
        rows,
        text_columns=2,  # fold and first day
    )


def trader_rows(pooled_numbers: Mapping[str, Any]) -> TableRows:
    """Return a table of results over all folds.

    It has a row for the champions together, and one for each trader that they are compared with.
    """
    titles = ("over all folds", "a year", "in all", "Sharpe", "drawdown", "turnover a year")
    rows = [
        [
            "champions" if name == "champion" else str(name),
            percent_cell(row["annual_return"]),
            percent_cell(row["total_return"]),
            number_cell(row["sharpe"]),
            percent_cell(row["drawdown"], "{:.1%}"),
            number_cell(row["turnover"], "{:.1f} x"),
        ]
        for name, row in pooled_numbers["traders"].items()
    ]
    return TableRows(titles, rows, text_columns=1)  # the trader's name


def seed_rows(pooled_numbers: Mapping[str, Any]) -> TableRows:
    """Return a table with a row for each seed: the results of its champions alone."""
    titles = ("seed", "a year", "in all", "Sharpe", "drawdown")
    rows = [
        [
            str(int(row["seed"])),
            percent_cell(row["annual_return"]),
            percent_cell(row["total_return"]),
            number_cell(row["sharpe"]),
            percent_cell(row["drawdown"], "{:.1%}"),
        ]
        for row in pooled_numbers["by_seed"]
    ]
    return TableRows(titles, rows, text_columns=1)  # the seed


def holding_rows(pooled_numbers: Mapping[str, Any]) -> TableRows:
    """Return a table of what the same scores earn by holding time; it has no row for a study without purchases."""
    times, unit = pooled_numbers.get("holding_times", {}), calendar_of_study(pooled_numbers).unit
    rows = [[count_phrase(int(rows_held), unit), percent_cell(value)] for rows_held, value in times.items()]
    if rows:
        rows.append(["as they were played", percent_cell(pooled_numbers["traders"]["champion"]["total_return"])])
        if pooled_numbers.get("unchosen_return") is not None:
            rows.append([BY_SETTINGS, percent_cell(pooled_numbers["unchosen_return"])])
    return TableRows(("held for", "in all"), rows, text_columns=1)  # the holding time


def chosen_rows(pooled_numbers: Mapping[str, Any]) -> TableRows:
    """Return a table with the rule of purchases of each run's champion; it has no row if no rule was chosen."""
    rows = [[str(int(row["fold"])), str(int(row["seed"])), *rule_cells(row)] for row in pooled_numbers.get("rules", ())]
    return TableRows(("fold", "seed", *RULE_TITLES), rows, text_columns=0)  # all are numbers, or aligned like them


def search_rows(result: Mapping[str, Any]) -> TableRows:
    """Return a table of the settings that the search has chosen in each fold; it has no row without a search."""
    rows = [
        [
            str(int(row["fold"])),
            ", ".join(f"{name} {setting_cell(value)}" for name, value in row["settings"].items()),
            f"{int(row['best'])} of {int(row['trials'])}",
            number_cell(float(row["value"])),
        ]
        for row in result.get("search", ())
    ]
    return TableRows(("fold", "settings", "trial", "on validation days"), rows, text_columns=2)  # fold and settings


def setting_cell(value: object) -> str:
    """Format the value of a setting in few characters."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def percent_cell(value: float | None, form: str = "{:+.1%}") -> str:
    """Format a share; an empty text for None."""
    return "" if value is None else form.format(value)


def number_cell(value: float | None, form: str = "{:.2f}") -> str:
    """Format a number; an empty text for None."""
    return "" if value is None else form.format(value)
