"""Products of one country after the other, each country in fresh worker processes of billiard, which end with it."""

import sys
import time

import numpy as np
from billiard import Pool

COUNTRIES = ["nl", "be", "de", "fr", "dk", "se"]
tables: dict[int, np.ndarray] = {}


def table(group: int) -> np.ndarray:
    if group not in tables:
        tables[group] = np.random.default_rng(group).random((300, 300))
    return tables[group]


def best_product(group: int) -> int:
    return int(table(group).sum(axis=0).argmax())


def rank(rounds: int) -> list[int]:
    best: list[int] = []
    with Pool(2) as pool:
        for batch in range(rounds):
            group = 4 * batch % 40
            best += pool.map(best_product, range(group, group + 4))
            time.sleep(0.1)
    return best


def main(rounds: int) -> None:
    for country in COUNTRIES:
        best = rank(rounds)
        sys.stdout.write(f"{country}: {len(best)} groups, first {best[:4]}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 19)
