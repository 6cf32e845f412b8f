"""Work that threads do for an event loop which seldom runs: what they have to say waits in the loop.

Thread: https://github.com/python/cpython/issues/85865
Looks like: memory climbs with the jobs, although each was done long ago.
Fix: let the loop run (`await` between two jobs), instead of sleeping in it.
"""

import asyncio
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np


def measure(seed: int) -> np.ndarray:
    return np.full(60_000, float(seed))  # <- here


async def collect(rounds: int) -> None:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(2) as pool:
        for seed in range(rounds):
            loop.run_in_executor(pool, measure, seed)
            time.sleep(0.05)  # noqa: ASYNC251  (the leak: the loop has no turn)


def main(rounds: int) -> None:
    asyncio.run(collect(rounds))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
