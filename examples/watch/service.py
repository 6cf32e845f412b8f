"""A service that keeps every answer: a leak to try the finder on.

    flatwater-watch run -- python examples/watch/service.py

docs/watch/first-watch.md reads what it prints, and mends the program.
"""

import time

ANSWERS: dict[int, bytes] = {}


def answer(request: int) -> None:
    """Answer one request, in the time that real work would take."""
    ANSWERS[request] = bytes(200_000)
    time.sleep(0.01)


for number in range(300):
    answer(number)
