"""Reads the end of a run's `.jsonl` file alone: a list of 200 runs must not read gigabytes.

The work is bounded for any file: the length of a line by `MAXIMUM_LINE`, a search by `MAXIMUM_SEARCH_BYTES`.
"""

import errno
import json
import os
import re
from io import BufferedReader
from math import isfinite
from pathlib import Path

from flatwater.metrics.jsonl import MAXIMUM_LINE, Record, bounded_lines, parse_record, require_numbers, unreadable_error
from flatwater_watch.errors import RunError
from flatwater_watch.files.regular_files import open_regular
from flatwater_watch.units import format_bytes

MAXIMUM_SEARCH_BYTES = 256 << 20
"""Bytes at the end of a file in which a number is searched."""
# The first block is small, as it contains the last line of most files.
FIRST_BLOCK_BYTES, BLOCK_BYTES = 64 << 10, 1 << 20
MAXIMUM_DIGITS = 64
"""Most characters of a number with the text around it."""


def read_last(path: Path, name: str) -> tuple[Record | None, float | None]:
    """Return the last record of a `.jsonl` file, and the last finite number with this name in any record.

    A half-written last line is ignored. A record or a number that is missing is None.

    Raises:
        RunError: the file cannot be read, or its last line is not a record.
    """
    try:
        with open_regular(path, follow_links=False) as file:
            record, end = _last_record(file, path)
            return record, _last_number(file, name, end)
    except FileNotFoundError:
        return None, None
    except OSError as error:
        raise unreadable_error(path, error) from error


def last_lines_start(file: BufferedReader, lines: int) -> int:
    """Return the offset at which the last `lines` whole lines begin; a last line without a line break is not counted.

    Raises:
        OSError: a line is longer than `MAXIMUM_LINE`.
    """
    # Blocks are read from the end backwards, and their line breaks counted; `position` is the offset of the last block.
    size = position = file.seek(0, os.SEEK_END)
    line_breaks_left = lines + 1  # one more: the line break before these lines
    while position > 0:
        if size - position > line_breaks_left * MAXIMUM_LINE:  # too few line breaks for a file of records
            raise OSError(errno.EFBIG, f"a line has more than {format_bytes(MAXIMUM_LINE)}")
        # A block before those that were read; the first is smaller.
        step = min(FIRST_BLOCK_BYTES if position == size else BLOCK_BYTES, position)
        position -= step
        file.seek(position)
        block = file.read(step)
        line_breaks = block.count(b"\n")
        if line_breaks < line_breaks_left:
            line_breaks_left -= line_breaks
            continue
        # The lines begin in this block, behind its line break number `line_breaks_left` from the end.
        end = len(block)
        for _ in range(line_breaks_left):
            end = block.rindex(b"\n", 0, end)
        return position + end + 1
    return 0


def _last_record(file: BufferedReader, path: Path) -> tuple[Record | None, int]:
    """Return the last record, and the offset at which its line ends; None and 0 if there is none.

    Raises:
        RunError: the last whole line is not a record of a round.
    """
    start = file.seek(last_lines_start(file, 2))  # two, as the last may be half-written
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
    """Return the last finite number of this name before the offset `end`; None if `MAXIMUM_SEARCH_BYTES` have none."""
    # The text of the name is searched backwards from `end`, as parsing each line would take long.
    key = json.dumps(name).encode()
    # A number in JSON, between its name and a comma or the end of the object. The repetitions are bounded, so that the
    # expression takes a bounded time for each byte of a hostile line.
    pattern = re.compile(re.escape(key) + rb": ?(-?[0-9]{1,20}(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,3})?)[,}]")
    overlap = len(key) + MAXIMUM_DIGITS  # blocks overlap, so that no number is cut in two
    position = size = end  # `position` is the offset of the last block that was read
    while position > 0 and size - position < MAXIMUM_SEARCH_BYTES:
        step = min(FIRST_BLOCK_BYTES if position == size else BLOCK_BYTES, position)
        position -= step
        file.seek(position)
        block = file.read(min(step + overlap, size - position))
        if key not in block:
            continue
        numbers = [float(number) for number in pattern.findall(block)]
        finite_numbers = [number for number in numbers if isfinite(number)]
        if finite_numbers:
            return finite_numbers[-1]
    return None
