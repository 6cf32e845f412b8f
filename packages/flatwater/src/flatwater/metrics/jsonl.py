"""Writes and reads `metrics.jsonl`, which has a JSON object for each round, `{"round":7,"fitness/mean":3.2,...}`.

A number that is not finite is written as `null`, as JSON has no NaN; `read_metrics` returns it as NaN. Other files of a
run, such as alarms and lineage, have the same form, and may contain lists and text.
"""

import errno
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import BufferedReader, FileIO
from math import isfinite, nan
from pathlib import Path
from typing import Any

from flatwater_watch.errors import RunError
from flatwater_watch.files.directory import explain_os_errors, write_object
from flatwater_watch.files.json_values import encode_json, is_number, parse_json
from flatwater_watch.files.regular_files import append_regular, open_regular
from flatwater_watch.sanitize import short_repr
from flatwater_watch.units import format_bytes

Record = dict[str, Any]
MAXIMUM_ROUNDS = 1 << 53
"""Largest number of a round: above it floats are not exact."""
MAXIMUM_LINE = 4 << 20
"""Most bytes of a line; lines of this package's recipes have a few thousand."""


class JsonlSink:
    """Appends a line for each round, which readers see at once; after `sync` it is on the disk."""

    def __init__(self, path: Path, *, resume_at: int = 0) -> None:
        """Open the file for the rounds after `resume_at`.

        Args:
            path: the file; its folder must exist.
            resume_at: last complete round of the run (0 for a new run). Lines of later rounds, which a killed run
                wrote after its last checkpoint, and a half-written last line are cut off in one atomic step.

        Raises:
            RunError: the file cannot be read or written.
        """
        self.path, self._has_unsynced_lines = path, False
        # Before the file is opened, as `_drop_later_rounds_` puts another file in its place.
        with explain_os_errors(path):
            _drop_later_rounds_(path, resume_at)
            # Unbuffered, so that a line which a full disk refused is not written again when the file is closed.
            self._file = append_regular(path)

    def write(self, round: int, metrics: Mapping[str, object]) -> None:
        """Append the round's line.

        Raises:
            RunError: the disk is full or the file can no longer be written.
        """
        self.write_rounds([(round, metrics)])

    def write_rounds(self, rounds: Iterable[tuple[int, Mapping[str, object]]]) -> None:
        """Append a line for each of these rounds, all in one write.

        Args:
            rounds: number and record of each round, in order.

        Raises:
            RunError: the disk is full or the file can no longer be written.
        """
        with explain_os_errors(self.path):
            _append_lines_(self._file, b"".join(encode_line(round, metrics) for round, metrics in rounds))
        self._has_unsynced_lines = True

    def sync(self) -> None:
        """Wait until the disk has every line.

        Raises:
            RunError: the disk fails.
        """
        if self._has_unsynced_lines:
            with explain_os_errors(self.path):
                os.fsync(self._file.fileno())
            self._has_unsynced_lines = False

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _append_lines_(file: FileIO, lines: bytes) -> None:
    """Append lines, and check that the disk took all of them.

    Raises:
        OSError: the disk is full (ENOSPC).
    """
    if file.write(lines) < len(lines):  # a full disk may take a part
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def encode_line(round: int, record: Mapping[str, object]) -> bytes:
    """Return a round's record as a line of JSON, with `null` for numbers that are not finite."""
    return encode_json({"round": round, **record}) + b"\n"


def _drop_later_rounds_(path: Path, resume_at: int) -> None:
    """Remove half-written lines and lines of rounds after `resume_at`; the file is replaced only if there are any."""
    if not os.path.lexists(path):
        return
    with open_regular(path, follow_links=False) as file:
        # After a clean stop there are none, and gigabytes need not be written again.
        if all(survives_resume(line, resume_at) for line in file):
            return
        file.seek(0)
        # Line by line, as the file of a long run has gigabytes.
        write_object(path, (line for line in file if survives_resume(line, resume_at)))


def survives_resume(line: bytes, resume_at: int) -> bool:
    """Return whether a line is whole, and its round is `resume_at` or an earlier one."""
    round_ = parse_round(line)
    return round_ is not None and round_ <= resume_at


def parse_record(line: bytes) -> Record | None:
    """Return the record in a line; None if the line is half-written or is not the record of a round."""
    if not line.endswith(b"\n"):
        return None
    try:
        record = parse_json(line)
    except ValueError:
        return None
    if not isinstance(record, dict):
        return None
    round_ = record.get("round")
    has_round = type(round_) is int and 0 <= round_ <= MAXIMUM_ROUNDS  # `type`, as True is an int
    return record if has_round else None


def parse_round(line: bytes) -> int | None:
    """Return the number of the round in a line; None if the line is half-written or is not a record."""
    record = parse_record(line)
    return None if record is None else int(record["round"])


def read_metrics(path: Path) -> dict[str, list[float]]:
    """Return the numbers in a `metrics.jsonl` by name, one for each round; NaN where a round has none.

    The column `round` has the numbers of the rounds. A half-written last line of a running or killed run is left out.

    Raises:
        RunError: the file cannot be read, or a line other than the last is damaged.
    """
    try:
        with open_regular(path, follow_links=False) as file:
            lines = [*bounded_lines(file)]
    except OSError as error:
        raise unreadable_error(path, error) from error
    records = [
        _parse_whole_line(path, number, line)
        for number, line in enumerate(lines, 1)
        if not _is_torn_last(lines, number)
    ]
    return records_to_columns(path, records)


def unreadable_error(path: Path, fault: OSError) -> RunError:
    """Return the error for a file of records that cannot be read."""
    return RunError(f"{path}: cannot be read: {fault.strerror}. Is this a run folder?")


def records_to_columns(path: Path, records: Sequence[Record]) -> dict[str, list[float]]:
    """Return the numbers in records by name, one for each record; NaN where a record has none.

    Raises:
        RunError: a record has a value that is not a number.
    """
    for record in records:
        require_numbers(path, record)
    columns = dict[str, list[float]]()
    for name in dict.fromkeys(name for record in records for name in record):
        values = (record.get(name) for record in records)
        # None is a number that was not finite, or that the record lacks.
        columns[name] = [nan if value is None else value for value in values]
    return columns


def bounded_lines(file: BufferedReader) -> Iterator[bytes]:
    """Yield the lines from the file's position on, with a bound on memory, as the file may come from anybody.

    Raises:
        OSError: a line is longer than `MAXIMUM_LINE`.
    """
    while line := file.readline(MAXIMUM_LINE):
        if len(line) == MAXIMUM_LINE and not line.endswith(b"\n"):  # only a part of the line was read
            raise OSError(errno.EFBIG, f"a line has more than {format_bytes(MAXIMUM_LINE)}")
        yield line


def finite_points(rounds: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return the rounds whose value is finite, and these values."""
    # Not strict: the values are an empty list where a run has no such metric.
    points = [(round_, value) for round_, value in zip(rounds, values, strict=False) if isfinite(value)]
    return [round_ for round_, _ in points], [value for _, value in points]


def _is_torn_last(lines: list[bytes], number: int) -> bool:
    """Return whether line `number`, counted from 1, is the last and half-written."""
    return number == len(lines) and parse_record(lines[-1]) is None


def _parse_whole_line(path: Path, number: int, line: bytes) -> Record:
    """Return the record of a whole line.

    Raises:
        RunError: the line is not a record; the message gives its number.
    """
    record = parse_record(line)
    if record is None:
        raise RunError(f"{path}: line {number} is not a record of a round. Restore the file, or delete that line.")
    return record


def require_numbers(path: Path, record: Record) -> None:
    """Refuse a record of `metrics.jsonl` with a value that is not a number.

    Raises:
        RunError: a value is not a number; the message names it.
    """
    for name, value in record.items():
        if value is not None and not is_number(value):
            raise RunError(
                f"{path}: {short_repr(name)} of round {record['round']} is not a number. Restore the "
                "file, or delete that line."
            )
