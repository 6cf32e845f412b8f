"""Readings of sensors that are published while the broker cannot be reached.

Thread: https://github.com/bachya/ecowitt2mqtt/pull/228
Looks like: memory climbs for as long as the network is away; each reading waits to be sent.
Fix: `client.max_queued_messages_set(100)`, or ask `client.is_connected()` first.
"""

import json
import socket
import sys
import threading
import time

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion


def unreachable() -> int:
    """A port at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def measure(client: Client, sensor: int, rounds: int) -> None:
    for n in range(rounds):
        for second in range(40):
            reading = {"sensor": sensor, "at": 60 * n + second, "wind": [float(m + second) for m in range(2600)]}
            client.publish(f"garden/{sensor}", json.dumps(reading), qos=1)  # <- here
        time.sleep(0.11)


def main(rounds: int) -> None:
    client = Client(CallbackAPIVersion.VERSION2)
    client.connect_async("127.0.0.1", unreachable())
    client.loop_start()
    sensors = [threading.Thread(target=measure, args=(client, sensor, rounds)) for sensor in range(2)]
    for sensor in sensors:
        sensor.start()
    for sensor in sensors:
        sensor.join()
    client.loop_stop()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
