"""A client that keeps a session for each call, and each session an SSL context of its own.

Looks like: memory climbs by half a MiB a call, and the objects of Python that are new take a few hundred bytes.
Fix: make one context and hand it to all sessions, or close and drop a session when its call is answered.
"""

import ssl
import sys
import time
from dataclasses import dataclass


@dataclass(slots=True)
class Session:
    number: int
    context: ssl.SSLContext


class Client:
    def __init__(self) -> None:
        self.sessions: dict[int, Session] = {}

    def call(self, number: int) -> int:
        self.sessions[number] = Session(number, ssl.create_default_context())  # <- here
        return len(self.sessions)


def main(rounds: int) -> None:
    client = Client()
    for number in range(8 * rounds):
        client.call(number)
        time.sleep(0.03)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
