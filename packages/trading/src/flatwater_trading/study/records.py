"""The folder of a study: its files and runs, and its result, read back, checked and as rows of tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from flatwater.rundir.layout import Folder, FolderFile, RunFolder
from flatwater_trading.panel.calendar import DAILY, Calendar, calendar_of_year
from flatwater_trading.recipe.rule_tables import BY_SETTINGS, RULE_TITLES, rule_cells
from flatwater_trading.recipe.tables import EQUITY, read_table
from flatwater_watch.errors import RunError
from flatwater_watch.files.json_values import is_number, parse_json
from flatwater_watch.files.safe_read import RESULT_BYTES, read_regular
from flatwater_watch.phrases import count_phrase
from flatwater_watch.sanitize import short_repr


class StudyFolder(Folder):
    """The files of one study. Its runs are run folders, so `flatwater runs STUDY` lists them."""

    base = FolderFile("base.toml")
    """The configuration that all runs share, apart from fold and seed."""
    study = FolderFile("study.toml")
    """Folds, seeds, and what is in the panel."""
    space = FolderFile("space.toml")
    """Settings that are searched in each fold, and their values; only there if the study searches."""
    result = FolderFile("study.json")
    """The pooled result, and a row for each fold."""
    equity = FolderFile("equity.parquet")
    """Pooled equity of the champions and the traders that they are compared with."""
    picture = FolderFile("study.png")
    """Picture of the study."""
    report = FolderFile("report.html")
    """Page of the study."""

    def run(self, fold: int, seed: int) -> RunFolder:
        """Return the folder of the run of a fold and a seed."""
        return RunFolder(self.path / f"fold-{fold:02}-seed-{seed}")

    def search(self, fold: int) -> Path:
        """Return the folder of the sweep that searches for the settings of a fold."""
        return self.path / f"fold-{fold:02}-search"

    def log(self, fold: int, seed: int) -> Path:
        """Return the file that the process of a run writes its output to."""
        return self.path / "logs" / f"fold-{fold:02}-seed-{seed}.txt"


class TableRows(NamedTuple):
    """The contents of a table."""

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    text_columns: int
    """Number of columns on the left that hold text; the others are aligned right."""


@dataclass(frozen=True, kw_only=True)
class StudyRecords:
    """A study, read from its files."""

    path: Path
    read_at: datetime
    result: Mapping[str, Any]
    """Contents of study.json."""
    equity: pl.DataFrame | None
    """Pooled equity; None if no fold is complete."""

    @property
    def pooled_numbers(self) -> Mapping[str, Any] | None:
        """The pooled numbers; None if no fold is complete."""
        numbers: Mapping[str, Any] | None = self.result["pooled"]
        return numbers


def read_study(path: Path) -> StudyRecords:
    """Read and check the result and the pooled equity in a study's folder.

    Raises:
        RunError: no run of the study has ended yet, or a file is damaged.
    """
    folder = StudyFolder(path)
    rewrite_hint = f"Write it again with: flatwater study --run {path}"
    try:
        result = parse_json(read_regular(folder.result, RESULT_BYTES, follow_links=False))
        _require_result(result)
    except FileNotFoundError as no_file:
        raise RunError(
            f"{folder.result}: is not there: it is written when the study ends or is stopped. {rewrite_hint}"
        ) from no_file
    # All errors that reading a file of any contents can raise: somebody may have edited it.
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(f"{folder.result}: is damaged: {type(error).__name__} {error}. {rewrite_hint}") from error
    return StudyRecords(
        path=path,
        read_at=datetime.now().astimezone(),
        result=result,
        equity=read_table(folder.equity, EQUITY | {"equal weight": True}),
    )


def _require_result(result: Any) -> None:  # noqa: ANN401  (whatever the file holds)
    """Check every value of a result that is shown.

    Raises:
        TypeError: a value is not a text or not a number.
        ValueError: the result has no runs, seeds, folds or periods, or a table of it is empty.
        KeyError: a field is missing.
    """
    _require_texts(result, "note")
    if int(result["folds"]) < 1 or not [int(seed) for seed in result["seeds"]] or not result["runs"]:
        raise ValueError("it has no folds, no seeds or no runs")
    for run in result["runs"]:
        _require_texts(run, "run", "state", "reason")
    pooled_numbers = result["pooled"]
    if pooled_numbers is None:
        return
    _require_texts(pooled_numbers, "verdict", "first_day", "last_day")
    _require_texts(pooled_numbers["comparison"], "best")
    if calendar_of_study(pooled_numbers).a_year < 1:
        raise ValueError("a year of it has no period")
    _require_numbers(pooled_numbers, "days")
    _require_numbers(pooled_numbers["comparison"], "difference", "low", "high")
    _require_numbers(pooled_numbers["against_equal_weight"], "mean", "low", "high")
    for name in ("deflated", "deflated_lead_over_equal_weight"):
        _require_numbers(pooled_numbers[name], "sharpe", "by_chance", "probability", "tries")
    for row in pooled_numbers["by_fold"]:
        _require_texts(row, "first_day", "best_rule")
        date.fromisoformat(row["first_day"])
        _require_numbers(row, "total_return", "lowest", "highest", "equal_weight", "best_rule_return", "beaten")
    # Built here as a check: a damaged cell raises before the page is drawn.
    for table in (fold_rows(pooled_numbers, all_columns=True), trader_rows(pooled_numbers), seed_rows(pooled_numbers)):
        if not table.rows:
            raise ValueError("a table of it is empty")
    holding_rows(pooled_numbers)
    chosen_rows(pooled_numbers)
    search_rows(result)
    for name in ("champion", "equal weight"):
        _require_numbers(pooled_numbers["traders"][name], "annual_return", "sharpe", "drawdown")


def _require_texts(row: Mapping[str, Any], *names: str) -> None:
    """Check that the named cells of a row are texts.

    Raises:
        TypeError: a cell is not a text.
    """
    for name in names:
        if not isinstance(row[name], str):
            raise TypeError(f"{name} = {short_repr(row[name])}: expected a text")


def _require_numbers(row: Mapping[str, Any], *names: str) -> None:
    """Check that the named cells of a row are numbers.

    Raises:
        TypeError: a cell is not a number.
    """
    for name in names:
        if not is_number(row[name]):
            raise TypeError(f"{name} = {short_repr(row[name])}: expected a number")


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
    more_titles = ["each seed", "turnover", "chance"]
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
