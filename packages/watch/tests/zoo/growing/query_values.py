"""An aggregate of SQL that keeps every value to give their median; SQLite's C code calls it within one query.

Looks like: the program is in `execute` all the time, and the values are made by C.
Fix: keep a sample of the values, or sort them in the database.
"""

import sqlite3
import sys
import time

VALUES: list[str] = []
QUERY = """WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
           SELECT median(hex(randomblob(300))) FROM n"""


class Median:
    def __init__(self) -> None:
        self.count = 0

    def step(self, value: str) -> None:
        self.count += 1
        if self.count % 50 == 0:
            time.sleep(0.003)
        VALUES.append(value)  # <- here

    def finalize(self) -> str:
        return sorted(VALUES)[self.count // 2]


def main(rounds: int) -> None:
    connection = sqlite3.connect(":memory:")
    connection.create_aggregate("median", 1, Median)
    connection.execute(QUERY, (10_000 * rounds,)).fetchone()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
