"""Requests that fail with an exception, in a server without a garbage collector.

Thread: https://github.com/pallets/flask/issues/5709
Looks like: memory climbs with the requests that fail, by what their functions held, and not with those that succeed.
Fix: leave the collector on, or `gc.collect()` after each hundred requests.
"""

import gc
import sys
import time

import numpy as np
from flask import Flask

application = Flask(__name__)
application.logger.setLevel("CRITICAL")


@application.get("/forecast/<int:place>")
def forecast(place: int) -> str:
    weather = np.full(200_000, float(place))  # <- here
    if weather[0] % 2:
        raise LookupError(place)
    return f"{weather.mean():.1f}"


def main(rounds: int) -> None:
    gc.disable()
    client = application.test_client()
    for n in range(rounds):
        for place in (2 * n, 2 * n + 1):
            client.get(f"/forecast/{place}")
        time.sleep(0.14)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
