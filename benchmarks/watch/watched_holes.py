"""What a watch costs where the heap is full of holes, each of which glibc visits when it is asked for totals.

600,000 small blocks are freed among as many that stay. A leak then fills the holes, and is found, so that readings come
often; there is a boundary every 10 ms.
"""

import json
import sys
import time

import numpy as np

from flatwater_watch.agent.process import ProcessWatch

BLOCKS, ROUND = 1_200_000, 0.01
KEPT: list[bytes | None] = []
LEAK: list[bytearray] = []


def fill_heap() -> None:
    """Blocks of 600 to 1,000 bytes, and a hole in place of every second one."""
    draw = np.random.default_rng(0)
    KEPT.extend(bytes(size) for size in draw.integers(600, 1000, BLOCKS).tolist())
    for at in draw.permutation(BLOCKS)[: BLOCKS // 2].tolist():
        KEPT[at] = None


def measure_watch(seconds: float) -> dict[str, float]:
    """The watch's share of the CPU, and its longest boundary."""
    watch, pauses = ProcessWatch(unit="round"), []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ends = time.perf_counter() + ROUND
        LEAK.extend(bytearray(900) for _ in range(100))
        while time.perf_counter() < ends:
            pass
        began = time.perf_counter()
        watch.step("round")
        pauses.append(time.perf_counter() - began)
    share: float = watch.summary()["cost"]["cpu_share"]
    found = len(watch.findings())
    watch.close(conclude=False)
    return {"share": share, "pause": max(pauses), "found": found}


if __name__ == "__main__":
    fill_heap()
    print(json.dumps(measure_watch(float(sys.argv[1]))))
