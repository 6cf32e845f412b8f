"""An integration that registers its routes anew with each synchronisation.

Thread: https://github.com/port-labs/ocean/pull/1141
Looks like: a server grows with its synchronisations, and answers more slowly.
Fix: register the routes once, when the application is made.
"""

import sys
import time

from fastapi import FastAPI
from pydantic import BaseModel

KINDS = [f"kind{n}" for n in range(100)]


class Event(BaseModel):
    name: str
    number: int
    tags: list[str]


async def webhook(event: Event) -> Event:
    return event


def main(rounds: int) -> None:
    application = FastAPI()
    for _ in range(rounds):
        for kind in KINDS:
            application.add_api_route(f"/{kind}/webhook", webhook, methods=["POST"])  # <- here
        time.sleep(0.08)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
