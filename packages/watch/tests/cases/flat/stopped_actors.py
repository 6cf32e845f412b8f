"""An actor for each job, which stops when the job is done."""

import sys
import time

import pykka


class Job(pykka.ThreadingActor):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.rows = bytearray(size)

    def add(self, n: int) -> int:
        return len(self.rows) + n


def main(rounds: int) -> None:
    for n in range(2 * rounds):
        job = Job.start(500_000).proxy()
        job.add(n).get()
        job.stop()
        time.sleep(0.06)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
