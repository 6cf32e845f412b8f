"""Questions about loans: the rows of a branch come from its system, SQL of datafusion does the rest.

Thread: https://github.com/rerun-io/rerun/issues/10639
Looks like: each question takes more than half a megabyte, outside of Python, although no table is kept.
Cause: `from_arrow` registers the rows as a table with a made-up name, and the session keeps its tables.
Fix: `from_arrow(..., name="loans")` and `context.deregister_table("loans")`, or a new session for each question.
"""

import sys
import time

import numpy as np
import pyarrow as pa
from datafusion import SessionContext

rng = np.random.default_rng(11)
context = SessionContext()


def fetch_loans(branch):
    count = 24_000
    columns = {  # <- or here
        "customer": rng.integers(0, 4_000, count),  # <- or here
        "amount": rng.gamma(2.0, 4_000.0, count),  # <- or here
        "rate": rng.normal(4.0 + branch % 3, 0.7, count),  # <- or here
        "late": rng.integers(0, 90, count).astype(np.int32),  # <- or here
    }
    return pa.table(columns)  # <- or here


def answer(branch):
    loans = context.from_arrow(fetch_loans(branch))  # <- here
    risky = loans.filter("late > 60 and rate > 4.5")
    rows = risky.to_pydict()
    exposure = {}
    for customer, amount in zip(rows["customer"], rows["amount"], strict=True):
        exposure[customer] = exposure.get(customer, 0.0) + amount
    return sorted(exposure.items(), key=lambda pair: -pair[1])[:5]


def main(questions: int) -> None:
    worst = 0.0
    for answered in range(1, questions + 1):
        top = answer(branch=answered % 40)  # <- or here
        worst = max(worst, top[0][1])
        if answered % 40 == 0:
            print(f"{answered} questions, highest exposure {worst:,.0f}", flush=True)
        time.sleep(0.09)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 115)
