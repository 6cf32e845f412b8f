"""Tasks that are kept so that nobody collects them, and are never let go.

Thread: https://github.com/python/cpython/issues/91887
Looks like: finished tasks stay, with what they returned.
Fix: `task.add_done_callback(running.discard)`.
"""

import asyncio
import sys

import numpy as np


class Dispatcher:
    def __init__(self) -> None:
        self.running: set[asyncio.Task[object]] = set()

    async def render(self, n: int) -> object:
        await asyncio.sleep(0.01)
        return np.full(300_000, float(n))  # <- here

    def submit(self, n: int) -> None:
        self.running.add(asyncio.create_task(self.render(n)))


async def serve(rounds: int) -> None:
    dispatcher = Dispatcher()
    for n in range(rounds):
        dispatcher.submit(n)
        await asyncio.sleep(0.15)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]) if len(sys.argv) > 1 else 60))
