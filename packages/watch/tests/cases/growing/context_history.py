"""A trace in a context variable of the main task, which each request extends.

Thread: https://github.com/hynek/structlog/issues/591
Looks like: no variable of any module grows.
Fix: reset the variable with the token that `set` returned.
"""

import sys
import time
from contextvars import ContextVar

import numpy as np

trace: ContextVar[tuple[object, ...]] = ContextVar("trace", default=())


def request(n: int) -> None:
    body = np.full(300_000, float(n))  # <- here
    trace.set((*trace.get(), body))


def main(rounds: int) -> None:
    for n in range(rounds):
        request(n)
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
