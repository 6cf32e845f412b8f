"""A printing logger for each task, to a file of its own in memory.

Thread: https://github.com/hynek/structlog/pull/806
Looks like: loggers are dropped, and their files stay.
Fix: take the file out of the library's table of locks when it is closed.
"""

import io
import sys
import time

import structlog


def run(n: int) -> None:
    logger = structlog.PrintLogger(io.StringIO())
    for line in range(200):
        logger.msg(f"task {n}, line {line}: {'-' * 3000}")  # <- here


def main(rounds: int) -> None:
    for n in range(rounds):
        run(n)
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
