"""A front of good designs, found generation by generation in a single call.

Thread: https://github.com/anyoptimization/pymoo/issues/739
Looks like: memory climbs from generation to generation; it was meant to be a plot at the end.
Cause: `save_history=True` copies the whole algorithm, with all that its problem and callback hold, each generation.
Fix: no `save_history`; a callback that keeps the few numbers of each generation.
"""

import sys
import time

import numpy as np
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.core.problem import Problem
from pymoo.optimize import minimize


class Wing(Problem):
    """Weight against drag of a wing that is given by points of its outline."""

    def __init__(self):
        super().__init__(n_var=60, n_obj=2, xl=-1.0, xu=1.0)

    def _evaluate(self, x, out, *args, **kwargs):
        time.sleep(0.08)
        out["F"] = np.column_stack([(x**2).sum(axis=1), ((x - 0.4) ** 2).sum(axis=1) + np.abs(x[:, 0])])


def main(rounds: int) -> None:
    algorithm = NSGA2(pop_size=200)
    result = minimize(Wing(), algorithm, ("n_gen", rounds), seed=1, save_history=True, verbose=False)  # <- here
    spread = [entry.opt.get("F").min(axis=0) for entry in result.history]
    print(len(spread), spread[-1].round(2))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 120)
