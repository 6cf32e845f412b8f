"""Reads the result of a run, and checks it: a person may have edited the file, or a disk may have damaged it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flatwater.description import Description
from flatwater.recipe import Recipe
from flatwater.rundir.events import ends_as_finished
from flatwater.rundir.layout import RunFolder
from flatwater_watch.errors import RunError
from flatwater_watch.files.json_values import is_number, parse_json
from flatwater_watch.files.regular_files import RESULT_BYTES, read_regular
from flatwater_watch.sanitize import short_repr


def read_result(path: Path, recipe: Recipe | Description, maximum: int = RESULT_BYTES) -> dict[str, Any] | None:
    """Return the checked content of a `result.json`; None if there is no such file.

    Args:
        path: the file.
        recipe: recipe of the run.
        maximum: most bytes that the file may have.

    Raises:
        RunError: the file is damaged, or larger.
    """
    try:
        content = parse_json(read_regular(path, maximum, follow_links=False))
        check_result(content, recipe)
    except FileNotFoundError:
        return None
    except (OSError, TypeError, ValueError) as error:
        raise damaged_file_error(path, error) from error
    result: dict[str, Any] = content
    return result


def has_newest_result(folder: RunFolder, recipe: Recipe | Description, checkpoint: Path) -> bool:
    """Return whether a run's `result.json` is whole, and is the result of its newest checkpoint.

    A run that was resumed and killed has the result of an earlier checkpoint. The file is then older than the newest
    checkpoint's; in a copy of the folder the times may be those of copying, but run.log still has the later start.
    """
    try:
        is_whole = read_result(folder.result, recipe) is not None
        is_newer = is_whole and folder.result.stat().st_mtime_ns > checkpoint.stat().st_mtime_ns
    except (OSError, RunError):
        return False
    return is_newer and ends_as_finished(folder.log)


def check_result(content: object, recipe: Recipe | Description) -> None:
    """Refuse a result that lacks a field which its recipe shows, or in which the field has another type.

    Raises:
        TypeError: the result or a part of it has another type.
        ValueError: a field is not a number.
    """
    if not isinstance(content, dict):
        raise TypeError(f"{short_repr(content)}: expected keys and values")
    # Fields such as `split`, which say on what data the result was measured.
    for name in recipe.context_fields:
        if not isinstance(content.get(name), str | int):
            raise TypeError(f"{name} = {short_repr(content.get(name))}: expected text or a whole number")
    rows = content.get(recipe.players)
    if not isinstance(rows, dict):
        raise TypeError(f"{recipe.players} = {short_repr(rows)}: expected rows of numbers")
    for row in rows.values():
        _require_numbers(row, (recipe.headline.key, *(number.key for number in recipe.numbers)))
    # Effects of features and columns on a trader's decisions; results of other recipes have none.
    for name in ("effects", "column_effects"):
        shares = content.get(name) or {}
        _require_numbers(shares, names=shares, allow_none=False)  # every field


def _require_numbers(row: object, names: Iterable[str], *, allow_none: bool = True) -> None:
    """Refuse a row in which a field of `names` is no number; with `allow_none` it may also be None or missing.

    Raises:
        TypeError: the row has no fields.
        ValueError: a field is not a number.
    """
    if not isinstance(row, dict):
        raise TypeError(f"{short_repr(row)}: expected keys and values")
    for name in names:
        value = row.get(name)
        if not (is_number(value) or (allow_none and value is None)):
            raise ValueError(f"{short_repr(name)} = {short_repr(value)}: expected a number")


DAMAGE_FAULTS = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError)
"""What reading the values of a damaged file raises: one is missing, of another type, or a number such as 1e999."""


def damaged_file_error(path: Path, fault: BaseException) -> RunError:
    """Return the error that reports a damaged file of a run, and how to write it again."""
    return RunError(f"{path}: is damaged: {fault}. Rewrite the file with `flatwater evaluate` of the run.")
