"""A logger for each connection, under a name of its own.

Thread: https://github.com/tarasko/picows/issues/72
Looks like: memory climbs with the connections; the program keeps none.
Fix: one logger, and the connection in `extra` or an adapter.
"""

import logging
import sys
import time


def main(rounds: int) -> None:
    for batch in range(rounds):
        for n in range(800):
            logger = logging.getLogger(f"server.connection-{batch}-{n}")  # <- here
            logger.addHandler(logging.NullHandler())
        time.sleep(0.1)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
