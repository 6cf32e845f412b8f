"""`metrics.jsonl` back as columns, one number a round, for reports, tables and tests."""

from collections.abc import Sequence
from math import isfinite, nan
from pathlib import Path

from flatwater.errors import RunError
from flatwater.metrics.jsonl import Record, is_number, record_of
from flatwater.printable import shown
from flatwater.regular import open_regular


def read_metrics(path: Path) -> dict[str, list[float]]:
    """Every name that some round has -> its numbers in the order of rounds; NaN where a round has none.

    A half-written last line, which a run that is being written or was killed can have, is left out. The column
    `round` holds the rounds themselves.

    Raises:
        RunError: the file cannot be read, or a line other than the last is damaged.
    """
    try:
        with open_regular(path) as file:
            lines = file.readlines()
    except OSError as fault:
        raise RunError(f"{path}: cannot be read: {fault.strerror}. Is this a run folder?") from fault
    records = [_record(path, number, line) for number, line in enumerate(lines, 1) if not _is_torn(lines, number)]
    names = dict.fromkeys(name for record in records for name in record)
    return {name: [record.get(name, nan) for record in records] for name in names}


def known(rounds: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """The rounds that have a number, and their numbers."""
    points = [(at, value) for at, value in zip(rounds, values, strict=False) if isfinite(value)]
    return [at for at, _ in points], [value for _, value in points]


def _is_torn(lines: list[bytes], number: int) -> bool:
    return number == len(lines) and record_of(lines[-1]) is None


def _record(path: Path, number: int, line: bytes) -> dict[str, float]:
    found = record_of(line)
    if found is None:
        raise RunError(f"{path}: line {number} is not a record of a round. Restore the file, or delete that line.")
    require_numbers(path, found)
    return {name: nan if value is None else value for name, value in found.items()}


def require_numbers(path: Path, record: Record) -> None:
    """That a line of `metrics.jsonl` holds numbers and nothing else.

    Raises:
        RunError: it holds something else.
    """
    odd = next((name for name, value in record.items() if value is not None and not is_number(value)), None)
    if odd is not None:
        raise RunError(
            f"{path}: {shown(odd)} of round {record['round']} is no number. Restore the file, or delete that line."
        )
