"""A study read from its folder: study.json, of which each value that is shown is checked, and the pooled equity."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

import polars as pl

from flatwater.rundir.results import DAMAGE_FAULTS
from flatwater_trading.recipe.tables import EQUITY, read_table
from flatwater_trading.recipe.trader_names import BUY_AND_HOLD, EQUAL_WEIGHT
from flatwater_trading.study.folder import StudyFolder
from flatwater_trading.study.table_rows import (
    calendar_of_study,
    chosen_rows,
    fold_rows,
    holding_rows,
    search_rows,
    seed_rows,
    trader_rows,
)
from flatwater_watch.errors import RunError
from flatwater_watch.files.json_values import is_number, parse_json
from flatwater_watch.files.regular_files import RESULT_BYTES, read_regular
from flatwater_watch.sanitize import short_repr


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
    except (OSError, *DAMAGE_FAULTS) as error:
        raise RunError(f"{folder.result}: is damaged: {type(error).__name__} {error}. {rewrite_hint}") from error
    return StudyRecords(
        path=path,
        read_at=datetime.now().astimezone(),
        result=result,
        # True: the column must have numbers.
        equity=read_table(folder.equity, EQUITY | {EQUAL_WEIGHT: True, BUY_AND_HOLD: True}),
    )


def _require_result(result: Any) -> None:  # noqa: ANN401  (whatever the file holds)
    """Check every value of a result that is shown.

    Raises:
        TypeError: a value is not a text or not a number.
        ValueError: the result has no runs, seeds, folds or periods, or a table of it is empty.
        KeyError: a field is missing.
    """
    _require_texts(result, "note")
    folds, seeds = int(result["folds"]), [int(seed) for seed in result["seeds"]]  # raises for a value that is no number
    if folds < 1 or not seeds or not result["runs"]:
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
