"""Insurance claims summed by SQL of datafusion, one table of a region at a time, which is taken back."""

import sys

import numpy as np
import pyarrow as pa
from datafusion import SessionContext

rng = np.random.default_rng(4)


def load_region(size: int) -> pa.Table:
    return pa.table(
        {
            "policy": rng.integers(0, 50_000, size),
            "paid": rng.gamma(1.6, 900.0, size),
            "year": rng.integers(2015, 2026, size),
        }
    )


def sum_region(context: SessionContext, size: int) -> list[dict[str, float]]:
    context.from_arrow(load_region(size), name="claims")
    rows = context.sql("select year, sum(paid) as paid, count(*) as claims from claims group by year order by year")
    sums: list[dict[str, float]] = rows.to_pylist()
    context.deregister_table("claims")
    return sums


def main(regions: int) -> None:
    context = SessionContext()
    paid = 0.0
    for region in range(regions):
        size = (150_000, 400_000, 60_000, 900_000)[region % 4]
        paid += sum(row["paid"] for row in sum_region(context, size))
    sys.stdout.write(f"{regions} regions, {paid / 1e6:,.0f} million\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 690)
