"""Bootstrap samples by joblib, whose workers stay for the next call."""

import sys
import time

import numpy as np
from joblib import Parallel, delayed


def estimate(values: np.ndarray, seed: int) -> float:
    maker = np.random.default_rng(seed)
    sample = values[maker.integers(0, len(values), len(values))]
    return float(np.median(sample))


def main(rounds: int) -> None:
    values = np.random.default_rng(1).normal(size=120_000)
    spreads = np.zeros(64)
    for n in range(rounds):
        medians = Parallel(n_jobs=2)(delayed(estimate)(values + n % 3, seed) for seed in range(8))
        spreads[n % 64] = np.std(medians)
        time.sleep(0.1)
    sys.stdout.write(f"{spreads.mean():.4f}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 120)
