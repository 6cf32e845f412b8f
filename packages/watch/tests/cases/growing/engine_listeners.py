"""Each request adds a listener to the engine that all requests share.

Thread: https://github.com/DataDog/dd-trace-py/pull/18361
Looks like: memory climbs with the requests, and each statement takes longer than the one before.
Fix: listen once, when the engine is made; or `event.remove` with the same function at the end of the request.
"""

import sys
import time

from sqlalchemy import create_engine, event, text

engine = create_engine("sqlite://")


class Audit:
    def __init__(self, number: int) -> None:
        self.rows = [f"request {number} row {row}" for row in range(500)]  # <- here

    def attach(self) -> None:
        def before(_connection: object, _cursor: object, statement: str, *_others: object) -> None:
            self.rows.append(statement)

        event.listen(engine, "before_cursor_execute", before)


def handle(number: int) -> None:
    Audit(number).attach()
    if number % 50 == 0:
        with engine.connect() as connection:
            connection.execute(text("select 1"))


def main(rounds: int) -> None:
    for number in range(10 * rounds):
        handle(number)
        time.sleep(0.01)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 120)
