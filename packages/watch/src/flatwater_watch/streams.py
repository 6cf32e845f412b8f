"""The three streams of a process as they may be: closed, full, without a reader, or of an encoding that lacks letters.

A descriptor of 0, 1 or 2 that is closed is given to the next file that is opened, and then a print, or what a library
of C says, goes into a checkpoint. So a command takes the closed ones first, before it opens anything.
"""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO, cast


class NullStream(io.TextIOWrapper):
    """A stream in the place of one that was closed when the process began."""

    def __init__(self) -> None:
        """Open it."""
        super().__init__(open(os.devnull, "r+b", buffering=0), encoding="utf-8", errors="backslashreplace")  # noqa: PTH123, SIM115


def fill_closed() -> None:
    """Let descriptors 0, 1 and 2 lead to nowhere where they are closed, and Python's streams where it has none.

    What is started later inherits them: nothing is read there, and what is written is gone. A descriptor that was
    closed may belong to a file of the program's by now, so no stream is opened on it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003  # the lowest that is free: this one
    sys.stdin, sys.stdout, sys.stderr = (stream or NullStream() for stream in (sys.stdin, sys.stdout, sys.stderr))


def error_stream() -> TextIO:
    """Where a command says why it fails: stderr; stdout where stderr was closed, or else nobody would know."""
    unheard = isinstance(sys.stderr, NullStream) and not isinstance(sys.stdout, NullStream)
    return sys.stdout if unheard else sys.stderr


class TrackedStdout(io.TextIOWrapper):
    """Stdout, of which is known why it took no more; letters that its encoding lacks are written as their codes."""

    fault: OSError | None = None
    """Why it took no more."""

    def write(self, text: str) -> int:
        """Print."""
        with self._remember_fault():
            return super().write(text)

    def flush(self) -> None:
        """Have what was printed shown."""
        with self._remember_fault():
            super().flush()

    @contextmanager
    def _remember_fault(self) -> Iterator[None]:
        try:
            yield
        except OSError as fault:
            self.fault = fault
            raise


@contextmanager
def own_output() -> Iterator[None]:
    """Have an `Output` in the place of stdout, on the same file."""
    before = sys.stdout
    if not isinstance(before, io.TextIOWrapper):  # a notebook's
        yield
        return
    with suppress(OSError):
        before.flush()
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
        output.detach()


def output_error(fault: BaseException | None = None) -> OSError | None:
    """Why stdout takes no more; None where it does, or where it is another error that has ended the command."""
    output = sys.stdout
    if fault is not None:
        return output.fault if isinstance(output, TrackedStdout) and output.fault is fault else None
    return flush_or_drop(output)


def flush_or_drop(stream: TextIO) -> OSError | None:
    """Try what waits in a stream's buffer once more, and no more after that. Returns why it is not taken."""
    try:
        stream.flush()
    except OSError as fault:
        lead_nowhere(stream)
        return fault
    return None


def lead_nowhere(stream: TextIO) -> None:
    """Let a stream's descriptor lead nowhere, for what waits in its buffer too: Python tries it again when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def surviving_stream(stream: TextIO) -> TextIO:
    """The stream, for a console that must not fail."""
    return cast("TextIO", SurvivingStream(stream))  # what a console uses of a stream


class SurvivingStream:
    """Prints to a stream until that fails, and to nowhere from then on.

    A terminal that was closed answers EIO, a pipe whose reader has gone EPIPE, a log file on a full disk ENOSPC. What
    a run says is in its folder as well.
    """

    def __init__(self, stream: TextIO) -> None:
        """Print to `stream`."""
        self._stream = stream

    @property
    def encoding(self) -> str:
        """Of the stream."""
        return self._stream.encoding

    def isatty(self) -> bool:
        """Whether a terminal shows it."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """The stream's descriptor."""
        return self._stream.fileno()

    def write(self, text: str) -> int:
        """Print, where that is possible."""
        try:
            return self._stream.write(text)
        except OSError:
            lead_nowhere(self._stream)
        except RuntimeError:  # a handler prints while a signal interrupts a print: the buffer is not to be re-entered
            pass
        return len(text)

    def flush(self) -> None:
        """Have what was printed shown, where that is possible."""
        try:
            self._stream.flush()
        except OSError:
            lead_nowhere(self._stream)
        except RuntimeError:  # as in `write`
            pass
