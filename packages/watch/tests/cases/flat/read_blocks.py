"""A long file of which blocks are read over and over, through a cache that holds some and is full after a second."""

import sys
import time

import fsspec

BLOCK = 2**18


def main(rounds: int) -> None:
    store = fsspec.filesystem("memory")
    store.pipe("/archive/readings", bytes(64 * BLOCK))
    total = 0
    with store.open("/archive/readings") as archive:
        blocks = fsspec.caching.BlockCache(
            BLOCK, lambda start, end: store.cat_file(archive.path, start, end), 64 * BLOCK, 16
        )
        for n in range(rounds):
            for part in range(4):
                start = (4 * n + part) % 64 * BLOCK
                total += len(blocks._fetch(start, start + 100))
            time.sleep(0.14)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
