"""Notes about a file that is read: logged after it has been read without an error, or held for a caller."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

LIKE_SPLITS, BEGIN_LATER, END_EARLIER = "like splits", "begin later", "end earlier"
"""Titles of what should be checked in a panel."""
_log = logging.getLogger(__name__)
# A context variable instead of a global: two threads may import at the same time.
_held_lines: ContextVar[list[str] | None] = ContextVar("held", default=None)


@contextmanager
def held_notes() -> Iterator[list[str]]:
    """Hold notes back in a list, for a caller that shows them itself."""
    lines: list[str] = []
    token = _held_lines.set(lines)
    try:
        yield lines
    finally:
        _held_lines.reset(token)


@contextmanager
def notes_at_the_end() -> Iterator[None]:
    """Hold notes back until the block has ended; if it raises, they are dropped and only the error is shown."""
    with held_notes() as lines:
        yield
    for line in lines:
        _log_or_hold(line)


def note_about_file(source: Path, text: str) -> None:
    """Log a note about a file, or hold it back in `notes_at_the_end` and `held_notes`."""
    _log_or_hold(f"{source}: {text}")


def _log_or_hold(line: str) -> None:
    """Log a line, or add it to the lines that a surrounding block holds back."""
    held_lines = _held_lines.get()
    if held_lines is None:
        _log.warning("%s", line)
    else:
        held_lines.append(line)
