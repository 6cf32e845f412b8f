"""Rows that are written to a database in a file of its own, in sessions that end."""

import sys
import time

from sqlalchemy import create_engine, text


def main(rounds: int) -> None:
    engine = create_engine("sqlite://")
    for n in range(rounds):
        with engine.begin() as connection:
            connection.execute(text("create table if not exists rows (id integer)"))
            connection.execute(text("delete from rows"))
            connection.execute(text("insert into rows values (:n)"), [{"n": n}] * 200)
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
