"""The dispatch problem of power plants, written as an LP file for each price scenario by pyomo.

Thread: https://github.com/Pyomo/pyomo/issues/3915
Looks like: one model, whose numbers change and whose size does not, grows by 45 KiB with each file.
Cause: each `write` leaves a map of the symbols in `model.solutions`, for a solver whose answer is never loaded.
Fix: `model.solutions.clear()` after `write`, or `LPWriter().write`, which leaves none.
"""

import random
import sys
import tempfile
from pathlib import Path

import pyomo.environ as pyo

HOURS = range(24)
PLANTS = {"gas": (60, 80), "coal": (45, 120), "hydro": (8, 50), "wind": (2, 70), "oil": (95, 30), "bio": (50, 20)}


def build_model():
    model = pyo.ConcreteModel("dispatch")
    model.hours = pyo.Set(initialize=HOURS)
    model.plants = pyo.Set(initialize=list(PLANTS))
    model.demand = pyo.Param(model.hours, initialize=200.0, mutable=True)
    model.cost = pyo.Param(model.plants, initialize={name: cost for name, (cost, _) in PLANTS.items()}, mutable=True)
    model.power = pyo.Var(model.plants, model.hours, domain=pyo.NonNegativeReals)
    model.bought = pyo.Var(model.hours, domain=pyo.NonNegativeReals)

    @model.Constraint(model.plants, model.hours)
    def capacity(m, plant, hour):
        return m.power[plant, hour] <= PLANTS[plant][1]

    @model.Constraint(model.hours)
    def balance(m, hour):
        return sum(m.power[plant, hour] for plant in m.plants) + m.bought[hour] >= m.demand[hour]

    @model.Objective()
    def total(m):
        return sum(m.cost[plant] * m.power[plant, hour] for plant in m.plants for hour in m.hours) + sum(
            180 * m.bought[hour] for hour in m.hours
        )

    return model


def apply_scenario(model):
    for hour in HOURS:
        model.demand[hour] = 220 + 60 * random.random() + (50 if 17 <= hour <= 21 else 0)
    for name, (cost, _) in PLANTS.items():
        model.cost[name] = cost * random.uniform(0.8, 1.3)


def main(scenarios: int) -> None:
    random.seed(3)
    model = build_model()
    with tempfile.TemporaryDirectory() as folder:
        target = f"{folder}/dispatch.lp"
        written, size = 0, 0
        for _ in range(scenarios):
            apply_scenario(model)
            model.write(target, io_options={"symbolic_solver_labels": True})  # <- here
            size += Path(target).stat().st_size
            written += 1
    print(f"{written} scenarios written, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2650)
