"""An import of a shop's orders into SQLite, batch by batch, in one session of Pony.

Thread: https://github.com/ponyorm/pony/issues/193
Looks like: memory climbs with the orders that are long written; `commit()` after each batch changes nothing.
Cause: the session keeps each object that it made or read, until the `db_session` ends.
Fix: a `db_session` for each batch, or `rollback()` after the commit, which empties the session's cache.
"""

import random
import sys

from pony.orm import Database, Optional, PrimaryKey, Required, commit, count, db_session, select

db = Database()


class Order(db.Entity):
    id = PrimaryKey(int, auto=True)
    customer = Required(str)
    total = Required(float)
    note = Optional(str)


db.bind(provider="sqlite", filename=":sharedmemory:")
db.generate_mapping(create_tables=True)


def read_batch(number, size=120):
    for row in range(size):
        yield {
            "customer": f"customer {random.randrange(5000)}",
            "total": random.uniform(3, 400),
            "note": f"batch {number}, row {row}: leave it at the door, please. " * 3,
        }


@db_session
def import_orders(batches):
    for number in range(batches):
        for row in read_batch(number):
            Order(**row)  # <- here
        commit()
        late = select(order for order in Order if order.total > 390).count()
        busiest = select((order.customer, count(order)) for order in Order).order_by(-2)[:3]
    return late, busiest


def main(batches: int) -> None:
    random.seed(1)
    print(*import_orders(batches))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 330)
