"""The next departures of bus stops; requests-cache is to spare the operator's service.

Thread: https://github.com/requests-cache/requests-cache/issues/846, https://github.com/requests-cache/aiohttp-client-cache/issues/161
Looks like: answers expire after two seconds, and are still there.
Cause: an expired answer is replaced when it is asked for again; the time is part of the key, so that none ever is.
Fix: `self.session.cache.delete(expired=True)` once in a while, or `ignored_parameters=["after"]`.
"""

import json
import random
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests_cache


class Operator(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        departures = [
            {
                "line": random.randrange(1, 99),
                "minute": random.random() * 60,
                "stop": self.path,
                "shape": random.randbytes(220).hex(),
            }
            for _ in range(160)
        ]
        body = json.dumps(departures).encode()  # <- or here
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


class Board:
    def __init__(self, port):
        self.address = f"http://127.0.0.1:{port}/departures"
        self.session = requests_cache.CachedSession("departures", backend="memory", expire_after=2)
        self.asked = 0

    def next_bus(self, stop):
        minute = f"{time.time():.1f}"  # <- or here
        answer = self.session.get(self.address, params={"stop": stop, "after": minute})  # <- here
        self.asked += 1
        return min(answer.json(), key=lambda departure: departure["minute"])


def main(rounds: int) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Operator)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    board = Board(server.server_port)
    lines = set()
    for _ in range(rounds):
        for stop in random.sample(range(300), 4):
            lines.add(board.next_bus(stop)["line"])  # <- or here
        time.sleep(0.06)
    print(f"{board.asked} questions, {len(lines)} lines")
    server.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 157)
