"""One booster for each target, each with a copy of its training set.

Thread: https://github.com/lightgbm-org/LightGBM/issues/350
Looks like: each model adds megabytes, of which Python objects explain nothing.
Fix: `free_dataset()`, or keep `model_to_string()`.
"""

import sys
import time

import lightgbm
import numpy as np


def main(rounds: int) -> None:
    rows = np.random.default_rng(0).random((20_000, 60))
    boosters = []
    for target in range(rounds):
        data = lightgbm.Dataset(rows, rows[:, target % 60], free_raw_data=True)
        settings = {"verbosity": -1, "num_threads": 1, "num_leaves": 4}
        boosters.append(lightgbm.train(settings, data, 1, keep_training_booster=True))  # <- here
        time.sleep(0.1)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
