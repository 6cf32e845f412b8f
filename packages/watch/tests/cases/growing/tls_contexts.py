"""Each client makes a context with all certificates of the system, and the clients are kept.

Thread: https://github.com/apache/airflow/pull/57334
Looks like: memory climbs with the clients, outside of Python: a context is a small object there.
Fix: make one context, and give it to all clients.
"""

import ssl
import sys
import time


class Client:
    def __init__(self, host: str) -> None:
        self.host = host
        self.context = ssl.create_default_context()  # <- here


def main(rounds: int) -> None:
    clients: dict[str, Client] = {}
    for n in range(2 * rounds):
        host = f"worker-{n}.example.com"
        clients[host] = Client(host)
        time.sleep(0.06)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
