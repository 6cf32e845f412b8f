"""Packets that are parsed into a new message each, of which a number is looked at."""

import sys
import time

from google.protobuf.struct_pb2 import Struct


def packet(number: int) -> bytes:
    positions = Struct()
    positions.update({f"vessel {n}": float(number + n) for n in range(200)})
    return positions.SerializeToString()


def main(rounds: int) -> None:
    total = 0.0
    for number in range(rounds):
        received = packet(number)
        for _ in range(60):
            total += Struct.FromString(received)["vessel 7"]
        time.sleep(0.14)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
