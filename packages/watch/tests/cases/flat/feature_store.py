"""The newest features of each user in LMDB, written again and again: a map of a few MiB."""

import sys
import tempfile
import time

import lmdb
import numpy as np


def main(rounds: int) -> None:
    maker = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder, lmdb.open(folder, map_size=512 << 20, sync=False) as store:
        for n in range(rounds):
            with store.begin(write=True) as batch:
                for user in maker.integers(0, 4000, 80):
                    batch.put(b"user-%d" % user, maker.normal(size=256).astype("float32").tobytes())
            with store.begin() as reader:
                for user in range(n % 50, 4000, 50):
                    value = reader.get(b"user-%d" % user)
                    assert value is None or len(value) == 1024
            time.sleep(0.02)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 800)
