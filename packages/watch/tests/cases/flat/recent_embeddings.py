"""Embeddings of questions, the newest three hundred of which are kept by async_lru."""

import asyncio
import random
import sys

import numpy as np
from async_lru import alru_cache


@alru_cache(maxsize=300)
async def embedding(question: str) -> np.ndarray:
    await asyncio.sleep(0.005)
    return np.random.default_rng(len(question)).normal(size=(32, 384)).astype("float64")


async def answer_all(rounds: int) -> None:
    total = 0.0
    for n in range(rounds):
        asked = [f"question {random.randrange(2 * n + 60)} of somebody" for _ in range(3)]
        for values in await asyncio.gather(*map(embedding, asked)):
            total += float(values[0, 0])
        await asyncio.sleep(0.02)
    sys.stdout.write(f"{total:.1f}\n")


def main(rounds: int) -> None:
    random.seed(1)
    asyncio.run(answer_all(rounds))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 800)
