"""A reader of a long XML stream that keeps the attributes of each row; expat calls it back from one call.

Looks like: the program is in `ParseFile` all the time, and its rows are made by C.
Fix: write each row where it belongs in the callback, and keep a number of them at most.
"""

import random
import sys
import time
from xml.parsers import expat

ROWS: list[dict[str, str]] = []


class Stream:
    """Rows for a number of seconds, as they arrive."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds
        self.pieces = iter([b"<rows>"])

    def read(self, _size: int) -> bytes:
        if (first := next(self.pieces, None)) is not None:
            return first
        if time.monotonic() > self.end:
            self.pieces = iter([b""])
            return b"</rows>"
        time.sleep(0.001)
        return b"".join(b'<row text="%s"/>' % random.randbytes(420).hex().encode() for _ in range(2))


def start_row(name: str, attributes: dict[str, str]) -> None:
    if name == "row":
        ROWS.append(attributes)  # <- here


def main(rounds: int) -> None:
    parser = expat.ParserCreate()
    parser.StartElementHandler = start_row
    parser.ParseFile(Stream(rounds))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
