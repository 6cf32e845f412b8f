r"""The console through which every command speaks: what comes from elsewhere is text there, and nothing else.

Square brackets are not read as rich's markup, and control characters are not passed on, wherever in a table, a
progress bar or a message they stand: `[1]` may be a folder's name, and `\x1b]0;...` a class's.
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
from flatwater_watch.streams import fill_closed, surviving_stream
from flatwater_watch.units import format_duration

WIDTH = 100
_COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")


class Terminal(Console):
    """rich's console, for text that somebody else has chosen."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401  (as rich's console takes them)
        super().__init__(highlight=False, markup=False, emoji=False, **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Segments as rich makes them; the orders among them that are not rich's own become visible."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=escape_controls(segment.text))

    def on_broken_pipe(self) -> None:
        """Leave it to who called; rich would end the process with 1."""
        raise  # noqa: PLE0704  (rich calls it where it has caught the error)

    def status(self, status: RenderableType, **settings: Any) -> Status:  # noqa: ANN401  (same)
        """A line that moves while something is done; see `Working`."""
        return Working(status, console=self, **settings)


class Working(Status):
    """A line that moves while something is done, and says for how long and how far it has come.

    Where the output is no terminal, it is printed anew every 10 seconds; see `progress.is_due`.
    """

    console: Console

    def __init__(
        self,
        status: RenderableType,
        *,
        console: Console,
        first: float | None = None,
        **settings: Any,  # noqa: ANN401  (same)
    ) -> None:
        """Nothing is shown before it is entered; `first` seconds later in a log, where 10 are too long to wait."""
        self._first = first
        super().__init__(_text(status), console=console, **settings)
        self._what, self._within = status, ExitStack()
        self._began = self._told = time.monotonic()

    def update(self, status: RenderableType | None = None, **settings: Any) -> None:  # noqa: ANN401  (same)
        """Something else is done now."""
        if status is not None:
            self._what = status
        super().update(None if status is None else _text(status), **settings)

    def start(self) -> None:
        """Show the line; what is called from here on, in this thread, says how far it has come."""
        super().start()
        self._began = self._told = time.monotonic()
        self._course = self._within.enter_context(track_progress())
        if not self.console.quiet:
            ticker = Ticker(self._tell)
            ticker.start()
            self._within.callback(ticker.stop)

    def stop(self) -> None:
        """Take the line away."""
        self._within.close()
        super().stop()

    def _tell(self) -> None:
        if not isinstance(self._what, str) or not self._what:
            return
        now = time.monotonic()
        parts = (format_duration(now - self._began), self._course.line())
        line = f"{self._what} {', '.join(filter(None, parts))}"
        if self.console.is_terminal:
            super().update(Text(line))
        elif is_due(now, self._began, self._told) or (self._first is not None and now - self._began >= self._first):
            self._first = None
            self._told = now
            self.console.print(Text(line), soft_wrap=True)


def _text(status: RenderableType) -> RenderableType:
    """Rich reads markup in a text, whatever the console was told."""
    return Text(status) if isinstance(status, str) else status


def terminal(*, errors: bool = False) -> Terminal:
    """A console of at most 100 columns; of exactly 100 where the output is no terminal.

    Results are what a command is for: where stdout takes none, it fails. What is said beside them on stderr is not.
    """
    return lasting_terminal(errors=True) if errors else _of_width(Terminal())


def lasting_terminal(*, errors: bool = False) -> Terminal:
    """The console of what must go on when nobody reads it any more: of training, and of what is said at its end."""
    fill_closed()
    return _of_width(Terminal(file=surviving_stream(sys.stderr if errors else sys.stdout)))


def silent_terminal() -> Terminal:
    """The console of what is not to be shown."""
    return _of_width(Terminal(quiet=True))


def _of_width(console: Terminal) -> Terminal:
    console.width = min(console.width, WIDTH) if console.is_terminal else WIDTH
    return console


def say(line: str) -> None:
    """One line on stdout, as long as it is: a path that is broken over two lines cannot be copied."""
    terminal().print(line, soft_wrap=True)


class PrintableStream(io.TextIOBase):
    """Passes text on to another stream without secrets, for libraries that print what they were given; colours stay."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Colours are the only orders that pass."""
        parts = (part if at % 2 else escape_controls(mask_secrets(part)) for at, part in enumerate(_COLOUR.split(text)))
        self._stream.write("".join(parts))
        return len(text)

    def isatty(self) -> bool:
        """Whether colours are wanted."""
        return self._stream.isatty()
