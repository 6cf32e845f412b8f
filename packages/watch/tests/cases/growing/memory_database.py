"""A simulation that writes each step into a database in memory.

Thread: https://github.com/underworldcode/underworld2/issues/46
Looks like: memory climbs with the steps, and no Python object does.
Fix: a file instead of `:memory:`, or delete the rows of earlier steps.
"""

import sqlite3
import sys
import time


def main(rounds: int) -> None:
    database = sqlite3.connect(":memory:")
    database.execute("create table particles (step integer, number integer, place blob)")
    place = bytes(400)
    for step in range(rounds):
        rows = ((step, number, place) for number in range(5000))
        database.executemany("insert into particles values (?, ?, ?)", rows)  # <- here
        database.commit()
        time.sleep(0.13)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
