"""A page that answers questions on the sensors of a building from a graph of facts.

Thread: https://github.com/oxigraph/oxigraph/issues/844
Looks like: the service that knows forty sensors takes all memory of its machine in a week.
Cause: each measurement is a fact of its own, and none is removed from the store, which lies in Rust.
Fix: `store.remove(...)` of a sensor's last measurement, or `store.remove_graph(...)` of a day that is over.
"""

import random
import sys
import time

import pyoxigraph as ox

SITE = "http://building.example/"
store = ox.Store()


def record(sensor, minute, value):
    measured = ox.NamedNode(f"{SITE}measurement/{sensor}/{minute}")
    facts = [
        ox.Quad(measured, ox.NamedNode(SITE + "of"), ox.NamedNode(f"{SITE}sensor/{sensor}")),
        ox.Quad(measured, ox.NamedNode(SITE + "minute"), ox.Literal(minute)),
        ox.Quad(measured, ox.NamedNode(SITE + "value"), ox.Literal(value)),
        ox.Quad(measured, ox.NamedNode(SITE + "note"), ox.Literal(f"calibrated at {minute} by {random.random()}")),
    ]
    store.extend(facts)  # <- here


def latest(sensor):
    question = f"SELECT ?m WHERE {{ ?m <{SITE}of> <{SITE}sensor/{sensor}> }} LIMIT 1"
    return next(iter(store.query(question)))["m"]


def main(minutes: int) -> None:
    found = None
    for minute in range(minutes):
        for sensor in range(40):
            record(sensor, minute, random.uniform(17, 23))
        found = latest(random.randrange(40))
        time.sleep(0.005)
    print("one measurement:", found)


if __name__ == "__main__":
    random.seed(5)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1500)
