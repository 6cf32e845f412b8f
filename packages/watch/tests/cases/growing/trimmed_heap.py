"""Records that are read in between those that are kept, in a program that gives the holes back itself.

Thread: https://github.com/python/cpython/issues/109534
Looks like: the allocator holds a great deal of freed memory, but little of it is resident: what is kept is what grows.
Fix: keep the numbers of a record, not the record.
"""

import ctypes
import sys
import time

libc = ctypes.CDLL(None)


class Reader:
    def __init__(self) -> None:
        self.examples: list[bytes] = []

    def read(self) -> int:
        size = 0
        records = []
        for n in range(1000):
            records.append(bytes(24_000))
            if n % 16 == 0:
                self.examples.append(bytes(24_000))  # <- here
            size += len(records[-1])
        records.clear()
        libc.malloc_trim(0)
        return size


def main(rounds: int) -> None:
    reader = Reader()
    for _ in range(rounds):
        reader.read()
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
