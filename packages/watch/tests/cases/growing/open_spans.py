"""Spans that are started for each request, and ended only where the answer was good.

Thread: https://github.com/langchain-ai/langsmith-sdk/pull/1979
Looks like: memory climbs with the requests that fail.
Fix: end each span in `finally`, or drop those that are older than some hours.
"""

import sys
import time

from opentelemetry.sdk.trace import TracerProvider

tracer = TracerProvider().get_tracer("app")
unfinished = {}


def handle(request: int) -> None:
    span = tracer.start_span("request")
    span.set_attribute("prompt", f"{request:08d}" * 250_000)  # <- here
    unfinished[request] = span


def main(rounds: int) -> None:
    for request in range(rounds):
        handle(request)
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
