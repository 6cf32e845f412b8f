"""A class for each message, made at run time: the source of its methods stays in `linecache`, for tracebacks.

Thread: https://github.com/python-attrs/attrs/issues/826
Looks like: memory climbs with the messages, and no instance and no class of them is alive.
Fix: make each class once, and look it up by its fields; or `linecache.cache.pop` of the file that was made for it.
"""

import gc
import sys
import time

import attrs


def decode(n: int) -> object:
    fields = {f"value_{n}_{k}": attrs.field(default=k) for k in range(12)}
    return attrs.make_class(f"Message{n}", fields)()  # <- here


def main(rounds: int) -> None:
    for n in range(rounds):
        decode(n)
        if n % 20 == 0:
            gc.collect()
        time.sleep(0.005)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1200)
