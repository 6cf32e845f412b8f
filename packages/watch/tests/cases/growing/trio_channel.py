"""An unbounded channel between two tasks, of which the second is slower.

Thread: https://github.com/python-trio/trio/issues/719
Looks like: a pipeline grows while its source is faster than its sink.
Fix: `open_memory_channel(10)`, so that the source waits.
"""

import math
import sys

import numpy as np
import trio


async def produce(sender: trio.MemorySendChannel, rounds: int) -> None:
    async with sender:
        for n in range(rounds):
            frame = np.full(400_000, float(n))  # <- here
            await sender.send(frame)
            await trio.sleep(0.15)


async def consume(receiver: trio.MemoryReceiveChannel, rounds: int) -> None:
    with trio.move_on_after(0.15 * rounds):
        async for _ in receiver:
            await trio.sleep(1.5)


async def pipeline(rounds: int) -> None:
    async with trio.open_nursery() as nursery:
        sender, receiver = trio.open_memory_channel(math.inf)
        nursery.start_soon(produce, sender, rounds)
        nursery.start_soon(consume, receiver, rounds)


if __name__ == "__main__":
    trio.run(pipeline, int(sys.argv[1]) if len(sys.argv) > 1 else 60)
