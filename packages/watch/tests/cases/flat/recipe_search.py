"""Vectors of recipes, loaded shard by shard, then searched by scikit-learn."""

import sys
import time

import numpy as np
from sklearn.neighbors import NearestNeighbors

SHARDS = 25


def load_shard(number: int) -> np.ndarray:
    time.sleep(0.1)
    return np.random.default_rng(number).random((2000, 96), dtype=np.float32)


class Recipes:
    def __init__(self) -> None:
        self.shards: list[np.ndarray] = []

    def load(self) -> None:
        for number in range(SHARDS):
            self.shards.append(load_shard(number))
        sys.stdout.write(f"{sum(len(shard) for shard in self.shards)} recipes\n")

    def search(self, wanted: np.ndarray, shard: int) -> tuple[float, int]:
        nearest = NearestNeighbors(n_neighbors=5, algorithm="brute").fit(self.shards[shard])
        distances, rows = nearest.kneighbors(wanted[None])
        return float(distances[0, 0]), int(rows[0, 0])


def main(searches: int) -> None:
    recipes = Recipes()
    recipes.load()
    draw = np.random.default_rng(77)
    for number in range(searches):
        distance, row = recipes.search(draw.random(96, dtype=np.float32), number % SHARDS)
        if number % 40 == 0:
            sys.stdout.write(f"search {number}: recipe {row} at {distance:.3f}\n")
        time.sleep(0.04)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 190)
