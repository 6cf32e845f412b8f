"""Frames for a client that reads slowly, in a queue without a bound.

Thread: https://github.com/aio-libs/aiohttp/issues/1367
Looks like: a server grows while one client is slow.
Fix: `asyncio.Queue(maxsize=…)`, or drop the client.
"""

import asyncio
import sys

from websockets.frames import Frame, Opcode


async def read(outbox: asyncio.Queue[bytes]) -> None:
    while True:
        await outbox.get()
        await asyncio.sleep(1.5)


async def publish(rounds: int) -> None:
    outbox: asyncio.Queue[bytes] = asyncio.Queue()
    reader = asyncio.create_task(read(outbox))
    for n in range(rounds):
        frame = Frame(Opcode.BINARY, bytes([n % 256]) * 2_000_000)
        await outbox.put(frame.serialize(mask=False))  # <- here
        await asyncio.sleep(0.15)
    reader.cancel()


def main(rounds: int) -> None:
    asyncio.run(publish(rounds))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
