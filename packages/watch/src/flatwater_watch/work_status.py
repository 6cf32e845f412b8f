"""The line that commands show while they work: its text, how long the work takes, and how far it is."""

import time
from contextlib import ExitStack
from typing import Any

from rich.console import Console, RenderableType
from rich.status import Status
from rich.text import Text

from flatwater_watch.progress import Ticker, is_due, track_progress
from flatwater_watch.units import format_duration


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
        if not isinstance(self._status_text, str) or not self._status_text:  # a table of rich, or an empty line
            return
        now = time.monotonic()
        duration = format_duration(now - self._began_at)
        # After `Reading…` the time alone; any other text may end with a time of its own, such as the time left.
        took = f" {duration}" if self._status_text.endswith("…") else f", {duration} so far"
        progress = self._progress_track.line()  # empty if the work counts no steps
        line = f"{self._status_text}{took}, {progress}" if progress else f"{self._status_text}{took}"
        first_seconds = self._first_line_seconds
        first_is_due = first_seconds is not None and now - self._began_at >= first_seconds
        if self.console.is_terminal:
            super().update(Text(line))
        elif first_is_due or is_due(now, self._began_at, self._last_line_at):
            self._first_line_seconds = None  # the first line is printed once
            self._last_line_at = now
            self.console.print(Text(line), soft_wrap=True)


def _plain_status(status: RenderableType) -> RenderableType:
    """Return the status as text, without markup."""
    # Rich's status reads markup in a `str`, whatever the console was told.
    return Text(status) if isinstance(status, str) else status
