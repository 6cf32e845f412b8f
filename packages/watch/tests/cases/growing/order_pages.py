"""The newest orders of a store in rocksdict, through which each clerk pages with a cursor of his own.

Thread: https://github.com/facebook/rocksdb/issues/10536, https://github.com/twmht/python-rocksdb/issues/23, https://github.com/facebook/rocksdb/issues/3216
Looks like: a cursor is small, and each takes most of a megabyte, outside of Python.
Cause: a cursor pins the table in memory that it began in, after this was written to the disk, and cursors are kept.
Fix: remove the cursor when its pages are shown, or note the last key of a clerk in its place.
"""

import random
import sys
import tempfile
import time

from rocksdict import Options, Rdict


def open_store(folder):
    options = Options()
    options.create_if_missing(True)
    options.set_write_buffer_size(1 << 20)
    options.set_max_write_buffer_number(3)
    return Rdict(folder, options)


class OrderDesk:
    def __init__(self, store):
        self.store = store
        self.cursors = {}
        self.number = 0

    def take_orders(self, count):
        for _ in range(count):
            self.store[f"order-{self.number:09d}"] = random.randbytes(random.randrange(900, 1500))  # <- or here
            self.number += 1

    def open_page(self, clerk):
        cursor = self.store.iter()  # <- or here
        cursor.seek(f"order-{max(0, self.number - 40):09d}")
        self.cursors[clerk] = cursor  # <- here
        return self.next_page(clerk)

    def next_page(self, clerk, size=20):
        cursor = self.cursors[clerk]
        page = []
        while cursor.valid() and len(page) < size:
            page.append((cursor.key(), len(cursor.value())))
            cursor.next()
        return page


def main(pages: int) -> None:
    random.seed(4)
    with tempfile.TemporaryDirectory() as folder:
        desk = OrderDesk(open_store(folder))
        shown = 0
        for _ in range(pages):
            desk.take_orders(700)
            clerk = f"session-{random.getrandbits(48):x}"
            shown += len(desk.open_page(clerk))  # <- or here
            shown += len(desk.next_page(clerk))
            time.sleep(0.12)
        print(f"{desk.number} orders, {shown} shown")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 90)
