"""Messages of customers, turned into vectors by worker processes.

Thread: https://github.com/celery/celery/issues/4125, https://github.com/ucam-department-of-psychiatry/camcops/issues/280
Looks like: the workers grow with the messages, and the process that started them stays as it is.
Cause: each worker keeps the vector of every sentence that it met, and most sentences come once.
Fix: `functools.lru_cache(maxsize=1000)` on `vector`, or `maxtasksperchild=` of the pool.
"""

import hashlib
import random
import sys
import time

import numpy as np
from billiard import Pool

TOPICS = ["delivery", "invoice", "return", "login", "warranty"]
vectors: dict[str, np.ndarray] = {}


def vector(sentence: str) -> np.ndarray:
    if sentence not in vectors:
        seed = int.from_bytes(hashlib.sha256(sentence.encode()).digest()[:8], "little")  # <- or here
        vectors[sentence] = np.random.default_rng(seed).standard_normal(1600)  # <- here
    return vectors[sentence]  # <- or here


def mean_vector(sentences: list[str]) -> list[float]:
    rows = [vector(sentence) for sentence in sentences]
    return np.mean(rows, axis=0)[:8].tolist()


def message(number: int) -> list[str]:
    topic = random.choice(TOPICS)
    opening = f"Hello, I have a question about my {topic}"
    return [opening] + [f"Order {number}.{part} was sent on {number % 28 + 1} May" for part in range(12)]


def main(rounds: int) -> None:
    with Pool(2) as pool:
        for number in range(0, 4 * rounds, 4):
            messages = [message(number + i) for i in range(4)]
            means = pool.map(mean_vector, messages)
            if number % 100 == 0:
                print(f"message {number}: {means[0][0]:+.3f}", flush=True)
            time.sleep(0.08)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 126)
