"""Addresses of readings that are shortened for a report, by the graph that knows the prefixes.

Thread: https://github.com/RDFLib/rdflib/issues/739
Looks like: memory climbs with the addresses that were ever shortened, although the graph stays as it is.
Fix: `graph.namespace_manager.reset()` after each report, or cut the prefix off oneself.
"""

import sys
import time

from rdflib import Graph, Namespace

READINGS = Namespace("https://meters.example.org/readings/")


def main(rounds: int) -> None:
    graph = Graph()
    graph.bind("readings", READINGS)
    letters = 0
    for day in range(rounds):
        for meter in range(4000):
            letters += len(graph.qname(READINGS[f"day{day}-meter{meter}"]))  # <- here
        time.sleep(0.1)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
