"""The three streams of a process in any state: closed, full, without a reader, or with an encoding that lacks letters.

A closed descriptor of 0, 1 or 2 is given to the next file that is opened, and then a print, or a message of a C
library, goes into a checkpoint. So a command opens the closed descriptors first, before anything else.
"""

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO, cast

from flatwater_watch.errors import FlatwaterError

BROKEN_PIPE_STATUS = 141
"""Exit code if nobody reads stdout any more: 128 + SIGPIPE, as a shell has it."""


class NullStream(io.TextIOWrapper):
    """A stream in the place of a stream that was closed when the process began."""

    def __init__(self) -> None:
        super().__init__(open(os.devnull, "r+b", buffering=0), encoding="utf-8", errors="backslashreplace")  # noqa: PTH123, SIM115  (unbuffered, and closed with the stream)


def fill_closed() -> None:
    """Open closed descriptors of 0, 1 and 2 on the null device, and give Python the streams that it lacks.

    Processes that are started later inherit the descriptors. A descriptor that was closed may belong to a file of the
    program by now, so no stream is opened on it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003  (the lowest free number, which is this descriptor)
    sys.stdin, sys.stdout, sys.stderr = (stream or NullStream() for stream in (sys.stdin, sys.stdout, sys.stderr))


def error_stream() -> TextIO:
    """The stream for a command's errors: stderr, or stdout if stderr was closed, as nobody would see them else."""
    unheard = isinstance(sys.stderr, NullStream) and not isinstance(sys.stdout, NullStream)
    return sys.stdout if unheard else sys.stderr


class TrackedStdout(io.TextIOWrapper):
    """Stdout that remembers why it failed; letters that its encoding lacks are written as their codes."""

    fault: OSError | None = None
    """The error at which it failed; None before."""

    def write(self, text: str) -> int:
        """Print a text."""
        with self._remember_fault():
            return super().write(text)

    def flush(self) -> None:
        """Write out the buffer."""
        with self._remember_fault():
            super().flush()

    @contextmanager
    def _remember_fault(self) -> Iterator[None]:
        """Keep an error of the block in `fault`, and raise it on."""
        try:
            yield
        except OSError as fault:
            self.fault = fault
            raise


@contextmanager
def own_output() -> Iterator[None]:
    """Put a `TrackedStdout` on the same file in the place of stdout, for the block."""
    before = sys.stdout
    if not isinstance(before, io.TextIOWrapper):  # a notebook's
        yield
        return
    with suppress(OSError):
        before.flush()  # else its lines would come after those of the new stream
    errors = "backslashreplace" if before.errors == "strict" else before.errors
    line, through = before.line_buffering, before.write_through
    sys.stdout = output = TrackedStdout(
        before.buffer, before.encoding, errors, line_buffering=line, write_through=through
    )
    try:
        yield
    finally:
        sys.stdout = before
        flush_or_drop(output)
        output.detach()  # else its end would close the file, which stdout still has


def output_error(fault: BaseException | None = None) -> OSError | None:
    """The error at which stdout failed; None if it works, or if another error has ended the command."""
    output = sys.stdout
    if fault is not None:
        return output.fault if isinstance(output, TrackedStdout) and output.fault is fault else None
    return flush_or_drop(output)


def run_printing(command: Callable[[], int], report: Callable[[str], None]) -> int:
    """Run a command with `own_output`; if stdout has failed and the command has not, say so on stderr.

    Args:
        command: prints its output, and returns its exit code.
        report: prints an error's message on stderr.

    Returns:
        The command's exit code if it is not 0; else that of the output, 0 if all of it was written.

    Raises:
        SystemExit: the command ended itself, with an exit code or with all of its output written.
    """
    code, fault = 0, None
    with own_output():
        try:
            code = command()
        except OSError as error:
            fault = output_error(error)
            if fault is None:
                raise
        except SystemExit as exit_request:
            fault = output_error()
            if fault is None or exit_request.code:
                raise
        else:
            fault = output_error()
    if fault is None or code:
        return code
    if isinstance(fault, BrokenPipeError):  # `... | head`: the reader has seen enough
        return BROKEN_PIPE_STATUS
    report(f"stdout: {fault.strerror}. The output was lost. Send it somewhere else.")
    return FlatwaterError.exit_code


def flush_or_drop(stream: TextIO) -> OSError | None:
    """Write out a stream's buffer, or drop it if that fails; return the error, or None."""
    try:
        stream.flush()
    except OSError as fault:
        lead_nowhere(stream)
        return fault
    return None


def lead_nowhere(stream: TextIO) -> None:
    """Lead a stream's descriptor to the null device."""
    # The descriptor, not the object: Python flushes the buffer again when it ends, and would fail again.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def surviving_stream(stream: TextIO) -> TextIO:
    """The stream, wrapped for a console that must not fail."""
    return cast("TextIO", SurvivingStream(stream))  # what a console uses of a stream


class SurvivingStream:
    """Prints to a stream until that fails, and to nowhere from then on.

    A terminal that was closed answers EIO, a pipe without a reader EPIPE, a log file on a full disk ENOSPC. The lines
    of a run are in its folder as well.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:
        """Encoding of the stream."""
        return self._stream.encoding

    def isatty(self) -> bool:
        """Whether the stream is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """The stream's descriptor."""
        return self._stream.fileno()

    def write(self, text: str) -> int:
        """Print a text, if that is possible."""
        try:
            return self._stream.write(text)
        except OSError:
            lead_nowhere(self._stream)
        except RuntimeError:  # a handler prints while a signal interrupts a print: the buffer is not to be re-entered
            pass
        return len(text)

    def flush(self) -> None:
        """Write out the buffer, if that is possible."""
        try:
            self._stream.flush()
        except OSError:
            lead_nowhere(self._stream)
        except RuntimeError:  # as in `write`
            pass
