"""A pipeline of lazy frames."""

import sys
import time

import numpy as np
import polars as pl


def main(rounds: int) -> None:
    total = 0.0
    for n in range(rounds):
        frame = pl.DataFrame({"v": np.full(100_000, float(n))}).lazy()
        total += frame.select(pl.col("v").sum()).collect().item()
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
