"""A perceptron in NumPy alone: temporaries of several sizes come and go, the weights are written in place."""

import sys
import time

import numpy as np


def main(rounds: int) -> None:
    generator = np.random.default_rng(0)
    weights = generator.standard_normal((256, 64)) * 0.1
    for _ in range(rounds):
        for _ in range(60):
            x = generator.standard_normal((generator.integers(100, 200), 256))
            y = np.tanh(x @ weights)
            weights -= 1e-3 * x.T @ (y * (1 - y**2)) / len(x)
        time.sleep(0.8)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
