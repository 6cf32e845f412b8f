"""A timeout for each request in uvloop, which is not cancelled when the answer is there.

Thread: https://github.com/MagicStack/uvloop/issues/239
Looks like: a service keeps each request for an hour; with asyncio's own loop the timers were easy to find.
Fix: keep what `call_later` returns, and `cancel()` it.
"""

import asyncio
import sys

import uvloop


def give_up(request: bytearray) -> None:
    request.clear()


async def handle(loop: asyncio.AbstractEventLoop, n: int) -> None:
    request = bytearray(300_000)
    loop.call_later(3600 + n, give_up, request)  # <- here


async def serve(rounds: int) -> None:
    loop = asyncio.get_running_loop()
    for n in range(rounds):
        for k in range(4):
            await handle(loop, 4 * n + k)
        await asyncio.sleep(0.12)


def main(rounds: int) -> None:
    uvloop.run(serve(rounds))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
