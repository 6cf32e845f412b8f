"""Events are published on kombu's transport in memory, whose queues belong to its class; nobody consumes them.

Thread: https://github.com/celery/kombu/pull/196
Looks like: memory climbs with the events, also if each has a connection of its own.
Fix: consume them, `queue(channel).purge()`, or declare the queue where somebody does.
"""

import sys
import time

from kombu import Connection, Exchange, Queue

exchange = Exchange("events", type="direct")
queue = Queue("events", exchange, routing_key="events")


class Events:
    def __init__(self, connection: Connection) -> None:
        self.producer = connection.Producer()

    def publish(self, number: int) -> None:
        body = {"number": number, "values": [number * 1000 + at for at in range(600)]}
        self.producer.publish(body, exchange=exchange, routing_key="events", declare=[queue])  # <- here


def main(rounds: int) -> None:
    with Connection("memory://") as connection:
        events = Events(connection)
        for number in range(40 * rounds):
            events.publish(number)
            time.sleep(0.002)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
