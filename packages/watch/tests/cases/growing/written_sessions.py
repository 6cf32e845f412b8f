"""Sessions in a shelf that writes back: it keeps each entry that was touched, until it is synchronised.

Thread: https://github.com/IdentityPython/pysaml2/issues/741
Looks like: a database in a file, and yet memory grows by all that is written to it.
Fix: `writeback=False`, or call `sync()` now and then.
"""

import shelve
import sys
import tempfile
import time
from pathlib import Path


def note(sessions: shelve.Shelf[dict[str, bytes]], user: str, answer: bytes) -> None:
    if user not in sessions:
        sessions[user] = {"answer": answer}
    sessions[user]["seen"] = b"yes"


def main(rounds: int) -> None:
    path = str(Path(tempfile.mkdtemp()) / "sessions")
    with shelve.open(path, writeback=True) as sessions:
        for n in range(rounds):
            for k in range(3):
                note(sessions, f"user-{3 * n + k}", bytes([k]) * 300_000)  # <- here
            time.sleep(0.12)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
