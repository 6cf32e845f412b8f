"""Workers of a pool that lives as long as the server, each with an index that it never empties.

Thread: https://github.com/Netflix/metaflow-service/pull/416
Looks like: the workers grow with the jobs, the server that is watched does not.
Fix: `ProcessPoolExecutor(max_tasks_per_child=100)`, or a bound on the index.
"""

import sys
import time
from concurrent.futures import ProcessPoolExecutor

index: dict[int, list[str]] = {}


def prepare() -> None:
    index.clear()


def fetch(number: int) -> int:
    index[number] = [f"{number}: line {n} of the log" for n in range(12_000)]  # <- here
    return len(index[number])


def main(rounds: int) -> None:
    with ProcessPoolExecutor(2, initializer=prepare) as pool:
        for number in range(0, 2 * rounds, 2):
            list(pool.map(fetch, (number, number + 1)))
            time.sleep(0.14)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
