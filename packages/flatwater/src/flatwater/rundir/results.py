"""Results of a run, checked when they are read: a person may have edited them, or a disk spoiled them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flatwater.description import Description
from flatwater.recipe import Recipe
from flatwater_watch.errors import RunError
from flatwater_watch.files.content import is_number, parse_json
from flatwater_watch.files.safe_read import RESULT_BYTES, read_regular
from flatwater_watch.sanitize import short_repr


def read_result(path: Path, recipe: Recipe | Description, maximum: int = RESULT_BYTES) -> dict[str, Any] | None:
    """Return the content of a `result.json`; None if there is none.

    Args:
        path: the file.
        recipe: recipe of the run.
        maximum: largest number of bytes that it may have.

    Raises:
        RunError: the file is damaged, or larger.
    """
    try:
        content = parse_json(read_regular(path, maximum, follow=False))
        _require_result(content, recipe)
    except FileNotFoundError:
        return None
    except (OSError, TypeError, ValueError) as error:
        raise damaged_file_error(path, error) from error
    result: dict[str, Any] = content
    return result


def _require_result(content: object, recipe: Recipe | Description) -> None:
    """Refuse a result that lacks a field that its recipe shows, or has it in another type.

    Raises:
        TypeError: the result or a part of it is of another type.
        ValueError: a field that holds numbers holds something else.
    """
    if not isinstance(content, dict):
        raise TypeError(f"{short_repr(content)}: expected keys and values")
    for name in recipe.said:
        if not isinstance(content.get(name), str | int):
            raise TypeError(f"{name} = {short_repr(content.get(name))}: expected text or a whole number")
    rows = content.get(recipe.players)
    if not isinstance(rows, dict):
        raise TypeError(f"{recipe.players} = {short_repr(rows)}: expected rows of numbers")
    for row in rows.values():
        _require_numbers(row, (recipe.headline.key, *(number.key for number in recipe.numbers)))
    for name in ("effects", "column_effects"):
        shares = content.get(name) or {}
        _require_numbers(shares, shares, empty=False)


def _require_numbers(row: object, names: Iterable[str], *, empty: bool = True) -> None:
    """Raise TypeError or ValueError if a field of `row` is not a number; if `empty`, None counts as absent."""
    if not isinstance(row, dict):
        raise TypeError(f"{short_repr(row)}: expected keys and values")
    for name in names:
        value = row.get(name)
        if not (is_number(value) or (empty and value is None)):
            raise ValueError(f"{short_repr(name)} = {short_repr(value)}: expected a number")


def damaged_file_error(path: Path, fault: BaseException) -> RunError:
    """Return the error of a file of a run whose content is damaged."""
    return RunError(f"{path}: is damaged: {fault}. Rewrite the file with `flatwater resume` of the finished run.")
