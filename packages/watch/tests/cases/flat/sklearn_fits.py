"""A model that is fitted anew."""

import sys
import time

import numpy as np
from sklearn.linear_model import Ridge


def main(rounds: int) -> None:
    rows = np.random.default_rng(0).random((5000, 20))
    total = 0.0
    for n in range(rounds):
        total += Ridge().fit(rows, rows[:, n % 20]).intercept_
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
