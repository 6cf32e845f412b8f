"""A pipeline that groups a new frame each time."""

import sys
import time

import numpy as np
import pandas as pd


def main(rounds: int) -> None:
    total = 0.0
    for n in range(rounds):
        frame = pd.DataFrame({"k": np.arange(100_000) % 7, "v": np.full(100_000, float(n))})
        total += float(frame.groupby("k").v.mean().sum())
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
