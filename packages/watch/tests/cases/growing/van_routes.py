"""A short delivery tour through the stops of one van, searched by a genetic algorithm.

Thread: https://github.com/DEAP/deap/issues/145
Looks like: memory climbs with the generations, although each takes the place of the one before.
Cause: the decorated tools copy every route that they make into `history.genealogy_history`.
Fix: no `History` where nobody reads it, or a new one every so many generations.
"""

import random
import sys

from deap import base, creator, tools

STOPS = 320
ROUTES = 120


def stop_positions() -> list[tuple[float, float]]:
    draw = random.Random(7)
    return [(draw.random() * 30, draw.random() * 30) for _ in range(STOPS)]


POSITIONS = stop_positions()


def tour_length(route: list[int]) -> tuple[float]:
    length = 0.0
    x, y = POSITIONS[route[-1]]
    for stop in route:
        a, b = POSITIONS[stop]
        length += ((a - x) ** 2 + (b - y) ** 2) ** 0.5
        x, y = a, b
    return (length,)


def search_tools() -> tuple[base.Toolbox, tools.History]:
    creator.create("Shortest", base.Fitness, weights=(-1.0,))
    creator.create("Route", list, fitness=creator.Shortest)
    box = base.Toolbox()
    box.register("order", random.sample, range(STOPS), STOPS)
    box.register("route", tools.initIterate, creator.Route, box.order)
    box.register("routes", tools.initRepeat, list, box.route)
    box.register("mate", tools.cxOrdered)
    box.register("mutate", tools.mutShuffleIndexes, indpb=0.02)
    box.register("select", tools.selTournament, tournsize=3)
    history = tools.History()  # <- or here
    box.decorate("mate", history.decorator)  # <- here
    box.decorate("mutate", history.decorator)  # <- or here
    return box, history


def main(generations: int) -> None:
    random.seed(3)
    box, history = search_tools()
    routes = box.routes(n=ROUTES)
    history.update(routes)  # <- or here
    for generation in range(generations):
        for route in routes:
            if not route.fitness.valid:
                route.fitness.values = tour_length(route)
        chosen = [box.clone(route) for route in box.select(routes, ROUTES)]
        for first, second in zip(chosen[::2], chosen[1::2], strict=True):
            if random.random() < 0.7:
                box.mate(first, second)  # <- or here
                del first.fitness.values, second.fitness.values
            elif random.random() < 0.5:
                box.mutate(first)  # <- or here
                del first.fitness.values
        best = min(tour_length(route)[0] for route in routes)
        routes = chosen
        if generation % 25 == 0:
            print(f"generation {generation}: {best:.1f} km", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 345)
