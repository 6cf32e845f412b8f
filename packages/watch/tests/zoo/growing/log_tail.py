"""A protocol of asyncio that keeps each piece of a log that arrives; the loop makes the pieces.

Looks like: the program is in `asyncio.run` all the time, and no line of its own makes the bytes.
Fix: keep the last pieces, `collections.deque(maxlen=100)`.
"""

import asyncio
import random
import socket
import sys
import threading
import time

TAILS = []


class Tail(asyncio.Protocol):
    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.lines = 0

    def data_received(self, data: bytes) -> None:
        self.lines += data.count(b"\n")
        self.parts.append(data)  # <- here


def send_log(connection: socket.socket, end: float) -> None:
    while time.monotonic() < end:
        connection.sendall(random.randbytes(20_000))
        time.sleep(0.005)
    connection.close()


async def follow(seconds: int) -> None:
    near, far = socket.socketpair()
    threading.Thread(target=send_log, args=(near, time.monotonic() + seconds), daemon=True).start()
    tail = Tail()
    TAILS.append(tail)
    await asyncio.get_running_loop().create_connection(lambda: tail, sock=far)
    await asyncio.sleep(seconds)


if __name__ == "__main__":
    asyncio.run(follow(int(sys.argv[1]) if len(sys.argv) > 1 else 12))
