"""A planner of delivery routes that logs the cost of each solution it meets.

Thread: https://github.com/google/or-tools/issues/4753, https://github.com/google/or-tools/issues/4092
Looks like: memory climbs with each plan, by the whole model; `gc.collect()` finds nothing.
Cause: the model holds the callback in C++, the callback holds the model, and no collector sees that ring.
Fix: a `weakref` to the model in the callback, or drop `callback.model` after the search.
"""

import random
import sys
import time

from ortools.constraint_solver import pywrapcp, routing_enums_pb2


class CostLog:
    """Notes the cost of each solution."""

    def __init__(self, model):
        self.model = model
        self.costs = []

    def __call__(self):
        self.costs.append(self.model.CostVar().Max())


def plan(stops: list[tuple[int, int]], vehicles: int) -> int:
    manager = pywrapcp.RoutingIndexManager(len(stops), vehicles, 0)
    model = pywrapcp.RoutingModel(manager)  # <- here
    distances = [[abs(a - c) + abs(b - d) for c, d in stops] for a, b in stops]

    def distance(start, end):
        return distances[manager.IndexToNode(start)][manager.IndexToNode(end)]

    transit = model.RegisterTransitCallback(distance)
    model.SetArcCostEvaluatorOfAllVehicles(transit)
    model.AddDimension(transit, 0, 3000, True, "Distance")
    log = CostLog(model)
    model.AddAtSolutionCallback(log)
    settings = pywrapcp.DefaultRoutingSearchParameters()
    settings.first_solution_strategy = routing_enums_pb2.FirstSolutionStrategy.PATH_CHEAPEST_ARC
    settings.solution_limit = 1
    model.SolveWithParameters(settings)
    return log.costs[-1] if log.costs else 0


def main(rounds: int) -> None:
    random.seed(5)
    total = 0
    for _ in range(rounds):
        stops = [(random.randrange(500), random.randrange(500)) for _ in range(24)]
        total += plan(stops, 3)
        time.sleep(0.2)
    print("cost", total)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 80)
