"""The user's own command, which gets an event of a run or a watch as JSON: to send a mail, to start the next job.

A thread of its own runs the command, one event after the other, and kills it when it takes too long: it never keeps the
run waiting. A failure is reported once.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from flatwater_watch.errors import ConfigError
from flatwater_watch.events.background import BackgroundSink
from flatwater_watch.events.event import Event
from flatwater_watch.sanitize import short_repr

COMMAND_KINDS = frozenset({"end", "failure", "alarm", "finding", "budget"})
"""Kinds of events for which the command runs."""
LIMIT_SECONDS = 10.0
"""Maximum seconds of the command for one event."""
GRACE_SECONDS = 2 * LIMIT_SECONDS
"""Maximum seconds that the end of a run waits for the command."""
STDERR_BYTES = 300
"""Number of last bytes of the command's stderr that are read."""

ShowLine = Callable[[str], None]


def check_command(command: str | None, named: str = "on_event") -> None:
    """Check before the run that a command can be started; None and an empty one pass.

    Args:
        command: command line, quoted as for a shell.
        named: setting or option with the command, for the error.

    Raises:
        ConfigError: the quotes do not match, or there is no such program.
    """
    if command is None or not command.strip():
        return
    try:
        program = shlex.split(command)[0]
    except ValueError as error:
        raise ConfigError(
            f"{named} = {short_repr(command)}: cannot be read as a command ({error}). Close the quotes"
        ) from error
    except IndexError as empty_error:
        raise ConfigError(
            f"{named} = {short_repr(command)}: names no program. Give a command, or leave it out"
        ) from empty_error
    if shutil.which(program) is None:
        raise ConfigError(
            f"{named} = {short_repr(command)}: there is no program {short_repr(program)} that can be started. Give its "
            "path, or make it executable; pipes and variables need a shell: sh -c '...'"
        )


class EventCommand:
    """A listener that runs the user's command for events."""

    def __init__(self, command: str, say: ShowLine, named: str = "--on-event") -> None:
        """Start the thread.

        Args:
            command: command line, quoted as for a shell, but run without one.
            say: shows a line; called by the thread that reports events.
            named: option with the command, for messages.
        """
        self._call = _CommandSink(shlex.split(command))
        self._queue = BackgroundSink(named, self._open_call, say, unit="event", grace=GRACE_SECONDS)
        self._event_count = 0

    def on_event(self, event: Event) -> None:
        """Put the event into the queue, if the command runs for its kind."""
        if event.kind in COMMAND_KINDS:
            self._event_count += 1
            self._queue.write(self._event_count, {"payload": json.dumps(event.to_json())})

    def close(self) -> None:
        """Wait for the command, at most for the grace."""
        self._queue.close()
        self._call.kill()  # a command that still runs would outlive the run

    def _open_call(self, note: ShowLine) -> "_CommandSink":
        self._call.show_line = note
        return self._call


class _CommandSink:
    """A sink that runs the command for one event after the other, in the queue's thread."""

    def __init__(self, words: list[str]) -> None:
        self.show_line: ShowLine = lambda _: None
        self._words = words
        self._running: subprocess.Popen[bytes] | None = None
        self._failed = 0

    def write(self, round: int, metrics: Any) -> None:  # noqa: ANN401, ARG002  (the event, as text)
        """Run the command; the first failure is reported, the others are counted."""
        fault = self._run_to_end(metrics["payload"].encode() + b"\n")
        if fault and not self._failed:
            self.show_line(f"{fault}; further failures are counted")
        self._failed += bool(fault)

    def close(self) -> None:
        """Report the number of failures, if there was more than one."""
        if self._failed > 1:
            self.show_line(f"failed {self._failed} times in all")

    def kill(self) -> None:
        """End the command and all processes that it has started."""
        if self._running is not None and self._running.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._running.pid, signal.SIGKILL)

    def _run_to_end(self, payload: bytes) -> str:
        """Run the command to its end, and return its failure in words; empty if there was none."""
        try:
            with tempfile.TemporaryFile() as error_output:
                # A session of its own: Ctrl-C in the terminal is the run's, and a kill reaches its child processes.
                self._running = subprocess.Popen(  # noqa: S603  (the user's own command)
                    self._words,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=error_output,
                    start_new_session=True,
                )
                try:
                    self._running.communicate(payload, timeout=LIMIT_SECONDS)
                except subprocess.TimeoutExpired:
                    self.kill()
                    self._running.communicate()
                    return f"the command took more than {LIMIT_SECONDS:g} s and was ended"
                code = self._running.returncode
                return f"the command ended with {code}{_last_line(error_output)}" if code else ""
        except OSError as fault:
            return f"the command cannot be run ({fault.strerror})"


def _last_line(error_output: Any) -> str:  # noqa: ANN401  (a temporary file)
    """The last line that a command wrote to stderr, in brackets behind a blank; empty if it wrote none."""
    size = error_output.seek(0, os.SEEK_END)
    error_output.seek(max(0, size - STDERR_BYTES))
    lines = error_output.read().decode(errors="replace").split("\n")
    last_line = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f" ({last_line})" if last_line else ""
