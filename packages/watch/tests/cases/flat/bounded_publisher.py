"""A producer that waits for its consumer."""

import asyncio
import sys


async def read(outbox: asyncio.Queue[bytes]) -> None:
    while True:
        await outbox.get()
        await asyncio.sleep(0.1)


async def publish(rounds: int) -> None:
    outbox: asyncio.Queue[bytes] = asyncio.Queue(maxsize=4)
    reader = asyncio.create_task(read(outbox))
    for n in range(rounds):
        await outbox.put(bytes([n % 256]) * 1_000_000)
        await asyncio.sleep(0.1)
    reader.cancel()


def main(rounds: int) -> None:
    asyncio.run(publish(rounds))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
