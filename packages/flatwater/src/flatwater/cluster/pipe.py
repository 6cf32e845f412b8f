"""Messages over a pair of sockets; an end that waits calls a check now and then, also within a message."""

import socket
from collections.abc import Callable

_LENGTH_BYTES = 8
"""Size of the number before each message, which is the message's length in bytes."""


class Pipe:
    """One end of a pair of sockets."""

    def __init__(self, end: socket.socket, on_wait: Callable[[], None] | None = None, seconds: float = 1.0) -> None:
        """Take over one end of a socket pair.

        Args:
            end: the socket; closed with the pipe.
            on_wait: called each time that nothing was received or sent for `seconds`; None to wait without limit.
            seconds: time between two calls of `on_wait`.
        """
        self._socket, self._on_wait = end, on_wait
        end.settimeout(None if on_wait is None else seconds)

    def send(self, message: bytes) -> None:
        """Send the length of a message, a big-endian number of _LENGTH_BYTES, and then the whole message.

        Raises:
            OSError: the other end is closed, or this end is shut down.
        """
        self._write(len(message).to_bytes(_LENGTH_BYTES))
        self._write(message)

    def receive(self) -> bytearray:
        """Wait for the next message, and return it.

        Raises:
            OSError, EOFError: the other end is closed, or this end is shut down.
        """
        length = int.from_bytes(self._read(_LENGTH_BYTES))
        return self._read(length)

    def shut_down(self) -> None:
        """Stop sending and receiving, even if a forked process still has the other end open."""
        self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def _write(self, message: bytes) -> None:
        """Write the whole message, buffer by buffer."""
        remaining = memoryview(message)
        while remaining:
            sent_bytes = self._move_bytes(self._socket.send, remaining)
            remaining = remaining[sent_bytes:]

    def _read(self, count: int) -> bytearray:
        """Return exactly `count` bytes.

        Raises:
            EOFError: the other end is closed before all of them have arrived.
        """
        buffer = bytearray(count)  # filled in place: a message of a gigabyte is not joined from pieces
        remaining = memoryview(buffer)
        while remaining:
            received_bytes = self._move_bytes(self._socket.recv_into, remaining)
            if not received_bytes:
                raise EOFError
            remaining = remaining[received_bytes:]
        return buffer

    def _move_bytes(self, move: Callable[[memoryview], int], buffer: memoryview) -> int:
        """Call a socket's `send` or `recv_into` until it moves bytes of `buffer`, and return how many it moved."""
        while True:
            try:
                return move(buffer)
            except TimeoutError:  # an `on_wait` that finds the other end dead shuts this end down, which ends the loop
                if self._on_wait is not None:
                    self._on_wait()
