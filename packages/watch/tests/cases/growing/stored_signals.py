"""Arrays that are put into a ZODB: the connection keeps what it has stored, until its cache is made smaller.

Thread: https://github.com/zopefoundation/ZODB/issues/210
Looks like: a database in a file, and yet memory grows by what is written, with each commit.
Fix: `connection.cacheMinimize()` after a commit, or `cache_size_bytes=`.
"""

import sys
import tempfile
import time
from pathlib import Path

import persistent
import transaction
import ZODB
import ZODB.FileStorage


class Signal(persistent.Persistent):
    def __init__(self, samples: bytes) -> None:
        self.samples = samples


def main(rounds: int) -> None:
    path = Path(tempfile.mkdtemp()) / "signals.fs"
    database = ZODB.DB(ZODB.FileStorage.FileStorage(str(path)))
    root = database.open().root()
    for n in range(rounds):
        root[f"signal {n}"] = Signal(bytes([n % 256]) * 900_000)  # <- here
        transaction.commit()
        time.sleep(0.12)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
