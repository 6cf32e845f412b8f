"""One message into which each packet is parsed, instead of a new message for each packet.

Thread: https://github.com/protocolbuffers/protobuf/issues/24257
Looks like: memory climbs with the packets, although the message holds the last one alone, and no Python object grows.
Fix: `Struct.FromString(packet)`, a new message for each packet.
"""

import sys
import time

from google.protobuf.struct_pb2 import Struct


def packet(number: int) -> bytes:
    positions = Struct()
    positions.update({f"vessel {n}": float(number + n) for n in range(200)})
    return positions.SerializeToString()


def main(rounds: int) -> None:
    positions = Struct()
    total = 0.0
    for number in range(rounds):
        received = packet(number)
        for _ in range(60):
            positions.ParseFromString(received)  # <- here
            total += positions["vessel 7"]
        time.sleep(0.14)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
