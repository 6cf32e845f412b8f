"""Results and tables of a run: a person may have edited them, or a disk spoiled them, so they are checked when read."""

import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flatwater.description import Description
from flatwater.errors import RunError
from flatwater.metrics.jsonl import is_number
from flatwater.printable import shown
from flatwater.recipe import Recipe
from flatwater.regular import RESULT_BYTES, read_regular
from flatwater.storage.content import parse_json
from flatwater.storage.directory import write_object

if TYPE_CHECKING:  # a list of runs reads results, and is to be there at once
    import polars as pl


EQUITY = {"date": False, "champion": True}
TRADES = {"entry_date": False, "gain": True}
PRICES = {"date": False}
LIVES = {"player": False, "env_seed": False, "stage": False, "accuracy": True, "impaired": False}
"""The columns that a page draws, and whether they hold numbers."""


def read_result(path: Path, recipe: Recipe | Description, most: int = RESULT_BYTES) -> dict[str, Any] | None:
    """A `result.json`; None where there is none.

    Args:
        path: the file.
        recipe: of the run.
        most: bytes that it may have.

    Raises:
        RunError: it is damaged, or larger.
    """
    try:
        found = parse_json(read_regular(path, most, follow=False))
        _require_result(found, recipe)
    except FileNotFoundError:
        return None
    except (OSError, TypeError, ValueError) as fault:
        raise _damaged(path, fault) from fault
    result: dict[str, Any] = found
    return result


def _require_result(found: object, recipe: Recipe | Description) -> None:
    if not isinstance(found, dict):
        raise TypeError(f"{shown(found)}: must have keys")
    for name in recipe.said:
        if not isinstance(found.get(name), str | int):
            raise TypeError(f"{name} = {shown(found.get(name))}: must be a text or a whole number")
    rows = found.get(recipe.players)
    if not isinstance(rows, dict):
        raise TypeError(f"{recipe.players} = {shown(rows)}: must be rows of numbers")
    for row in rows.values():
        _require_numbers(row, (recipe.headline.key, *(number.key for number in recipe.numbers)))
    for name in ("effects", "column_effects"):
        shares = found.get(name) or {}
        _require_numbers(shares, shares, empty=False)


def _require_numbers(row: object, names: Iterable[str], *, empty: bool = True) -> None:
    if not isinstance(row, dict):
        raise TypeError(f"{shown(row)}: must have keys")
    for name in names:
        value = row.get(name)
        if not (is_number(value) or (empty and value is None)):
            raise ValueError(f"{shown(name)} = {shown(value)}: must be a number")


def read_table(path: Path, columns: Mapping[str, bool]) -> "pl.DataFrame | None":
    """A table that a run wrote; None where there is none.

    Raises:
        RunError: it is damaged, or has not these columns with a value in each row.
    """
    import polars as pl  # noqa: PLC0415  (same)

    try:
        # In memory: polars would map the file, which another process may cut short meanwhile.
        found = pl.read_parquet(io.BytesIO(read_regular(path, RESULT_BYTES, follow=False)))
        _require_columns(found, columns)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as fault:
        raise _damaged(path, fault) from fault
    return found


def _require_columns(found: "pl.DataFrame", columns: Mapping[str, bool]) -> None:
    for name, numeric in columns.items():
        if name not in found.columns or found[name].null_count() or (numeric and not found[name].dtype.is_numeric()):
            raise ValueError(f"column {name} does not hold a {'number' if numeric else 'value'} in each row")


def _damaged(path: Path, fault: BaseException) -> RunError:
    return RunError(f"{path}: is damaged: {fault}. `flatwater resume` of the finished run writes it anew.")


def write_frame(frame: "pl.DataFrame", path: Path) -> None:
    """Write a table as Parquet, atomically."""
    content = io.BytesIO()
    frame.write_parquet(content)
    write_object(path, content.getbuffer())
