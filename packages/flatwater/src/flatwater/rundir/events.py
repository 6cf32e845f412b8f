"""Events of a run, each a line of text and plain values: shown on the console, and sent to listeners.

Listeners are `run.log`, `--json` and the user's own command. A listener never raises: an event that it cannot take is
lost for that listener, and the run goes on.
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
from flatwater_watch.files.regular_files import append_regular, open_regular
from flatwater_watch.sanitize import escape_controls
from flatwater_watch.streams import surviving_stream

KIND_WIDTH = 7
"""Width of the column with the kind of an event in run.log."""
MAXIMUM_LINE = 2_000
"""Most characters of a line in run.log."""
LOG_END_BYTES = 64 << 10
"""Bytes at the end of run.log in which the run's last end is searched."""
FINISHED = "finished"
"""First word of the event `end` of a run that has finished."""


@dataclass
class RunEvents:
    """Prints the lines of a run on the console, and sends its events to listeners."""

    console: Console
    listeners: list[Listener] = field(default_factory=list)
    before_event: Callable[[], None] = lambda: None
    """Called before each event. The recorder writes its gathered rounds then, so that no event stands before an earlier
    round."""

    def notify_listeners(
        self,
        kind: EventKind,
        line: str,
        time: datetime | None = None,
        **values: Any,  # noqa: ANN401  (plain values)
    ) -> None:
        """Send an event to the listeners, without a line on the console.

        Args:
            kind: kind of the event.
            line: the text.
            time: time of the event; None for now.
            values: plain values of the event.
        """
        self.before_event()
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
        self.before_event()
        self.console.print(Text(line, style=style), soft_wrap=True)
        self.notify_listeners(kind, line, **values)

    @contextmanager
    def report_ending(self) -> Iterator[None]:
        """Send listeners the event `failure` if an exception ends the `with` block, and close them at its end."""
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
        """Print to `stream`; when its reader is gone, printing does nothing."""
        self._stream = surviving_stream(stream)

    def on_event(self, event: Event) -> None:
        """Print the event at once."""
        self._stream.write(json.dumps(event.to_json()) + "\n")
        self._stream.flush()  # so that a reader at the other end of a pipe gets the line now

    def close(self) -> None:
        """Leave the stream open, as it is the program's."""


class RunLog:
    """Writes `run.log`: each event as a line with its time. A resumed run appends to it.

    It grows by two lines, about 200 bytes, a round. Lines that a full disk refuses are counted, and the next line that
    is written tells their number.
    """

    def __init__(self, path: Path) -> None:
        """Open the file; if it cannot be opened, all events are dropped."""
        self._file: FileIO | None = None
        self._last_line_is_torn, self._missing_lines = False, 0
        with suppress(OSError):
            # The last line may be torn, by a kill or a full disk: then the next line begins with a line break.
            self._file = append_regular(path)
            descriptor = self._file.fileno()
            size = os.fstat(descriptor).st_size
            self._last_line_is_torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"  # the last byte

    def on_event(self, event: Event) -> None:
        """Append the event as a line of run.log; count a line that the disk refuses, and report it with the next."""
        # Without control characters, as names in the line may come from somebody else's files.
        text = " ".join(escape_controls(event.line).split())[:MAXIMUM_LINE]
        gap_line = (
            f"{event.stamp} {'note':<{KIND_WIDTH}} {self._missing_lines} lines are missing here\n"
            if self._missing_lines
            else ""
        )
        line = f"{gap_line}{event.stamp} {event.kind:<{KIND_WIDTH}} {text}\n".encode(errors="replace")
        content = b"\n" + line if self._last_line_is_torn else line
        try:
            # One `write` for all, so that another reader never sees a part of the line.
            written_bytes = 0 if self._file is None else self._file.write(content)
        except (OSError, ValueError):  # the disk is full or gone; the console has shown the line
            self._missing_lines += 1
            return
        is_whole = written_bytes == len(content)  # a disk that becomes full takes a part
        self._missing_lines = 0 if is_whole else self._missing_lines + 1
        self._last_line_is_torn = not is_whole

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):
            if self._file is not None:
                self._file.close()


def ends_as_finished(log: Path) -> bool:
    """Return whether a run.log says that the run has finished, and that it was not started again afterwards."""
    with suppress(OSError), open_regular(log, follow_links=False) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_END_BYTES))
        for line in reversed(file.read(LOG_END_BYTES).splitlines()):
            kind, _space, text = line.partition(b" ")[2].partition(b" ")  # after the time
            if kind in {b"start", b"end"}:
                return kind == b"end" and text.split()[:1] == [FINISHED.encode()]
    return False
