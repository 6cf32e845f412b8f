"""A server of uploads: a job for each waits until the client confirms it, and most clients do not.

Thread: https://github.com/aio-libs/aiojobs/issues/98, https://github.com/aio-libs/aiojobs/pull/135
Looks like: memory climbs with the uploads, though the few that are stored take none.
Cause: a job that waits for ever stays among the scheduler's jobs, with the body that it was given.
Fix: `asyncio.timeout` around the wait, or `job.close()` when the client is gone.
"""

import asyncio
import sys

import aiojobs


class Upload:
    def __init__(self, number, body):
        self.number = number
        self.body = body
        self.confirmed = asyncio.Event()


async def store_when_confirmed(upload, stored):
    await upload.confirmed.wait()
    stored[upload.number] = len(upload.body)


async def take(uploads):
    scheduler = aiojobs.Scheduler(limit=None)
    stored = {}
    for number in range(uploads):
        upload = Upload(number, bytes([number % 256]) * 220_000)  # <- here
        await scheduler.spawn(store_when_confirmed(upload, stored))
        if number % 10 == 0:
            upload.confirmed.set()
        await asyncio.sleep(0.05)
    print(len(stored), "uploads stored")
    await scheduler.close()


def main(uploads: int) -> None:
    asyncio.run(take(uploads))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
