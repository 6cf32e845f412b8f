"""Reads the lines of a run's `.jsonl` files: some lines of a whole file, or new lines of a file that a run writes.

The last line of a running or killed run may be half-written. It is left out, and read later when it is whole.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from types import MappingProxyType

from flatwater.metrics.jsonl import Record, bounded_lines, parse_record, unreadable_error
from flatwater.metrics.last_records import last_lines_start
from flatwater_watch.errors import RunError
from flatwater_watch.files.json_values import encode_json
from flatwater_watch.files.regular_files import open_regular


def spread_indexes(count: int, maximum: int) -> list[int]:
    """Return at most `maximum` of the indexes 0 .. count - 1, evenly spread, with the first and the last."""
    if count <= maximum:
        return list(range(count))
    return [step * (count - 1) // (maximum - 1) for step in range(maximum)]


def read_records(path: Path, maximum: int, *, entry: Mapping[str, object] = MappingProxyType({})) -> list[Record]:
    """Return some records of a file, evenly spread over it and in its order; empty if there is no such file.

    Args:
        path: a file that `JsonlSink` wrote.
        maximum: largest number of records; other lines are not parsed.
        entry: name and value that the lines must have, such as `{"champion/crowned": 1.0}`; by default all lines count.

    Raises:
        RunError: the file cannot be read, or one of these lines is damaged and not the last.
    """
    # The entry is searched in the text of a line, as `JsonlSink` writes it, so that most lines of a long run are never
    # parsed. `[1:-1]` takes away the braces of the JSON object: `"champion/crowned":1.0`.
    entry_text = encode_json(dict(entry))[1:-1]
    texts = [b""]  # which is in every line
    if entry_text:
        texts = [entry_text + b",", entry_text + b"}"]  # with what follows it, as 1.0 is not the beginning of 1.05
    try:
        with open_regular(path, follow_links=False) as file:
            # The file is read twice, as the indexes depend on the number of lines, which do not all fit into memory.
            count, last_line = 0, b""
            for line in _lines_with_text(file, texts):
                count += 1
                last_line = line
            if count > 0 and parse_record(last_line) is None:  # half-written
                count -= 1
            wanted_indexes = {*spread_indexes(count, maximum)}
            file.seek(0)
            lines = [line for index, line in enumerate(_lines_with_text(file, texts)) if index in wanted_indexes]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unreadable_error(path, error) from error
    return [_parse_whole_line(path, line) for line in lines]


def _lines_with_text(file: BufferedReader, texts: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the lines that have one of the texts; the text `b""` is in every line."""
    return (line for line in bounded_lines(file) if any(text in line for text in texts))


@dataclass
class FollowedFile:
    """A `.jsonl` file that is read again and again while a run writes it, and the place up to which it was read."""

    path: Path
    read_bytes: int = 0
    """Bytes of the whole lines that were read so far."""
    inode: int = 0
    """Inode of the file that was read; a resumed run replaces the file."""
    last_lines: int | None = None
    """Number of last lines with which reading begins; None for all lines."""


def rewind_if_replaced_(followed: FollowedFile) -> bool:
    """Return whether the file was replaced or became shorter; if so, let the next read begin at its first line."""
    try:
        status = followed.path.stat()
        inode, size = status.st_ino, status.st_size
    except FileNotFoundError:
        inode, size = 0, 0  # so that a file that is gone counts as replaced
    is_replaced = followed.read_bytes > 0 and (inode != followed.inode or size < followed.read_bytes)
    if is_replaced:
        followed.read_bytes = 0
    followed.inode = inode
    return is_replaced


def read_appended_records_(followed: FollowedFile) -> Iterator[Record]:
    """Yield the records of whole lines that were added since the last call; nothing if there is no such file yet.

    Raises:
        RunError: the file cannot be read, or a line before the last is damaged.
    """
    try:
        with open_regular(followed.path, follow_links=False) as file:
            if not followed.read_bytes and followed.last_lines is not None:
                followed.read_bytes = last_lines_start(file, followed.last_lines)
            file.seek(followed.read_bytes)
            last_was_damaged = False
            for line in bounded_lines(file):
                # A damaged line is an error only if another line follows, as the last line may still be being written.
                if last_was_damaged:
                    raise _bad_line_error(followed.path)
                if (record := parse_record(line)) is None:
                    last_was_damaged = True
                    continue
                # Before the yield, so that a caller that stops does not get the line again.
                followed.read_bytes += len(line)
                yield record
    except FileNotFoundError:
        return
    except OSError as error:
        raise unreadable_error(followed.path, error) from error


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
