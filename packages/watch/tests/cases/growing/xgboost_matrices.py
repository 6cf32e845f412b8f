"""A matrix of the library for each fold of each search, in a list.

Thread: https://github.com/dmlc/xgboost/issues/4843
Looks like: memory climbs with the folds; the list holds small Python objects.
Fix: build the matrix once, and `slice` it.
"""

import sys
import time

import numpy as np
import xgboost


def main(rounds: int) -> None:
    rows = np.random.default_rng(0).random((5_000, 60), dtype=np.float32)
    folds = []
    for fold in range(rounds):
        folds.append(xgboost.DMatrix(rows + fold, label=rows[:, 0], nthread=1))  # <- here
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
