"""A server that makes an object for each client and registers it: the daemon never lets go of one.

Thread: https://github.com/irmen/Pyro4/issues/111
Looks like: a server keeps the table of each client after the client is gone.
Fix: `daemon.unregister(table)` when the client ends, or a session's class with `instance_mode="session"`.
"""

import sys
import time

import Pyro5.api


@Pyro5.api.expose
class Table:
    def __init__(self, rows: int) -> None:
        self.rows = bytearray(100 * rows)  # <- here

    def size(self) -> int:
        return len(self.rows)


def serve(daemon: Pyro5.api.Daemon, n: int) -> str:
    return str(daemon.register(Table(8_000 + n)))


def main(rounds: int) -> None:
    daemon = Pyro5.api.Daemon()
    for n in range(rounds):
        serve(daemon, n)
        time.sleep(0.12)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
