"""Answers of a server that the client still refers to: the server's side of the connection keeps each of them.

Thread: https://github.com/tomerfiliba-org/rpyc/issues/511
Looks like: the server grows by what it answers, although its functions keep nothing.
Fix: the client drops what it has read, or takes a copy by `rpyc.classic.obtain`.
"""

import sys
import threading
import time

import rpyc
from rpyc.utils.server import ThreadedServer


class Frames(rpyc.Service):
    def exposed_take(self, n: int) -> list[bytes]:
        return [bytes([n % 256]) * 2_000_000]  # <- here


def main(rounds: int) -> None:
    server = ThreadedServer(Frames(), port=0, hostname="127.0.0.1")
    threading.Thread(target=server.start, daemon=True).start()
    server_side = rpyc.connect("127.0.0.1", server.port).root
    frames = []
    for n in range(rounds // 2):
        frames.append(server_side.exposed_take(n))
        time.sleep(0.12)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
