"""A server that calls `gc.freeze()` after each batch, "so that the collector has less to look at".

Looks like: memory climbs with the batches, although the collector is on, and `gc.collect()` frees nothing.
Fix: call `gc.freeze()` once, right after `gc.collect()`, before the first batch; and hold the way back weakly.
"""

import gc
import sys
import time


class Request:
    def __init__(self, number: int) -> None:
        self.number = number
        self.body = bytearray(100_000)  # <- here
        self.answer = Answer(self)


class Answer:
    def __init__(self, request: Request) -> None:
        self.request = request


def main(rounds: int) -> None:
    for _ in range(8 * rounds):
        for number in range(10):
            Request(number)
            time.sleep(0.004)
        gc.freeze()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
