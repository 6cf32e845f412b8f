"""A reader of the speed on a CAN bus; a second listener was meant for a log that nobody writes.

Thread: https://github.com/hardbyte/python-can/issues/352, https://github.com/christoph2/pyxcp/issues/110
Looks like: memory climbs with the traffic on the bus, whichever messages the program cares for.
Cause: a `BufferedReader` queues every message until it is read, without a bound.
Fix: read it by `log.get_message()`, or do not give it to the notifier.
"""

import random
import struct
import sys
import time

import can


class Speedometer(can.Listener):
    def __init__(self):
        self.speed = 0.0

    def on_message_received(self, message):
        if message.arbitration_id == 0x1F0:
            self.speed = struct.unpack("<d", message.data)[0]


def drive(seconds):
    engine = can.Bus(interface="virtual", channel="car")
    panel = can.Bus(interface="virtual", channel="car")
    speedometer, log = Speedometer(), can.BufferedReader()
    notifier = can.Notifier(panel, [speedometer, log])
    for _ in range(seconds * 10):
        for _ in range(500):
            data = struct.pack("<d", random.uniform(0, 130))
            engine.send(can.Message(arbitration_id=random.choice([0x1F0, 0x2A0]), data=data))  # <- here
        time.sleep(0.08)
    notifier.stop()
    engine.shutdown()
    panel.shutdown()
    return speedometer.speed


def main(seconds: int) -> None:
    print("last speed", round(drive(seconds), 1))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
