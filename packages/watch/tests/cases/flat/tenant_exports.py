"""Exports of one tenant after the other, with two fresh workers each, in a pool of pathos that is cleared."""

import random
import sys
import time

from pathos.pools import ProcessPool

_rows: list[str] = []


def render(part: int) -> tuple[int, int]:
    rng = random.Random(part)
    _rows.extend(f"{part};{rng.randrange(10**9)};{rng.random():.6f}" for _ in range(12_000))
    time.sleep(0.08)
    return part, sum(len(row) for row in _rows)


def export(tenant: str) -> dict[int, int]:
    pool = ProcessPool(nodes=2, id=tenant)
    try:
        return dict(pool.map(render, range(20), chunksize=1))
    finally:
        pool.close()
        pool.join()
        pool.clear()


def main(tenants: int) -> None:
    for done in range(tenants):
        sizes = export(f"tenant-{done}")
        sys.stdout.write(f"tenant-{done}: {len(sizes)} parts, the largest {max(sizes.values())} characters\n")
        time.sleep(0.2)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
