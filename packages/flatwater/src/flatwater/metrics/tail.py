"""The end of a run's `.jsonl` file, without the rest: a list of 200 runs must not read gigabytes.

All of it is bounded, whoever wrote the file: a line by `MAXIMUM_LINE`, a search by `MAXIMUM_BACK`.
"""

import errno
import json
import os
import re
from io import BufferedReader
from math import isfinite
from pathlib import Path

from flatwater.metrics.jsonl import MAXIMUM_LINE, Record, bounded_lines, parse_record, require_numbers
from flatwater_watch.errors import RunError
from flatwater_watch.files.safe_read import open_regular
from flatwater_watch.units import format_bytes

MAXIMUM_BACK = 256 << 20
"""Bytes from the end in which a number is searched."""
# A small block first: the last line of most files is in it.
FIRST_BLOCK, BLOCK = 64 << 10, 1 << 20
MAXIMUM_DIGITS = 64
"""Most characters of a number, and of the text around it."""


def read_last(path: Path, name: str) -> tuple[Record | None, float | None]:
    """Return the last record of a file of numbers, and the last number that any record has under a name.

    A half-written last line is left out. None stands for what is not there.

    Raises:
        RunError: the file cannot be read, or its last line is not a record.
    """
    try:
        with open_regular(path, follow=False) as file:
            record, end = _last_record(file, path)
            return record, _last_number(file, name, end)
    except FileNotFoundError:
        return None, None
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror}. Is this a run folder?") from error


def start_of_last(file: BufferedReader, lines: int) -> int:
    """Return where the last `lines` whole lines begin; text behind the last line break counts as none.

    Raises:
        OSError: a line is longer than a line can be.
    """
    size = position = file.seek(0, os.SEEK_END)
    breaks_left = lines + 1  # the line break before them
    while position > 0:
        if size - position > breaks_left * MAXIMUM_LINE:  # without a line break in sight it is not a file of ours
            raise OSError(errno.EFBIG, f"a line has more than {format_bytes(MAXIMUM_LINE)}")
        step = min(FIRST_BLOCK if position == size else BLOCK, position)
        position -= step
        file.seek(position)
        block = file.read(step)
        breaks = block.count(b"\n")
        if breaks < breaks_left:
            breaks_left -= breaks
            continue
        end = len(block)
        for _ in range(breaks_left):
            end = block.rindex(b"\n", 0, end)
        return position + end + 1
    return 0


def _last_record(file: BufferedReader, path: Path) -> tuple[Record | None, int]:
    """Return the last record, and where its line ends.

    Raises:
        RunError: a last line is not a record of a round.
    """
    start = file.seek(start_of_last(file, 2))  # two, as the last may be half-written
    lines = [*bounded_lines(file)]
    if lines and parse_record(lines[-1]) is None:  # half-written
        lines.pop()
    if not lines:
        return None, 0
    if (record := parse_record(lines[-1])) is None:
        raise RunError(f"{path}: its last line is not a record of a round. Restore the file, or delete that line.")
    require_numbers(path, record)
    return record, start + sum(map(len, lines))


def _last_number(file: BufferedReader, name: str, end: int) -> float | None:
    """Return the last finite number under a name before `end`; None if none is within `MAXIMUM_BACK` bytes."""
    # By the text of its name, from the end of the last record on: most lines are never parsed.
    key = json.dumps(name).encode()
    # Bounded repetitions: on a hostile line the expression takes no more than a fixed time for each byte.
    pattern = re.compile(re.escape(key) + rb": ?(-?[0-9]{1,20}(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,3})?)[,}]")
    overlap = len(key) + MAXIMUM_DIGITS  # blocks overlap, so that none cuts a number in two
    position = size = end
    while position > 0 and size - position < MAXIMUM_BACK:
        step = min(FIRST_BLOCK if position == size else BLOCK, position)
        position -= step
        file.seek(position)
        block = file.read(min(step + overlap, size - position))
        numbers = [float(number) for number in pattern.findall(block)] if key in block else []
        if finite := [number for number in numbers if isfinite(number)]:
            return finite[-1]
    return None
