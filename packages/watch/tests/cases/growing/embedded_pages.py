"""A crawler that turns pages into vectors in two worker processes, which keep the vectors.

Thread: https://github.com/sybrenjansen/mpire/issues/73
Looks like: the machine fills, though the crawler's own process stays as it is.
Cause: `worker_state` is a dict that lives as long as its worker, and each page is a new key.
Fix: a bound on `worker_state`, or `pool.map(..., worker_lifespan=200)`.
"""

import sys
import time

import numpy as np
from mpire import WorkerPool


def embed(worker_state, page):
    if page not in worker_state:
        seed = abs(hash(page)) % 2**32
        worker_state[page] = np.random.default_rng(seed).normal(size=6000)  # <- here
    return float(worker_state[page].mean())


def crawl(rounds, pages=16):
    scores = []
    with WorkerPool(n_jobs=2, use_worker_state=True, keep_alive=True) as pool:
        for number in range(rounds):
            batch = [f"https://example.org/{number}/{page}" for page in range(pages)]
            scores.append(max(pool.map(embed, batch)))
            time.sleep(0.1)
    return max(scores)


def main(rounds: int) -> None:
    print("best score", crawl(rounds))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 110)
