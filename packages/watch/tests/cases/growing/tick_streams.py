"""A server of prices that gives each dashboard that connects a stream of its own.

Thread: https://github.com/python-streamz/streamz, where `streamz/sinks.py` adds each sink to a set
Looks like: dashboards that were closed long ago are still there, with their canvas.
Cause: a sink adds itself to a set of its module, so that nobody needs to keep the stream.
Fix: keep the sink, and `sink.destroy()` when the dashboard leaves.
"""

import collections
import random
import sys
import time

from streamz import Stream


class Dashboard:
    def __init__(self, name):
        self.name = name
        self.canvas = bytearray(300_000)  # <- here
        self.last = collections.deque(maxlen=50)

    def draw(self, price):
        self.last.append(price)
        self.canvas[int(price * 10) % len(self.canvas)] = 255


def visit(number):
    dashboard = Dashboard(f"desk-{number}")
    prices = Stream()
    prices.map(lambda tick: tick["price"]).sink(dashboard.draw)
    for _ in range(40):
        prices.emit({"symbol": "ABC", "price": random.uniform(90, 110)})
    return sum(dashboard.last) / len(dashboard.last)


def main(visits: int) -> None:
    mean = 0.0
    for number in range(visits):
        mean = visit(number)
        time.sleep(0.1)
    print("last mean", round(mean, 2))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 160)
