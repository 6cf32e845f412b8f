"""The lines of a run's `.jsonl` files: some of them, or those that are new, one after another.

A line that is half-written, which the last one of a running or killed run can be, is left out; it is read when it is
whole.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from flatwater.metrics.jsonl import Record, bounded_lines, parse_record
from flatwater.metrics.tail import start_of_last
from flatwater_watch.errors import RunError
from flatwater_watch.files.safe_read import open_regular


def spread_indexes(count: int, maximum: int) -> list[int]:
    """Return at most `maximum` of the indexes 0 .. count - 1, evenly spread, the first and the last among them."""
    if count <= maximum:
        return list(range(count))
    return [step * (count - 1) // (maximum - 1) for step in range(maximum)]


def read_records(path: Path, maximum: int, *, mark: bytes = b"") -> list[Record]:
    """Return some records of a file in their order; empty if there is no such file. See also `read_appended_`.

    Args:
        path: a file that `JsonlSink` wrote.
        maximum: number of records that are wanted, evenly spread over the file; the others are not even parsed.
        mark: text, such as `"champion/crowned": 1`, of the lines that are wanted; left out, of all.

    Raises:
        RunError: the file cannot be read, or one of the wanted lines but the last is damaged.
    """
    try:
        with open_regular(path, follow=False) as file:
            # Twice through the file: what is wanted depends on how many lines there are,
            # and they do not fit into memory.
            count, last_line = 0, b""
            for line in _lines_with_mark(file, mark):
                count, last_line = count + 1, line
            count -= count > 0 and parse_record(last_line) is None  # half-written
            wanted_lines = {*spread_indexes(count, maximum)}
            file.seek(0)
            # Line by line: the whole file of a long run has gigabytes.
            lines = [line for index, line in enumerate(_lines_with_mark(file, mark)) if index in wanted_lines]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unreadable_error(path, error) from error
    return [_parse_whole_line(path, line) for line in lines]


def _lines_with_mark(file: BufferedReader, mark: bytes) -> Iterator[bytes]:
    return (line for line in bounded_lines(file) if mark in line)


@dataclass
class FollowedFile:
    """A file that is followed while a run writes it."""

    path: Path
    read: int = 0
    """Bytes of whole lines read so far."""
    file: int = 0
    """Inode that they were read from: a resumed run replaces the file."""
    last: int | None = None
    """Number of lines before the end with which reading begins; None for the first line."""


def rewind_if_replaced_(tail: FollowedFile) -> bool:
    """Return whether the file was replaced or cut; `read_appended_` then begins again at its first line."""
    try:
        status = tail.path.stat()
    except FileNotFoundError:
        status = os.stat_result((0,) * 10)
    is_replaced = tail.read > 0 and (status.st_ino != tail.file or status.st_size < tail.read)
    if is_replaced:
        tail.read = 0
    tail.file = status.st_ino
    return is_replaced


def read_appended_(tail: FollowedFile) -> Iterator[Record]:
    """Yield the whole lines since the last call, one at a time; nothing if there is no such file yet.

    Raises:
        RunError: the file cannot be read, or a line that others follow is damaged.
    """
    try:
        with open_regular(tail.path, follow=False) as file:
            if not tail.read and tail.last is not None:
                tail.read = start_of_last(file, tail.last)
            file.seek(tail.read)
            damaged = False
            for line in bounded_lines(file):
                # A damaged line is an error only when another follows:
                # the last one may be in the middle of being written.
                if damaged:
                    raise _bad_line_error(tail.path)
                if (record := parse_record(line)) is None:
                    damaged = True
                    continue
                tail.read += len(line)  # before the yield: a caller that stops here does not get the line again
                yield record
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unreadable_error(tail.path, error) from error


def _parse_whole_line(path: Path, line: bytes) -> Record:
    """Return the record of a whole line.

    Raises:
        RunError: the line is not JSON, or not an object.
    """
    if (record := parse_record(line)) is None:
        raise _bad_line_error(path)
    return record


def _bad_line_error(path: Path) -> RunError:
    return RunError(f"{path}: a line is not a record of a round. Restore the file, or delete that line.")


def _unreadable_error(path: Path, fault: OSError) -> RunError:
    return RunError(f"{path}: cannot be read: {fault.strerror}. Is this a run folder?")
