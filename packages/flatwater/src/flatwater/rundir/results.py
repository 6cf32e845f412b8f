"""Reads the result of a run, and checks it: a person may have edited the file, or a disk may have damaged it."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from flatwater.description import Description
from flatwater.metrics.jsonl import MAXIMUM_ROUNDS
from flatwater.recipe import Recipe
from flatwater.rundir.events import ends_as_finished
from flatwater.rundir.layout import RunFolder
from flatwater_watch.errors import RunError
from flatwater_watch.files.directory import write_object
from flatwater_watch.files.json_values import is_number, parse_json
from flatwater_watch.files.regular_files import RESULT_BYTES, read_regular
from flatwater_watch.sanitize import short_repr

ROUND = "round"
"""Field of a result: the round after which the policy was scored. Results of earlier versions have none."""
MAXIMUM_RESULT = 4 << 20
"""Most bytes of a result.json that is read for a list."""


def write_json(result: Mapping[str, Any], file: Path) -> None:
    """Write a result as a file, atomically."""
    write_object(file, json.dumps(result, indent=1).encode() + b"\n")


def result_round(result: object) -> int | None:
    """Return the round to which a result belongs; None if the result has no round, as results of earlier versions."""
    round_ = result.get(ROUND) if isinstance(result, dict) else None
    return round_ if type(round_) is int and 0 <= round_ <= MAXIMUM_ROUNDS else None  # `type`, as True is an int


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


def has_newest_result(folder: RunFolder, recipe: Recipe | Description, round_: int, checkpoint: Path) -> bool:
    """Return whether a run's `result.json` is whole, and is the result of its newest checkpoint.

    A run that was resumed and killed has the result of an earlier round. Where a result does not tell its round, its
    file is then older than the checkpoint's; in a copy of the folder the times may be those of copying. In either case
    run.log has the later start, as a round may also have been trained a second time.

    Args:
        folder: folder of the run.
        recipe: recipe of the run.
        round_: round of the newest checkpoint.
        checkpoint: file of the newest checkpoint.
    """
    try:
        if (result := read_result(folder.result, recipe)) is None:
            return False
        is_newest = (
            folder.result.stat().st_mtime_ns > checkpoint.stat().st_mtime_ns
            if ROUND not in result
            else result_round(result) == round_
        )
    except (OSError, RunError):
        return False
    return is_newest and ends_as_finished(folder.log)


def earlier_result_round(folder: RunFolder, rounds_done: int) -> int | None:
    """Return the round of a run's `result.json` if the run has gone further.

    None if it has not, or if the file is not there, damaged, or of a version that did not write the round.
    """
    try:
        round_ = result_round(parse_json(read_regular(folder.result, MAXIMUM_RESULT, follow_links=False)))
    except (OSError, ValueError):
        return None
    return earlier_round(round_, rounds_done)


def earlier_round(round_: int | None, rounds_done: int) -> int | None:
    """Return the round of a result if the run has gone further; None if it has not, or if the round is unknown."""
    return None if round_ is None or round_ >= rounds_done else round_


def earlier_result_note(round_: int, rounds_done: int) -> str:
    """Return the words that a run with a result of round `round_` has gone further."""
    return f"the result is of round {round_} of {rounds_done}; the run gets a new one at its end, or by `evaluate`"


def check_result(content: object, recipe: Recipe | Description) -> None:
    """Refuse a result that lacks a field which its recipe shows, or in which the field has another type.

    Raises:
        TypeError: the result or a part of it has another type.
        ValueError: a field is not a number.
    """
    if not isinstance(content, dict):
        raise TypeError(f"{short_repr(content)}: expected keys and values")
    if ROUND in content and result_round(content) is None:
        raise TypeError(f"{ROUND} = {short_repr(content[ROUND])}: expected a whole number")
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
