"""Parcels on their way from the depot to the door, followed by a state machine that all of them share.

Thread: https://github.com/pytransitions/transitions/pull/182, https://github.com/pytransitions/transitions/issues/642
Looks like: parcels that were delivered long ago are still there.
Cause: the machine lists its models, and a parcel is added but never removed.
Fix: `depot.machine.remove_model(parcel)` when the parcel is delivered.
"""

import random
import sys
import time

from transitions import Machine

STATES = ["announced", "sorted", "loaded", "underway", "delivered"]
STEPS = [
    ["sort", "announced", "sorted"],
    ["load", "sorted", "loaded"],
    ["depart", "loaded", "underway"],
    ["hand_over", "underway", "delivered"],
]


class Parcel:
    def __init__(self, number: int):
        self.number = number
        self.label = random.randbytes(6000)  # <- or here
        self.scans: list[str] = []

    def on_enter_sorted(self) -> None:
        self.scans.append("belt")

    def on_enter_delivered(self) -> None:
        self.scans.append("door")


class Depot:
    def __init__(self):
        self.machine = Machine(  # <- or here
            model=None, states=STATES, transitions=STEPS, initial="announced", auto_transitions=False
        )
        self.open: list[Parcel] = []
        self.delivered = 0

    def announce(self, number: int) -> None:
        parcel = Parcel(number)  # <- or here
        self.machine.add_model(parcel)  # <- here
        self.open.append(parcel)

    def advance(self) -> None:
        for parcel in self.open:
            step = self.machine.get_triggers(parcel.state)[0]
            parcel.trigger(step)
        done = [parcel for parcel in self.open if parcel.state == "delivered"]
        self.delivered += len(done)
        self.open = [parcel for parcel in self.open if parcel.state != "delivered"]


def main(rounds: int) -> None:
    depot = Depot()
    number = 0
    for _ in range(rounds):
        for _ in range(30):
            number += 1
            depot.announce(number)
        depot.advance()
        if number % 900 == 0:
            print(f"{depot.delivered} delivered, {len(depot.open)} open", flush=True)
        time.sleep(0.1)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 105)
