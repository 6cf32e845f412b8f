"""A text stream that outlives its reader: no line that cannot be shown may end a run of days."""

import os
from collections.abc import Iterable
from typing import TextIO, cast


def lasting(stream: TextIO) -> TextIO:
    """The stream, for a console that must not fail."""
    return cast("TextIO", Lasting(stream))  # what a console uses of a stream


class Lasting:
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
            self._leave()
        except (
            RuntimeError
        ):  # a signal came within a print, and its handler prints: the buffer refuses to be re-entered
            pass
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Print each."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Have what was printed shown, where that is possible."""
        try:
            self._stream.flush()
        except OSError:
            self._leave()
        except RuntimeError:  # as in `write`
            pass

    def _leave(self) -> None:
        """Let the descriptor lead nowhere, for what waits in the stream's buffer as well, which is tried once more."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
