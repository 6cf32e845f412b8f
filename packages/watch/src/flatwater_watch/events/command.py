"""The user's own command, which gets an event of a run or a watch as JSON: to send a mail, to start the next job.

A thread of its own runs the command for one event after the other, and kills it when it takes too long, so that the run
never waits. A failure is reported once.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from typing import Any

from flatwater_watch.errors import ConfigError
from flatwater_watch.events.background import BackgroundSink, ShowLine, say_nothing
from flatwater_watch.events.event import Event
from flatwater_watch.sanitize import short_repr

COMMAND_KINDS = frozenset({"end", "failure", "alarm", "finding", "budget"})
"""Kinds of events for which the command runs."""
LIMIT_SECONDS = 10.0
"""Maximum seconds of the command for one event; then it is killed."""
GRACE_SECONDS = 2 * LIMIT_SECONDS
"""Maximum seconds that the end of a run waits for the command, with all events that wait."""
STDERR_BYTES = 300
"""Number of last bytes of the command's stderr that are read."""

_QUOTED_TEXT = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.""")
"""Text in quotes, or a character behind a backslash, which a shell takes as it is: `'a|b'`, `"a > b"`, `\\;`."""
_SHELL_OPERATOR = re.compile(r"(?:^|(?<=\s))\d?[<>|&;]+|[|&;]+(?=\s|$)")
"""A pipe, redirection or end of a command at either end of a word: `>> log`, `| mail`, `2>&1`, `ls;`."""


def check_command(command: str | None, setting_name: str = "on_event") -> None:
    """Check before the run that a command can be started; None and an empty one pass.

    Args:
        command: command line, quoted as for a shell.
        setting_name: setting or option with the command, for the error.

    Raises:
        ConfigError: the quotes do not match, or there is no such program.
    """
    if command is None or not command.strip():
        return
    try:
        program = shlex.split(command)[0]
    except ValueError as error:
        raise ConfigError(
            f"{setting_name} = {short_repr(command)}: cannot be read as a command ({error}). Close the quotes"
        ) from error
    except IndexError as empty_error:
        raise ConfigError(
            f"{setting_name} = {short_repr(command)}: names no program. Give a command, or leave it out"
        ) from empty_error
    unquoted_text = _QUOTED_TEXT.sub("", command)
    if operator := _SHELL_OPERATOR.search(unquoted_text):
        raise ConfigError(
            f"{setting_name} = {short_repr(command)}: `{operator[0]}` is for a shell, and the command gets none. "
            "Give the command as sh -c '...', or quote the character"
        )
    if shutil.which(program) is None:
        raise ConfigError(
            f"{setting_name} = {short_repr(command)}: there is no program {short_repr(program)} that can be started. "
            "Give its path, or make it executable; pipes and variables need a shell: sh -c '...'"
        )


class EventCommand:
    """A listener that runs the user's command for events."""

    def __init__(self, command: str, say: ShowLine, option_name: str = "--on-event") -> None:
        """Start the thread that runs the command.

        Args:
            command: command line, quoted as for a shell, but run without one.
            say: shows a line; called by the thread that reports events.
            option_name: option with the command, for messages.
        """
        self._sink = _CommandSink(shlex.split(command))
        self._queue = BackgroundSink(option_name, self._open_sink, say, unit="event", grace=GRACE_SECONDS)
        self._event_count = 0

    def on_event(self, event: Event) -> None:
        """Put an event into the queue, if the command runs for events of its kind."""
        if event.kind in COMMAND_KINDS:
            self._event_count += 1
            self._queue.write(self._event_count, {"payload": json.dumps(event.to_json())})

    def close(self) -> None:
        """Wait for the command, for `GRACE_SECONDS` at most; then kill it, as it would outlive the run."""
        self._queue.close()
        self._sink.kill()

    def _open_sink(self, show_line: ShowLine) -> "_CommandSink":
        self._sink.show_line = show_line
        return self._sink


class _CommandSink:
    """A sink that runs the command for one event after the other, in the queue's thread."""

    def __init__(self, arguments: list[str]) -> None:
        """Prepare without a process; `arguments` are the program and its arguments."""
        self.show_line: ShowLine = say_nothing
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._failure_count = 0

    # The interface is that of a sink of metrics: `round` is the event's number, `metrics` has one entry, the payload.
    def write(self, round: int, metrics: Any) -> None:  # noqa: ANN401, ARG002  (a text and an unused number)
        """Run the command for the event in `metrics["payload"]`; report the first failure, and count them all."""
        fault = self._run_to_end(metrics["payload"].encode() + b"\n")
        if not fault:
            return
        if not self._failure_count:
            self.show_line(f"{fault}; further failures are counted")
        self._failure_count += 1

    def close(self) -> None:
        """Report the number of failures, if there was more than one."""
        if self._failure_count > 1:
            self.show_line(f"failed {self._failure_count} times in all")

    def kill(self) -> None:
        """Kill the command and all processes that it has started."""
        if self._process is not None and self._process.poll() is None:
            # The command leads a process group of its own, see `start_new_session`.
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _run_to_end(self, payload: bytes) -> str:
        """Run the command to its end, and return its failure in words; empty if there was none."""
        try:
            with tempfile.TemporaryFile() as error_output:
                # In a session of its own, so that Ctrl-C in the terminal does not end it, and a kill reaches its child
                # processes.
                self._process = subprocess.Popen(  # noqa: S603  (the user's own command)
                    self._arguments,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=error_output,
                    start_new_session=True,
                )
                try:
                    self._process.communicate(payload, timeout=LIMIT_SECONDS)
                except subprocess.TimeoutExpired:
                    self.kill()
                    self._process.communicate()  # waits for its end, so that no zombie stays
                    return f"the command took more than {LIMIT_SECONDS:g} s and was ended"
                code = self._process.returncode
                return f"the command ended with {code}{_last_line(error_output)}" if code else ""
        except OSError as fault:
            return f"the command cannot be run ({fault.strerror})"


def _last_line(error_output: Any) -> str:  # noqa: ANN401  (a temporary file)
    """Return the last line that a command wrote to stderr, as ` (line)` to be appended; empty if it wrote nothing."""
    size = error_output.seek(0, os.SEEK_END)
    error_output.seek(max(0, size - STDERR_BYTES))
    lines = error_output.read().decode(errors="replace").split("\n")
    last_line = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f" ({last_line})" if last_line else ""
