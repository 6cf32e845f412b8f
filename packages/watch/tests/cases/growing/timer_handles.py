"""A timer for each request, that is not cancelled when the answer was sent.

Thread: https://github.com/ArchiveTeam/wpull/issues/166
Looks like: a crawler grows with its requests; most objects of the new ones are handles of timers.
Fix: `handle.cancel()` when the answer is there.
"""

import asyncio
import sys


class Request:
    def __init__(self, url: str) -> None:
        self.url = url
        self.headers = {f"X-Header-{n}": f"{url}#{n}" for n in range(60)}  # <- here

    def give_up(self) -> None:
        self.headers.clear()


async def crawl(rounds: int) -> None:
    loop = asyncio.get_running_loop()
    for n in range(rounds):
        for page in range(200):
            request = Request(f"http://example.com/{n}/{page}")
            loop.call_later(3600, request.give_up)
        await asyncio.sleep(0.13)


def main(rounds: int) -> None:
    asyncio.run(crawl(rounds))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
