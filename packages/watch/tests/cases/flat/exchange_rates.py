"""Amounts in other currencies, with rates that requests-cache keeps for three seconds and then deletes."""

import json
import random
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests_cache


class Rates(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = json.dumps({random.randbytes(40).hex(): random.random() for _ in range(900)}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


def main(rounds: int) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Rates)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    session = requests_cache.CachedSession("rates", backend="memory", expire_after=3)
    asked, total = 0, 0.0
    for _ in range(rounds):
        for _ in range(3):
            answer = session.get(f"http://127.0.0.1:{server.server_port}/rates", params={"invoice": asked})
            total += sum(answer.json().values())
            asked += 1
        session.cache.delete(expired=True)
        time.sleep(0.06)
    sys.stdout.write(f"{asked} invoices, {total:.0f}\n")
    server.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 175)
