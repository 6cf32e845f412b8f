r"""The console of all commands, which shows text that others have chosen as it is, and never obeys it.

Square brackets are not read as rich's markup, and control characters are not passed on, anywhere in a table, a progress
bar or a message: `[1]` may be a folder's name, and `\x1b]0;...` a class's.
"""

import io
import re
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.status import Status
from rich.text import Text

from flatwater_watch.masking import mask_secrets
from flatwater_watch.progress import Ticker, is_due, track_progress
from flatwater_watch.sanitize import escape_controls
from flatwater_watch.streams import open_closed_descriptors, surviving_stream
from flatwater_watch.units import format_duration

WIDTH = 100
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


class WorkStatus(Status):
    """A line that moves during work, with its duration and progress.

    If the output is not a terminal, the line is printed again every 10 seconds; see `progress.is_due`.
    """

    console: Console

    def __init__(
        self,
        status: RenderableType,
        *,
        console: Console,
        first_line_seconds: float | None = None,
        **settings: Any,  # noqa: ANN401  (arguments of rich's status)
    ) -> None:
        """Prepare the line, which is shown when entered.

        Args:
            status: text of the line.
            console: terminal or log that shows it.
            first_line_seconds: seconds until the line is printed first if the output is no terminal; None takes 10.
            settings: further arguments of `rich.status.Status`.
        """
        self._first_line_seconds = first_line_seconds
        super().__init__(_plain_status(status), console=console, **settings)
        self._status_text, self._exit_stack = status, ExitStack()
        self._began_at = self._last_line_at = time.monotonic()

    def update(self, status: RenderableType | None = None, **settings: Any) -> None:  # noqa: ANN401  (arguments of rich's status)
        """Replace the text when other work begins."""
        if status is not None:
            self._status_text = status
        super().update(None if status is None else _plain_status(status), **settings)

    def start(self) -> None:
        """Show the line; code that this thread calls from here on counts its progress in it."""
        super().start()
        self._began_at = self._last_line_at = time.monotonic()
        self._progress_track = self._exit_stack.enter_context(track_progress())
        if not self.console.quiet:
            ticker = Ticker(self._show_progress)
            ticker.start()
            self._exit_stack.callback(ticker.stop)

    def stop(self) -> None:
        """Remove the line."""
        self._exit_stack.close()  # first: the thread of the ticker must not print behind the line's end
        super().stop()

    def _show_progress(self) -> None:
        """Show how long the work takes and how far it is; in the thread of the ticker.

        On a terminal the line is replaced; elsewhere a line is printed whenever one is due.
        """
        if not isinstance(self._status_text, str) or not self._status_text:
            return
        now = time.monotonic()
        parts = (format_duration(now - self._began_at), self._progress_track.line())
        line = f"{self._status_text} {', '.join(filter(None, parts))}"
        first_seconds = self._first_line_seconds
        first_is_due = first_seconds is not None and now - self._began_at >= first_seconds
        if self.console.is_terminal:
            super().update(Text(line))
        elif first_is_due or is_due(now, self._began_at, self._last_line_at):
            self._first_line_seconds = None
            self._last_line_at = now
            self.console.print(Text(line), soft_wrap=True)


def _plain_status(status: RenderableType) -> RenderableType:
    """Return the status as text, without markup."""
    # Rich's status reads markup in a `str`, whatever the console was told.
    return Text(status) if isinstance(status, str) else status


def terminal(*, errors: bool = False) -> Terminal:
    """Return a console of at most 100 columns; of exactly 100 if the output is not a terminal.

    Args:
        errors: whether it prints on stderr, and drops lines that cannot be written. On stdout such a line raises, as a
            command without its results has failed.
    """
    return lasting_terminal(errors=True) if errors else _fix_width(Terminal())


def lasting_terminal(*, errors: bool = False) -> Terminal:
    """Return a console for work that must go on when nobody reads it any more, such as training.

    Args:
        errors: whether it prints on stderr; if not, on stdout.
    """
    open_closed_descriptors()
    return _fix_width(Terminal(file=surviving_stream(sys.stderr if errors else sys.stdout)))


def silent_terminal() -> Terminal:
    """Return a console that shows nothing."""
    return _fix_width(Terminal(quiet=True))


def _fix_width(console: Terminal) -> Terminal:
    console.width = min(console.width, WIDTH) if console.is_terminal else WIDTH
    return console


def say(line: str) -> None:
    """Print one line of any length on stdout."""
    # Unwrapped: a path that is broken over two lines cannot be copied.
    terminal().print(line, soft_wrap=True)


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
