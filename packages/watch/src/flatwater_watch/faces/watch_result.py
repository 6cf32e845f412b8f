"""The result of `flatwater watch --json`, read back and checked: a person may have edited it, or named another file."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from flatwater_watch.agent.outcome import Outcome
from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.errors import RunError
from flatwater_watch.faces.bounded_result import read_record
from flatwater_watch.faces.command_name import WATCH_COMMAND
from flatwater_watch.faces.summary_lines import cost_time


@dataclass(frozen=True, kw_only=True)
class ReadingColumns:
    """The readings as columns of one length; empty if nothing was read, or by a version that kept none."""

    seconds: tuple[float, ...] = ()
    steps: tuple[int, ...] = ()
    resident: tuple[int, ...] = ()
    """Resident bytes, without the watch's own."""
    files: tuple[int, ...] = ()
    """Resident bytes of mapped files."""
    freed: tuple[int, ...] = ()
    """Bytes that the program has freed and the allocator keeps; empty if the C library does not say."""


@dataclass(frozen=True, kw_only=True)
class WatchResult:
    """The result of one watched program."""

    program: str
    unit: str
    """Unit of the steps, such as update, episode or second."""
    steps: int
    """Number of these units that passed."""
    seconds: float
    """Duration of the watch."""
    readings: int
    """Number of readings; 0 if nothing was read."""
    resident: int
    """Resident bytes at the last reading."""
    grown: int
    """Resident bytes gained since warm-up."""
    explained: float
    """Share of the growth that has a cause, 0 to 1."""
    cost_time: str
    """CPU time of the watch, in words."""
    cost_bytes: int
    """Bytes that the watch took in the program's process."""
    processes: int
    """Number of processes, the program's own included."""
    exit_code: int | None
    """Exit code; 128 plus the number of the signal that ended the program; None for a process that was attached."""
    outcome: Outcome
    findings: tuple[Finding, ...]
    unseen: tuple[str, ...]
    series: ReadingColumns


def read_watch_result(path: Path) -> WatchResult:
    """Read a file that `flatwater watch --json` wrote.

    Raises:
        RunError: the file cannot be read, or is not the result of a watch.
    """
    try:
        return parse_watch_result(read_record(path))
    except OSError as fault:
        raise RunError(f"{path}: cannot be read ({fault.strerror}).") from fault
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as fault:
        raise RunError(
            f"{path}: is not the result of a watch ({type(fault).__name__}: {fault}). Expected a file that "
            f"`{WATCH_COMMAND} --json result.json -- python train.py` wrote, or the folder of a run."
        ) from fault


def parse_watch_result(summary: Mapping[str, Any]) -> WatchResult:
    """Check the JSON of `flatwater watch`, and return it as a result.

    Raises:
        KeyError: a key is missing.
        TypeError: a value is of another type.
        ValueError: a number is not finite, a word is unknown, or a column is too short.
        AttributeError: a value that must have keys has none.
        OverflowError: a number is too large.
    """
    code = summary.get("exit_code")
    cost = {name: _require_number(cost_value) for name, cost_value in summary["cost"].items()}
    # Of a result of an earlier version, which has no outcome.
    state = "grows" if summary["findings"] else "flat"
    default_outcome: dict[str, Any] = {"state": state, "bytes": 0, "known": [], "next": []}
    return WatchResult(
        program=_require_text(summary["program"]),
        unit=_require_text(summary["unit"]),
        steps=int(_require_number(summary["steps"])),
        seconds=_require_number(summary["seconds"]),
        readings=int(_require_number(summary["readings"])),
        resident=int(_require_number(summary["resident_bytes"])),
        grown=int(_require_number(summary["resident_growth_bytes"])),
        explained=_require_number(summary["explained_share"]),
        cost_time=cost_time(cost, summary["seconds"]),
        cost_bytes=int(cost["bytes"]),
        processes=int(_require_number(summary["processes"])),
        exit_code=None if code is None else int(_require_number(code)),
        outcome=Outcome.from_json(summary.get("outcome", default_outcome)),
        findings=tuple(Finding.from_json(record) for record in summary["findings"]),
        unseen=tuple(_require_text(sentence) for sentence in summary["unseen"]),
        series=_read_columns(summary.get("series", {})),
    )


def _read_columns(columns: Mapping[str, Any]) -> ReadingColumns:
    """Check the columns of readings; all are empty without series, and `freed` is empty if it has a None.

    Raises:
        ValueError: the columns differ in length.
    """
    if not columns:
        return ReadingColumns()
    freed_bytes = columns["freed_bytes"]
    series = ReadingColumns(
        seconds=tuple(_require_number(value) for value in columns["seconds"]),
        steps=_whole_numbers(columns["steps"]),
        resident=_whole_numbers(columns["resident_bytes"]),
        files=_whole_numbers(columns["file_bytes"]),
        freed=() if None in freed_bytes else _whole_numbers(freed_bytes),
    )
    # Of the columns only `freed` may be empty.
    lengths = {len(series.seconds), len(series.steps), len(series.resident), len(series.files)}
    if series.freed:
        lengths.add(len(series.freed))
    if len(lengths) > 1:
        raise ValueError("the columns of series are not of one length")
    return series


def _whole_numbers(column: list[Any]) -> tuple[int, ...]:
    return tuple(int(_require_number(value)) for value in column)


def _require_text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r}: expected a text")
    return value


def _require_number(value: object) -> float:
    """Return the value if it is a finite number and no bool.

    Raises:
        TypeError: the value is not a number.
        ValueError: the number is not finite.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):  # a bool is an int to Python
        raise TypeError(f"{value!r}: expected a number")
    if not isfinite(value):
        raise ValueError(f"{value!r}: expected a finite number")
    return value
