"""Task graphs with arrays, each in a cycle with its cached view.

Thread: https://github.com/networkx/networkx/pull/8892
Looks like: memory climbs in steps, and falls when the collector runs.
Fix: `gc.collect()` after each batch, or delete the cached view.
"""

import sys
import time

import networkx as nx
import numpy as np


def main(rounds: int) -> None:
    total = 0
    for _ in range(rounds):
        graph = nx.path_graph(5)
        graph.graph["payload"] = np.full(400_000, 1.0)  # <- here
        total += graph.number_of_edges()
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
