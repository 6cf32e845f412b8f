"""A database in memory for each tenant, which nobody closes.

Thread: https://github.com/duckdb/duckdb/issues/10223
Looks like: a service grows with its tenants, outside of Python.
Fix: close the connection when the tenant has gone.
"""

import sys
import time

import duckdb

connections: dict[str, duckdb.DuckDBPyConnection] = {}


def serve(n: int) -> None:
    database = duckdb.connect(":memory:", config={"threads": 1})  # <- here
    database.execute("create table rows as select range as id, random() as x from range(200000)")
    connections[f"tenant {n}"] = database


def main(rounds: int) -> None:
    for n in range(rounds):
        serve(n)
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
