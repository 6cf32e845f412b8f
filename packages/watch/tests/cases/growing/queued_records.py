"""Log records wait for a handler that is slower than the program.

Thread: https://github.com/getlogbook/logbook/pull/121
Looks like: memory climbs while much is logged, and falls when it is quiet.
Fix: `queue.Queue(maxsize=10_000)`, and drop records when it is full.
"""

import logging
import queue
import sys
import time
from logging.handlers import QueueHandler, QueueListener

logger = logging.getLogger("orders")


class RemoteHandler(logging.Handler):
    def emit(self, _record: logging.LogRecord) -> None:
        time.sleep(0.05)


def main(rounds: int) -> None:
    records: queue.Queue[logging.LogRecord] = queue.Queue()
    logger.setLevel(logging.INFO)
    logger.addHandler(QueueHandler(records))
    QueueListener(records, RemoteHandler()).start()
    body = "quantity=1 price=10 " * 60
    for n in range(rounds):
        for order in range(1000):
            logger.info("order %d of %d: %s", order, n, body)  # <- here
        time.sleep(0.13)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
