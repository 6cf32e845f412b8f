"""A forest that is fitted again with `warm_start`, and gets more trees each time.

Thread: https://github.com/scikit-learn/scikit-learn/issues/5385
Looks like: each fit adds memory.
Fix: fit anew, or bound `n_estimators`.
"""

import sys
import time

import numpy as np
from sklearn.ensemble import RandomForestRegressor


def main(rounds: int) -> None:
    source = np.random.default_rng(0)
    rows, targets = source.random((6000, 4)), source.random(6000)
    forest = RandomForestRegressor(n_estimators=0, warm_start=True, max_features=1)
    for _ in range(rounds):
        forest.n_estimators += 3
        forest.fit(rows, targets)  # <- here
        time.sleep(0.05)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
