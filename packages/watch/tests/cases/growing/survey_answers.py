"""A survey page that reports each answer to product analytics.

Thread: https://github.com/PostHog/posthog-python/issues/145
Looks like: threads become more and more, one with each answer.
Fix: one `Posthog` for all answers, or `analytics.shutdown()` when an answer is sent.
"""

import http.server
import sys
import threading
import time

from posthog import Posthog


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"status": 1}')

    def log_message(self, *_words: object) -> None:
        pass


def track(host: str, visitor: str, answers: dict[str, str]) -> None:
    analytics = Posthog("phc_survey", host=host, flush_interval=0.5)  # <- here
    analytics.capture("survey answered", distinct_id=visitor, properties=answers)


def main(rounds: int) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for number in range(rounds):
        answers = {f"question{index}": f"answer {number} " * 20 for index in range(12)}
        track(f"http://127.0.0.1:{server.server_port}", f"visitor{number}", answers)
        time.sleep(0.016)
    print(rounds, "surveys,", threading.active_count(), "threads")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 480)
