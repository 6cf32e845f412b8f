"""Models in a loop: a table of the agents' class keeps each model, to number its agents.

Thread: https://github.com/mesa/mesa/issues/3179
Looks like: a study of many runs keeps the grid and the agents of all of them.
Fix: a newer Mesa, or `mesa.Agent._ids.pop(model)` when a run is over.
"""

import sys
import time

import mesa


class Walker(mesa.Agent):
    def __init__(self, model: mesa.Model) -> None:
        super().__init__(model)
        self.path = bytearray(2_000)  # <- here


def simulate() -> int:
    model = mesa.Model()
    for _ in range(500):
        Walker(model)
    return len(model.agents)


def main(rounds: int) -> None:
    for _ in range(rounds):
        simulate()
        time.sleep(0.12)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
