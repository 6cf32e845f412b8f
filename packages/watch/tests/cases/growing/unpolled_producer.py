"""Features of each request, sent on to a stream.

Thread: https://github.com/confluentinc/confluent-kafka-python/issues/810,
https://github.com/getsentry/sentry/pull/18644
Looks like: memory climbs with what is produced, nothing of it in Python's heap.
Cause: messages and their delivery reports wait in librdkafka, as nobody calls `poll`, and the broker is away.
Fix: `producer.poll(0)` after each `produce`, and a bound: `queue.buffering.max.kbytes`, `message.timeout.ms`.
"""

import json
import sys
import time

from confluent_kafka import Producer

FAILED = []


def delivered(error, message) -> None:
    if error is not None:
        FAILED.append(message.key())


def main(rounds: int) -> None:
    producer = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "queue.buffering.max.messages": 1_000_000})
    for n in range(rounds):
        for k in range(20):
            features = json.dumps({"request": n, "part": k, "values": [n * 0.1 + v for v in range(220)]})
            producer.produce("features", key=str(n), value=features.encode(), callback=delivered)  # <- here
        time.sleep(0.02)
    print("waiting", len(producer))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 900)
