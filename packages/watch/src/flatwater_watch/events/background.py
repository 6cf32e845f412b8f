"""A sink that works in a thread of its own, so that it may be slow, fail or hang without stopping the run."""

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from threading import Condition, Thread
from typing import Protocol

from flatwater_watch.files.json_values import encode_json


class Sink(Protocol):
    """A receiver of the metrics of each round."""

    def write(self, round: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of a round. A sink that stores has stored them when it returns."""

    def close(self) -> None:
        """Release files and threads; `write` is not called afterwards."""


QUEUE_BYTES = 256 << 10
"""Maximum bytes of all lines that wait: about 100 rounds of an ordinary run."""
GRACE_SECONDS = 15.0
"""Maximum seconds that the end of a run waits for the queue."""

ShowLine = Callable[[str], None]
"""A function that shows a line, or keeps it until it can be shown."""


def say_nothing(_line: str) -> None:
    """Drop a line, as the `ShowLine` of a caller whose user need not read it."""


class BackgroundSink:
    """A queue in front of a sink, such as a tracker, which a thread of its own opens, feeds and closes."""

    def __init__(
        self,
        name: str,
        open_sink: Callable[[ShowLine], Sink],
        say: ShowLine,
        *,
        queue_bytes: int = QUEUE_BYTES,
        grace: float = GRACE_SECONDS,
        unit: str = "round",
    ) -> None:
        """Start the thread, which opens the sink; nothing here waits for it.

        Args:
            name: name of the sink, for messages.
            open_sink: opens the sink in its thread, where it may fail or hang; it gets a function for messages, which
                are shown with the next round.
            say: shows a line; called by the thread that uses this object.
            queue_bytes: maximum bytes of lines that wait.
            grace: maximum seconds that `close` waits.
            unit: name of the thing that a line reports, such as `round`.
        """
        self.name = name
        self.dropped = 0
        """Number of lines that the sink has not got."""
        self._show_line, self._queue_bytes, self._grace_seconds, self._unit = say, queue_bytes, grace, unit
        # Shared with the thread: read and written within `with self._condition`.
        self._condition = Condition()
        self._lines: deque[bytes] = deque()
        self._queued_bytes, self._is_closed, self._fault = 0, False, ""
        # Messages of the thread, which wait to be shown.
        self._notes, self._has_reported_fault = deque[str](), False
        # A daemon: the end of the process does not wait for a tracker that hangs.
        self._thread = Thread(target=self._send_lines, args=(open_sink,), name=f"tracker {name}", daemon=True)
        self._thread.start()

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait in the queue now."""
        return self._queued_bytes

    def write(self, round: int, metrics: Mapping[str, object]) -> None:
        """Put the metrics of a round into the queue; count it as dropped if the sink failed or the queue is full."""
        self.write_rounds([(round, metrics)])

    def write_rounds(self, rounds: Iterable[tuple[int, Mapping[str, object]]]) -> None:
        """Put the metrics of these rounds into the queue, for which the thread wakes once; count those dropped."""
        lines = [encode_json({"round": round, **metrics}) for round, metrics in rounds]
        dropped = 0
        with self._condition:
            is_open = self._thread.is_alive() and not self._fault
            for line in lines:
                if is_open and self._queued_bytes + len(line) <= self._queue_bytes:
                    self._lines.append(line)
                    self._queued_bytes += len(line)
                else:
                    dropped += 1
            self._condition.notify()
        self._show_notes()  # here, as the sink's thread must not show anything itself
        if dropped:
            self.dropped += dropped
            self._show_fault_once()

    def close(self) -> None:
        """Wait until the sink has taken the waiting lines, for the grace at most; drop and count the others."""
        with self._condition:
            self._is_closed = True
            self._condition.notify()
        self._thread.join(self._grace_seconds)
        with self._condition:
            self.dropped += len(self._lines)
            self._lines.clear()
            self._queued_bytes = 0
        self._show_notes()
        if self._thread.is_alive():
            limit = f"{self._grace_seconds:.0f}"
            self._show_line(f"{self.name}: did not end within {limit} s and is left alone; {self._dropped_phrase()}")
        elif self.dropped or self._fault:
            self._show_line(f"{self.name}: {self._fault or 'too slow'}; {self._dropped_phrase()}")

    def _show_notes(self) -> None:
        """Show the messages that the sink's thread has kept."""
        while self._notes:
            self._show_line(f"{self.name}: {self._notes.popleft()}")

    def _show_fault_once(self) -> None:
        """Report why lines are dropped, as the sink failed or is too slow, unless it was reported before."""
        if not self._has_reported_fault:
            self._has_reported_fault = True
            why = self._fault or f"is behind by {self._queued_bytes:,} bytes, which is all that may wait"
            self._show_line(f"{self.name}: {why}. The run goes on; {self._unit}s that it does not take are counted.")

    def _dropped_phrase(self) -> str:
        return f"{self.dropped} {self._unit}{'s' if self.dropped != 1 else ''} not sent"

    def _send_lines(self, open_sink: Callable[[ShowLine], Sink]) -> None:
        """Run the thread: open the sink, send it the waiting lines until `close` is called, and close it.

        Messages of the sink are kept for the thread that shows lines. Any exception of the sink becomes `_fault` and
        ends this thread: from then on `write` drops lines, and reports why.
        """
        try:
            sink = open_sink(self._notes.append)
            while (line := self._wait_for_line()) is not None:
                _write_line(sink, line)
                self._remove_line_(line)
            sink.close()
        except BaseException as fault:  # noqa: BLE001  (the edge of the thread; a library may even call sys.exit)
            first_line = (str(fault).strip() or repr(fault)).splitlines()[0]
            with self._condition:
                self._fault = f"failed ({type(fault).__name__}: {first_line})"

    def _wait_for_line(self) -> bytes | None:
        """Wait for a line, and return the oldest; it stays in the queue until it is written.

        None once `close` was called and no line waits any more.
        """
        with self._condition:
            self._condition.wait_for(lambda: self._lines or self._is_closed)
            return self._lines[0] if self._lines else None

    def _remove_line_(self, line: bytes) -> None:
        """Remove the line that the sink has written from the queue; runs in the sink's thread."""
        with self._condition:
            if self._lines:  # `close` may have given up in the meantime
                self._lines.popleft()
                self._queued_bytes -= len(line)


def _write_line(sink: Sink, line: bytes) -> None:
    """Write the round and the metrics of a line, which is JSON, to the sink."""
    # null stands for a number that is not finite, which no sink takes.
    record = json.loads(line)
    sink.write(record.pop("round"), {name: value for name, value in record.items() if value is not None})
