"""A worker that opens a database in memory for each batch and never closes it.

Looks like: memory climbs with the batches; the list of connections holds a few kB of Python objects.
Fix: `with contextlib.closing(sqlite3.connect(":memory:")) as db`, or one database whose table is emptied.
"""

import sqlite3
import sys
import time

OPEN: list[sqlite3.Connection] = []


def load(batch: int) -> int:
    db = sqlite3.connect(":memory:")  # <- here
    db.execute("create table rows (number int, text text)")
    db.executemany("insert into rows values (?, ?)", ((batch + n, "x" * 400) for n in range(2000)))
    OPEN.append(db)
    return int(db.execute("select max(number) from rows").fetchone()[0])


def main(rounds: int) -> None:
    for batch in range(8 * rounds):
        load(batch)
        time.sleep(0.03)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
