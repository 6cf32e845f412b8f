"""Rules that analysts type in, each a new expression, evaluated by numexpr, whose caches are bounded."""

import random
import sys

import numexpr
import numpy as np

COLUMNS = ["height", "weight", "age", "income"]


def write_rule() -> str:
    terms = [f"{random.uniform(-2, 2):.6f} * {random.choice(COLUMNS)} ** {random.randint(1, 3)}" for _ in range(5)]
    return " + ".join(terms) + f" > {random.uniform(-1, 1):.4f}"


def main(reports: int) -> None:
    numexpr.set_num_threads(1)
    random.seed(9)
    maker = np.random.default_rng(9)
    table = {name: maker.random(60_000) for name in COLUMNS}
    matches = 0
    for _ in range(reports):
        for _ in range(9):
            matches += int(numexpr.evaluate(write_rule(), local_dict=table).sum())
    sys.stdout.write(f"matches: {matches}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
