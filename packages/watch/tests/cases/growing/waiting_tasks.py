"""A task for each request that waits for a stream that nobody closes.

Thread: https://github.com/modelcontextprotocol/python-sdk/issues/756
Looks like: a server grows with the requests; `asyncio.all_tasks()` grows too.
Fix: close the stream when the answer is sent.
"""

import asyncio
import sys

import anyio
import numpy as np


async def receive_loop(n: int, stream: object) -> None:
    body = np.full(300_000, float(n))  # <- here
    async for _ in stream:
        body += 1


async def serve(rounds: int) -> None:
    async with anyio.create_task_group() as group:
        for n in range(rounds):
            sender, stream = anyio.create_memory_object_stream(1)
            group.start_soon(receive_loop, n, stream)
            opened.append(sender)
            await asyncio.sleep(0.15)
        group.cancel_scope.cancel()


opened: list[object] = []


def main(rounds: int) -> None:
    asyncio.run(serve(rounds))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
