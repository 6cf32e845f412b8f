"""Tables about the rules of purchases: what the same scores earn by other holding times, and the rules that were tried.

They are made from the values in `result.json` alone.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from flatwater.reports.records import RunRecords
from flatwater.rundir.results import DAMAGE_FAULTS, damaged_file_error
from flatwater_trading.recipe.tables import TraderFolder
from flatwater_watch.files.json_values import is_number
from flatwater_watch.pages.blocks import Block, Heading, Paragraph, Table
from flatwater_watch.phrases import count_phrase

RULE_TITLES = ("held for", "purchases", "sale target")
SAME_SCORES = "The same scores under other holding times"
BY_SETTINGS = "by the rule of the settings"


def rule_blocks(run: RunRecords, unit: str) -> Iterator[Block]:
    """Yield the part of a run's page about rules of purchases: returns by holding time, and the rules that were tried.

    Args:
        run: a run of any recipe; there is nothing to show for results without purchases.
        unit: name of a row of the prices, such as `day`.

    Raises:
        RunError: a result is damaged.
    """
    folder = TraderFolder(run.path)
    results = {
        "validation": (run.result, folder.result),
        "holdout": (run.holdout, folder.holdout),
    }
    # Split -> holding time in rows -> return; and split -> return by the rule of the settings.
    columns: dict[str, Mapping[int, float | None]] = {}
    settings_returns: dict[str, float | None] = {}
    for split, (result, file) in results.items():
        # Results of other versions, and of recipes without purchases, have no holding times.
        if result is not None and "holding_times" in result:
            try:
                columns[split] = holding_times(result)
                settings_returns[split] = settings_rule_return(result)
            except DAMAGE_FAULTS as error:
                raise damaged_file_error(file, error) from error
    if columns:
        yield from _holding_blocks(columns, settings_returns, unit)
    if run.result is not None and "rule" in run.result:
        try:
            rule_rows = tried_rows(run.result["rule"])
        except DAMAGE_FAULTS as error:
            raise damaged_file_error(folder.result, error) from error
        if rule_rows:
            yield Heading("Rules that were tried on the validation days")
            yield Table((*RULE_TITLES, "return", ""), rule_rows, text_columns=0)  # every column is aligned as numbers


def _holding_blocks(
    columns: Mapping[str, Mapping[int, float | None]], settings_returns: Mapping[str, float | None], unit: str
) -> Iterator[Block]:
    """Yield the table of the returns of the champion's choices by holding time, with its heading and explanation.

    Args:
        columns: return by holding time, for each split.
        settings_returns: return by the rule of the settings, for each split; None if no other rule replaced it.
        unit: name of a row of the prices, such as `day`.
    """
    yield Heading(SAME_SCORES)
    rows = _holding_rows(columns, unit)
    if any(value is not None for value in settings_returns.values()):
        rows.append([BY_SETTINGS, *(return_cell(value) for value in settings_returns.values())])
    yield Table(("held for", *columns), rows)
    yield Paragraph(
        "Return of the champion's choices on the same days if each position were held for so long. "
        "The best of them is so partly by luck.",
        "reading",
    )


def holding_times(result: Mapping[str, Any]) -> dict[int, float | None]:
    """Return the total return of a champion's choices by holding time, including the one that they were played with."""
    returns = {int(rows): _optional_number(value) for rows, value in result["holding_times"].items()}
    # Results of earlier versions do not say by which holding time they were played.
    if "rule" in result:
        played_rows = int(result["rule"]["chosen"]["hold_days"])
        returns[played_rows] = _optional_number(result["traders"]["champion"]["total_return"])
    return dict(sorted(returns.items()))


def settings_rule_return(result: Mapping[str, Any]) -> float | None:
    """Return the return of a champion's choices by the rule of the settings; None if no other rule was chosen."""
    return _optional_number(result.get("rule", {}).get("unchosen_return"))


def _holding_rows(columns: Mapping[str, Mapping[int, float | None]], unit: str) -> list[list[str]]:
    """Return a row for each holding time: its name, then its return in each split; an unknown return is an empty cell.

    Args:
        columns: return by holding time, for each split.
        unit: name of a row of the prices, such as `day`.
    """
    holding_rows = sorted({rows for returns in columns.values() for rows in returns})
    return [
        [count_phrase(rows, unit), *(return_cell(returns.get(rows)) for returns in columns.values())]
        for rows in holding_rows
    ]


def tried_rows(rule: Mapping[str, Any]) -> list[list[str]]:
    """Return a row for each rule that was tried: its numbers, its return, and `chosen` at the rule that was chosen."""
    chosen_cells = rule_cells(rule["chosen"])
    rows = []
    for tried_rule in rule["tried"]:
        cells = rule_cells(tried_rule)
        rows.append(
            [*cells, return_cell(_optional_number(tried_rule["return"])), "chosen" if cells == chosen_cells else ""]
        )
    return rows


def rule_cells(numbers: Mapping[str, Any]) -> list[str]:
    """Return the cells of a rule under `RULE_TITLES`."""
    target = _optional_number(numbers["target"])
    return [str(int(numbers["hold_days"])), str(int(numbers["purchases_a_day"])), _target_cell(target)]


def _target_cell(target: float | None) -> str:
    return "the trader's" if target is None else f"+{target:g}%"


def return_cell(value: float | None) -> str:
    """Format a return; an empty text for None."""
    return "" if value is None else f"{value:+.1%}"


def _optional_number(value: object) -> float | None:
    """Check that a value of a result is a number or None, and return it as a float or None.

    Raises:
        TypeError: the value is something else.
    """
    if value is not None and not is_number(value):
        raise TypeError(f"{value!r}: expected a number")
    return None if value is None else float(value)  # type: ignore[arg-type]  # checked above
