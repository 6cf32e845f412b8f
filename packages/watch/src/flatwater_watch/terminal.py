r"""The console of all commands, which shows text that others have chosen as it is, and never obeys it.

Square brackets are not read as rich's markup, and control characters are not passed on, anywhere in a table, a progress
bar or a message: `[1]` may be a folder's name, and `\x1b]0;...` a class's.
"""

import io
import os
import re
import sys
import textwrap
from collections.abc import Iterable
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.status import Status

from flatwater_watch.masking import mask_secrets
from flatwater_watch.sanitize import escape_controls
from flatwater_watch.streams import open_closed_descriptors, surviving_stream
from flatwater_watch.work_status import WorkStatus

WIDTH = 100
MINIMUM_COLUMNS = 40
"""Minimum columns for which help is printed, and what is piped or written into a file, whatever `COLUMNS` says."""
_COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")


class Terminal(Console):
    """A console of rich for text that somebody else has chosen."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401  (arguments of rich's console)
        super().__init__(highlight=False, markup=False, emoji=False, **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments that rich makes, with control characters in their texts made visible."""
        # Here, behind all of rich's own rendering: text in tables, bars and messages passes this place.
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=escape_controls(segment.text))

    def on_broken_pipe(self) -> None:
        """Raise the error to the caller; rich would end the process with 1."""
        raise  # noqa: PLE0704  (rich calls it where it has caught the error)

    def status(self, status: RenderableType, **settings: Any) -> Status:  # noqa: ANN401  (arguments of rich's status)
        """Return a line that moves during work; see `WorkStatus`."""
        return WorkStatus(status, console=self, **settings)


def terminal(*, to_stderr: bool = False) -> Terminal:
    """Return a console of at most 100 columns; if the output is not a terminal, of `COLUMNS`, or of 100 without it.

    Args:
        to_stderr: whether it prints on stderr, and drops lines that cannot be written. On stdout such a line raises, as
            a command without its results has failed.
    """
    if to_stderr:
        return lasting_terminal(to_stderr=True)
    return _fix_width(Terminal())


def lasting_terminal(*, to_stderr: bool = False) -> Terminal:
    """Return a console for work that must go on when nobody reads it any more, such as training.

    Args:
        to_stderr: whether it prints on stderr; if not, on stdout.
    """
    open_closed_descriptors()
    return _fix_width(Terminal(file=surviving_stream(sys.stderr if to_stderr else sys.stdout)))


def silent_terminal() -> Terminal:
    """Return a console that shows nothing."""
    return _fix_width(Terminal(quiet=True))


def _fix_width(console: Terminal) -> Terminal:
    """Set the width of a console and return it: at most `WIDTH` columns on a terminal, else those of `COLUMNS`."""
    if console.is_terminal:
        console.width = min(console.width, WIDTH)
    else:
        columns = os.environ.get("COLUMNS", "")
        console.width = max(MINIMUM_COLUMNS, int(columns)) if columns.isdecimal() else WIDTH
    return console


def say(line: str) -> None:
    """Print one line of any length on stdout."""
    # Unwrapped: a path that is broken over two lines cannot be copied.
    terminal().print(line, soft_wrap=True)


def print_sentence(console: Console, sentence: str, **style: Any) -> None:  # noqa: ANN401  (arguments of rich's print)
    """Print a sentence: on a terminal broken between words, with paths left whole; elsewhere in one line."""
    if console.is_terminal:
        wrapper = textwrap.TextWrapper(console.width, break_long_words=False, break_on_hyphens=False)
        sentence = "\n".join(map(wrapper.fill, sentence.splitlines()))
    console.print(sentence, highlight=False, markup=False, soft_wrap=True, **style)


class PrintableStream(io.TextIOBase):
    """A stream that masks secrets and shows control characters as codes; colours stay.

    It is for libraries that print parts of their input.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Print a text, with secrets masked and all control characters but colours made visible."""
        # The pattern has one group, so that the parts of the split with odd indexes are the colours.
        parts = _COLOUR.split(text)
        parts[::2] = [escape_controls(mask_secrets(part)) for part in parts[::2]]
        self._stream.write("".join(parts))
        return len(text)

    def isatty(self) -> bool:
        """Return whether the stream is a terminal, and so takes colours."""
        return self._stream.isatty()
