"""An archive that is written for days: it remembers each member, to list them, which nobody asks for.

Thread: https://github.com/python/cpython/issues/139960
Looks like: memory climbs with the files that were added, however small they are.
Fix: `archive.members.clear()` after each member, or, from Python 3.13 on, `tarfile.open(..., stream=True)`.
"""

import io
import sys
import tarfile
import tempfile
import time


class Collector:
    def __init__(self, file: str) -> None:
        self.archive = tarfile.open(file, "w")  # noqa: SIM115  (it is written for as long as the program runs)

    def add(self, name: str, content: bytes) -> None:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        self.archive.addfile(member, io.BytesIO(content))  # <- here


def main(rounds: int) -> None:
    with tempfile.NamedTemporaryFile() as file:
        collector = Collector(file.name)
        for n in range(rounds):
            for k in range(250):
                collector.add(f"measurements/day-{n}/sensor-{k}/value.txt", b"1.0")
            time.sleep(0.1)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 90)
