"""The best place for a parcel box in each district, from street networks of three sizes in networkx."""

import random
import sys

import networkx as nx

Corner = tuple[int, int]


def street_network(rng: random.Random, size: int) -> nx.Graph:
    streets = nx.grid_2d_graph(size, size)
    for start, stop in streets.edges:
        streets.edges[start, stop]["minutes"] = rng.uniform(0.5, 3.0)
    streets.remove_nodes_from(rng.sample(sorted(streets.nodes), size))
    return streets.subgraph(max(nx.connected_components(streets), key=len)).copy()


def best_corner(rng: random.Random, streets: nx.Graph, candidates: int = 6) -> tuple[Corner, float]:
    best = None
    for corner in rng.sample(sorted(streets.nodes), candidates):
        walks = nx.single_source_dijkstra_path_length(streets, corner, weight="minutes")
        mean = sum(walks.values()) / len(walks)
        if best is None or mean < best[1]:
            best = corner, mean
    return best


def main(districts: int) -> None:
    rng = random.Random(12)
    minutes = 0.0
    for _ in range(districts):
        streets = street_network(rng, rng.choice([30, 50, 90]))
        _, mean = best_corner(rng, streets)
        minutes += mean
    sys.stdout.write(f"{districts} districts, {minutes / districts:.1f} minutes on average\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 84)
