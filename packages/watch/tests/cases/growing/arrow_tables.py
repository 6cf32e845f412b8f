"""Tables of a stream, kept by a writer that is never flushed.

Thread: https://github.com/apache/arrow/issues/36100
Looks like: memory climbs with the tables; the list holds small objects.
Fix: write each table, and drop it.
"""

import sys
import time

import pyarrow as pa


class Writer:
    def __init__(self) -> None:
        self.waiting: list[pa.Table] = []

    def add(self, n: int) -> None:
        column = pa.array(range(n, n + 250_000), pa.int64())  # <- here
        self.waiting.append(pa.table({"value": column}))


def main(rounds: int) -> None:
    writer = Writer()
    for n in range(rounds):
        writer.add(n)
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
