"""Messages over a pair of sockets; a waiting end checks the other now and then, also within a message."""

import socket
from collections.abc import Callable

_LENGTH_BYTES = 8
"""Bytes that say how many follow."""


class Pipe:
    """One end of a pair of sockets."""

    def __init__(self, end: socket.socket, on_wait: Callable[[], None] | None = None, seconds: float = 1.0) -> None:
        """Take the end over.

        Args:
            end: one end of a socket pair; closed with the pipe.
            on_wait: called as often as nothing came or went for `seconds`; left out, the pipe waits for the other end.
            seconds: time between two calls of `on_wait`.
        """
        self._socket, self._on_wait = end, on_wait
        end.settimeout(None if on_wait is None else seconds)

    def send(self, message: bytes) -> None:
        """Send the whole message after its length, a big-endian number of _LENGTH bytes.

        Raises:
            OSError: nobody is at the other end, or this end is cut.
        """
        self._write(len(message).to_bytes(_LENGTH_BYTES))
        self._write(message)

    def receive(self) -> bytearray:
        """Return the oldest message.

        Raises:
            OSError, EOFError: nobody is at the other end, or this end is cut.
        """
        return self._read(int.from_bytes(self._read(_LENGTH_BYTES)))

    def shut_down(self) -> None:
        """End sending, and take no more than has come, whoever else has the other end open."""
        self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def _write(self, message: bytes) -> None:
        """Write the whole message, piece by piece."""
        remaining = memoryview(message)
        while remaining:
            remaining = remaining[self._transfer_piece(self._socket.send, remaining) :]

    def _read(self, count: int) -> bytearray:
        """Return exactly `count` bytes.

        Raises:
            EOFError: the other end closes before they are there.
        """
        buffer = bytearray(count)  # filled in place: a message of a gigabyte is not joined from pieces
        remaining = memoryview(buffer)
        while remaining:
            received = self._transfer_piece(self._socket.recv_into, remaining)
            if not received:
                raise EOFError
            remaining = remaining[received:]
        return buffer

    def _transfer_piece(self, move: Callable[[memoryview], int], piece: memoryview) -> int:
        """Move as many bytes as go at once, waiting for the first."""
        while True:
            try:
                return move(piece)
            # Nothing moved for `seconds`: a `look` that finds the other end dead shuts this end down.
            except TimeoutError:
                if self._on_wait is not None:
                    self._on_wait()
