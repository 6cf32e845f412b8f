"""`metrics.jsonl`: one JSON object a line, one line a round, `{"round":7,"fitness/mean":3.2,...}`.

A number that is not finite is written as `null`, because JSON has no NaN; `read_metrics` gives it back as NaN. Other
records of a round (its alarms, its lineage) are kept the same way in files of their own, and may hold lists and text.
"""

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from io import BufferedReader, FileIO
from math import isfinite, nan
from pathlib import Path
from typing import Any

from flatwater_watch.errors import RunError
from flatwater_watch.files.content import encode_json, is_number, parse_json
from flatwater_watch.files.directory import explain_os_errors, write_object
from flatwater_watch.files.safe_read import append_regular, open_regular
from flatwater_watch.sanitize import short_repr
from flatwater_watch.units import format_bytes

Record = dict[str, Any]
MAXIMUM_ROUNDS = 1 << 53
"""Largest round: nobody has trained more, and no float holds it exactly."""
MAXIMUM_LINE = 4 << 20
"""Most bytes of a line: those of this package's recipes have some thousands."""


class JsonlSink:
    """Appends a line a round, which readers see at once; the disk has it when `sync` returns."""

    def __init__(self, path: Path, *, resume_at: int = 0) -> None:
        """Open the file for the rounds after `resume_at`.

        Args:
            path: the file; its folder must exist.
            resume_at: last round that the run remembers (0 for a new run). Lines of later rounds, which a killed
                run wrote after its last checkpoint, and a half-written last line are cut off in one atomic step.

        Raises:
            RunError: the file cannot be read or written.
        """
        self.path, self._has_unsynced = path, False
        # Cut before it is opened: `_drop_later_rounds_` puts another file in its place.
        with explain_os_errors(path):
            _drop_later_rounds_(path, resume_at)
            # Without a buffer: what a full disk refused would otherwise be tried again when the file is closed.
            self._file = append_regular(path)

    def write(self, round: int, metrics: Mapping[str, object]) -> None:
        """Append the round's line.

        Raises:
            RunError: the disk is full or the file can no longer be written.
        """
        with explain_os_errors(self.path):
            _append_(self._file, encode_line(round, metrics))
        self._has_unsynced = True

    def sync(self) -> None:
        """Wait until the disk has every line.

        Raises:
            RunError: the disk fails.
        """
        if self._has_unsynced:
            with explain_os_errors(self.path):
                os.fsync(self._file.fileno())
            self._has_unsynced = False

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _append_(file: FileIO, line: bytes) -> None:
    """Append a line.

    Raises:
        OSError: the disk took a part of the line alone (ENOSPC).
    """
    if file.write(line) < len(line):  # the disk took only a part
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def encode_line(round: int, record: Mapping[str, object]) -> bytes:
    """Return the round as a line of JSON, with `null` for numbers that are not finite."""
    return encode_json({"round": round, **record}) + b"\n"


def _drop_later_rounds_(path: Path, resume_at: int) -> None:
    """Keep the whole lines of rounds up to `resume_at`; replace the file at once, and only if something must go."""
    if not os.path.lexists(path):
        return
    with open_regular(path, follow=False) as file:
        # Read only, where nothing must go: a resume after a clean stop does not rewrite gigabytes.
        if all(survives_resume(line, resume_at) for line in file):
            return
        file.seek(0)
        # Line by line: the whole file of a long run has gigabytes.
        write_object(path, (line for line in file if survives_resume(line, resume_at)))


def survives_resume(line: bytes, resume_at: int) -> bool:
    """Whether a line is whole, and of a round that the resumed run remembers."""
    round_ = parse_round(line)
    return round_ is not None and round_ <= resume_at


def parse_record(line: bytes) -> Record | None:
    """Return the record that a line holds; None if the line is half-written or no record of a round."""
    if not line.endswith(b"\n"):
        return None
    try:
        record = parse_json(line)
    except ValueError:
        return None
    round_ = record.get("round") if isinstance(record, dict) else None
    return record if type(round_) is int and 0 <= round_ <= MAXIMUM_ROUNDS else None  # `type`: true is not a round


def parse_round(line: bytes) -> int | None:
    """Return the round that a line is about; None if the line is half-written or no record."""
    record = parse_record(line)
    return None if record is None else int(record["round"])


def read_metrics(path: Path) -> dict[str, list[float]]:
    """Return numbers by name, in the order of rounds; NaN where a round has none.

    A half-written last line, which a run that is being written or was killed can have, is left out. The column
    `round` holds the rounds themselves.

    Raises:
        RunError: the file cannot be read, or a line other than the last is damaged.
    """
    try:
        with open_regular(path, follow=False) as file:
            lines = [*bounded_lines(file)]
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror}. Is this a run folder?") from error
    records = [
        _parse_whole_line(path, number, line) for number, line in enumerate(lines, 1) if not _is_torn(lines, number)
    ]
    return records_to_columns(path, records)


def records_to_columns(path: Path, records: Sequence[Record]) -> dict[str, list[float]]:
    """Return numbers by name, in the order of records; NaN where a record has none.

    Raises:
        RunError: a record of the file holds something else than numbers.
    """
    for record in records:
        require_numbers(path, record)
    names = dict.fromkeys(name for record in records for name in record)
    return {name: [nan if (value := record.get(name)) is None else value for record in records] for name in names}


def bounded_lines(file: BufferedReader) -> Iterator[bytes]:
    """Yield the lines from where the file stands, whoever has written them.

    Raises:
        OSError: a line is longer than a line can be.
    """
    while line := file.readline(MAXIMUM_LINE):
        if len(line) == MAXIMUM_LINE and not line.endswith(b"\n"):
            raise OSError(errno.EFBIG, f"a line has more than {format_bytes(MAXIMUM_LINE)}")
        yield line


def finite_points(rounds: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return the rounds that have a number, and their numbers."""
    points = [(round_, value) for round_, value in zip(rounds, values, strict=False) if isfinite(value)]
    return [round_ for round_, _ in points], [value for _, value in points]


def _is_torn(lines: list[bytes], number: int) -> bool:
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
    """Refuse a line of `metrics.jsonl` that holds something else than numbers.

    Raises:
        RunError: the record holds something else.
    """
    key = next((name for name, value in record.items() if value is not None and not is_number(value)), None)
    if key is not None:
        raise RunError(
            f"{path}: {short_repr(key)} of round {record['round']} is not a number. Restore the "
            "file, or delete that line."
        )
