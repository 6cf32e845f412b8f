"""A retry loop that keeps the last error: the error holds its traceback, that the frame, and the frame the error.

Looks like: memory climbs with the calls that failed; the collector, told to be seldom, has not come to them.
Fix: `del error` in a `finally`, or keep `str(error)`: then the frame goes with the call.
"""

import gc
import sys
import time

import numpy as np


def answer(call: int, body: np.ndarray) -> None:
    raise TimeoutError(f"call {call} of {len(body)}")


class Client:
    def __init__(self) -> None:
        self.failed = 0

    def fetch(self, call: int) -> bool:
        body = np.full(150_000, float(call))  # <- here
        error = None
        try:
            answer(call, body)
        except TimeoutError as raised:
            error = raised
        self.failed += error is not None
        return self.failed > call


def main(rounds: int) -> None:
    gc.set_threshold(100_000, 50, 100)  # "pauses hurt the latency"
    client = Client()
    for call in range(20 * rounds):
        client.fetch(call)
        time.sleep(0.02)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
