"""Frames of a loop in a list, for a report at the end.

Thread: https://github.com/pola-rs/polars/issues/20883
Looks like: memory climbs with the batches; the list holds small objects.
Fix: aggregate each frame, and keep the row.
"""

import sys
import time

import numpy as np
import polars as pl


def main(rounds: int) -> None:
    frames = []
    for n in range(rounds):
        frame = pl.DataFrame({"value": np.full(200_000, float(n))})
        frames.append(frame.with_columns(square=pl.col("value") ** 2))  # <- here
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
