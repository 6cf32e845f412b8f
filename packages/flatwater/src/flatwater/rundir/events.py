"""Events of a run: each is told to its listeners, as a line of text and as plain values.

The console shows a run to a person; `run.log`, `--json` and the user's own command listen as well. A listener never
raises: what it cannot take is its own loss, not the run's.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from flatwater_watch.errors import FlatwaterError
from flatwater_watch.events.event import Event, EventKind, Listener
from flatwater_watch.files.safe_read import append_regular
from flatwater_watch.sanitize import escape_controls
from flatwater_watch.streams import surviving_stream

KIND_WIDTH = 7
MAXIMUM_LINE = 2_000
"""Most characters of a line in run.log."""


@dataclass
class RunEvents:
    """Voice of a run: it speaks on the console to a person, and to its listeners."""

    console: Console
    listeners: list[Listener] = field(default_factory=list)
    prepare: Callable[[], None] = lambda: None
    """Called before each event: the recorder writes the rounds that wait. So an event never stands before an earlier
    round, and the profiler, the session and the trackers need not know that rounds wait."""

    def notify_listeners(
        self,
        kind: EventKind,
        line: str,
        time: datetime | None = None,
        **values: Any,  # noqa: ANN401  (plain values)
    ) -> None:
        """Tell the listeners; the console has shown the event already, or shows it in its own way.

        Args:
            kind: kind of the event.
            line: the text.
            time: time of the event; None for now.
            values: plain values of the event.
        """
        self.prepare()
        event = Event(kind, line, values, time or datetime.now(UTC))
        for listener in self.listeners:
            listener.on_event(event)

    def show_line(self, line: str, kind: EventKind = "note", style: str = "yellow", **values: Any) -> None:  # noqa: ANN401  (plain values)
        """Show a line without breaking it, so that paths in it can be copied, and tell the listeners.

        Args:
            line: the text.
            kind: kind of the event, for listeners.
            style: rich's style of the line.
            values: plain values of the event, for listeners.
        """
        self.prepare()
        self.console.print(Text(line, style=style), soft_wrap=True)
        self.notify_listeners(kind, line, **values)

    @contextmanager
    def report_ending(self) -> Iterator[None]:
        """Tell listeners of a fault that ends the run; close them in any case."""
        try:
            yield
        except BaseException as error:  # Ctrl-C and signals as well
            code = error.exit_code if isinstance(error, FlatwaterError) else None
            self.notify_listeners(
                "failure", str(error) or type(error).__name__, error=type(error).__name__, exit_code=code
            )
            raise
        finally:
            for listener in self.listeners:
                listener.close()


class JsonLines:
    """Prints each event as a JSON object on a line of its own, for `--json`."""

    def __init__(self, stream: TextIO) -> None:
        """Print to `stream`, as long as somebody reads there."""
        self._stream = surviving_stream(stream)

    def on_event(self, event: Event) -> None:
        """Print the event at once."""
        self._stream.write(json.dumps(event.to_json()) + "\n")
        self._stream.flush()  # a reader at the other end of a pipe waits for whole lines

    def close(self) -> None:
        """Leave the stream open, as it is the program's."""


class RunLog:
    """Writes `run.log`: each event as a line with its time. A resumed run appends to it.

    It grows by two lines a round, about 200 bytes. A disk that is full takes no line; how many are missing stands where
    they would have been.
    """

    def __init__(self, path: Path) -> None:
        """Open the file; if it cannot be opened, all events are dropped."""
        self._file: FileIO | None = None
        self._line_is_torn, self._missing_lines = False, 0
        with suppress(OSError):
            # The end may be half a line, of a process that was killed
            # or of a disk that was full: the next line ends it.
            self._file = append_regular(path)
            size = os.fstat(self._file.fileno()).st_size
            self._line_is_torn = size > 0 and os.pread(self._file.fileno(), 1, size - 1) != b"\n"

    def on_event(self, event: Event) -> None:
        """Append the event as a line of run.log; a line that the disk refuses is counted, and told in the next line."""
        # One line, without control characters: names in it may come from files of anybody's.
        text = " ".join(escape_controls(event.line).split())[:MAXIMUM_LINE]
        gap = (
            f"{event.stamp} {'note':<{KIND_WIDTH}} {self._missing_lines} lines are missing here\n"
            if self._missing_lines
            else ""
        )
        line = f"{gap}{event.stamp} {event.kind:<{KIND_WIDTH}} {text}\n".encode(errors="replace")
        try:
            # One `write` for the line and what precedes it, so that another reader never sees a part of it.
            written_bytes = 0 if self._file is None else self._file.write(b"\n" + line if self._line_is_torn else line)
        except (OSError, ValueError):  # the disk is full, the share is gone: what is said is on the console too
            self._missing_lines += 1
            return
        is_whole = written_bytes == len(line) + self._line_is_torn
        self._line_is_torn, self._missing_lines = not is_whole, 0 if is_whole else self._missing_lines + 1

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):
            if self._file is not None:
                self._file.close()
