"""A client for each request, each with its own context for TLS, and none closed.

Thread: https://github.com/encode/httpx/issues/978
Looks like: about a megabyte for each client, outside of Python.
Fix: one client for the program, or one shared context.
"""

import sys
import time

import httpx


def main(rounds: int) -> None:
    clients = []
    for _ in range(2 * rounds):
        clients.append(httpx.Client())  # <- here
        time.sleep(0.06)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
