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
    """A stream on the null device, in the place of a standard stream that was closed when the process began."""

    def __init__(self) -> None:
        super().__init__(open(os.devnull, "r+b", buffering=0), encoding="utf-8", errors="backslashreplace")  # noqa: PTH123, SIM115  (unbuffered, and closed with the stream)


def open_closed_descriptors() -> None:
    """Open closed descriptors of 0, 1 and 2 on the null device, and give Python the streams that it lacks.

    Processes that are started later inherit the descriptors. A descriptor that was closed may belong to a file of the
    program by now, so no stream is opened on it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # `open` takes the lowest free number, which is this descriptor.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003  (the C interface)
    # Python sets a stream to None if its descriptor was closed.
    sys.stdin = sys.stdin or NullStream()
    sys.stdout = sys.stdout or NullStream()
    sys.stderr = sys.stderr or NullStream()


def error_stream() -> TextIO:
    """Return the stream for a command's errors: stderr, or stdout if only stderr was closed."""
    only_stderr_was_closed = isinstance(sys.stderr, NullStream) and not isinstance(sys.stdout, NullStream)
    return sys.stdout if only_stderr_was_closed else sys.stderr


class TrackedStdout(io.TextIOWrapper):
    """Stdout that remembers why it failed; letters that its encoding lacks are written as their codes."""

    fault: OSError | None = None
    """The error of the first write or flush that failed; None before."""

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
        """Record an error of the block in `fault`, and raise it again."""
        try:
            yield
        except OSError as fault:
            self.fault = fault
            raise


@contextmanager
def track_stdout() -> Iterator[None]:
    """Replace stdout during the block by a `TrackedStdout` on the same file, which remembers an error of writing.

    A notebook's stream stays as it is.
    """
    stdout = sys.stdout
    if not isinstance(stdout, io.TextIOWrapper):  # the stream of a notebook
        yield
        return
    with suppress(OSError):
        stdout.flush()  # so that its lines come before those of the new stream
    # `strict` would raise an error for a letter that the encoding lacks.
    sys.stdout = tracked_stdout = TrackedStdout(
        stdout.buffer,
        stdout.encoding,
        "backslashreplace" if stdout.errors == "strict" else stdout.errors,
        line_buffering=stdout.line_buffering,
        write_through=stdout.write_through,
    )
    try:
        yield
    finally:
        sys.stdout = stdout
        flush_or_drop(tracked_stdout)
        tracked_stdout.detach()  # when the new stream is freed, it must not close the file, which is still stdout's


def output_error(fault: BaseException | None = None) -> OSError | None:
    """Return the error at which stdout failed; None if it works.

    Args:
        fault: error that ended the command, which is returned only if stdout has raised it; None if the command has
            ended without an error, and then stdout is flushed to see whether it works.
    """
    output = sys.stdout
    if fault is None:
        return flush_or_drop(output)
    return output.fault if isinstance(output, TrackedStdout) and output.fault is fault else None


def run_printing(command: Callable[[], int], report: Callable[[str], None]) -> int:
    """Run a command with `track_stdout`; if only its output has failed, say so on stderr.

    Args:
        command: prints its output, and returns its exit code.
        report: prints an error's message on stderr.

    Returns:
        The command's exit code if it is not 0; else 0 if all output was written, and the code of its failure if not.

    Raises:
        SystemExit: the command ended itself, with an exit code or with all of its output written.
    """
    code, fault = 0, None
    with track_stdout():
        try:
            code = command()
        except OSError as error:
            fault = output_error(error)
            if fault is None:  # something else than stdout has failed
                raise
        except SystemExit as exit_request:
            fault = output_error()
            if fault is None or exit_request.code:  # the command's own failure counts first
                raise
        else:
            fault = output_error()
    if fault is None or code:
        return code
    if isinstance(fault, BrokenPipeError):  # as in `... | head`, whose reader has seen enough
        return BROKEN_PIPE_STATUS
    report(f"stdout: {fault.strerror}. The output was lost. Send it somewhere else.")
    return FlatwaterError.exit_code


def flush_or_drop(stream: TextIO) -> OSError | None:
    """Flush a stream, or drop its buffer if that fails; return the error, or None."""
    try:
        stream.flush()
    except OSError as fault:
        redirect_to_null(stream)
        return fault
    return None


def redirect_to_null(stream: TextIO) -> None:
    """Point a stream's descriptor at the null device."""
    # The descriptor and not the object: Python flushes the buffer again when it ends, and must not fail again.
    null_descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_descriptor, stream.fileno())
    os.close(null_descriptor)


def surviving_stream(stream: TextIO) -> TextIO:
    """Return the stream, wrapped for a console that must not fail."""
    return cast("TextIO", SurvivingStream(stream))  # it has all that a console calls of a `TextIO`


class SurvivingStream:
    """A stream that prints to another stream until that fails, and drops everything from then on.

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
        """Return whether the stream is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the stream's descriptor."""
        return self._stream.fileno()

    def write(self, text: str) -> int:
        """Print a text, if that is possible; return its length in any case."""
        try:
            return self._stream.write(text)
        except OSError:
            redirect_to_null(self._stream)
        except RuntimeError:  # a signal handler prints amid another print: Python refuses to re-enter the buffer
            pass
        return len(text)

    def flush(self) -> None:
        """Write out the buffer, if that is possible."""
        try:
            self._stream.flush()
        except OSError:
            redirect_to_null(self._stream)
        except RuntimeError:  # as in `write`
            pass
