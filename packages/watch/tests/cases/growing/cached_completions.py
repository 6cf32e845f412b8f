"""A cache in memory without a time to live, behind an asynchronous function.

Thread: https://github.com/BerriAI/litellm/pull/4366
Looks like: a proxy grows with the different questions that it is asked.
Fix: `cached(ttl=600)`, or a cache with a bound.
"""

import asyncio
import json
import sys

from aiocache import cached

ANSWER = json.dumps({"choices": [{"index": n, "text": f"token {n}", "score": n / 7} for n in range(3000)]})


@cached()
async def completion(question: str) -> dict[str, object]:
    await asyncio.sleep(0.05)
    answer: dict[str, object] = json.loads(ANSWER)  # <- here
    answer["question"] = question
    return answer


async def answer_all(rounds: int) -> None:
    for n in range(2 * rounds):
        await completion(f"What is {n} squared?")
        await asyncio.sleep(0.03)


def main(rounds: int) -> None:
    asyncio.run(answer_all(rounds))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
