"""A search for settings of a model, step by step, with a forest that guesses the loss.

Thread: https://github.com/scikit-optimize/scikit-optimize/issues/349
Looks like: memory climbs with each result that is told, faster the more results there are.
Cause: the optimizer keeps the surrogate of every step, `Optimizer.models`, although only the newest is asked.
Fix: `Optimizer(..., model_queue_size=1)`.
"""

import sys
import time

from skopt import Optimizer
from skopt.learning import ExtraTreesRegressor

SPACE = [(1e-5, 1e-1, "log-uniform"), (16, 512), (1, 8), (0.0, 0.6), (0.5, 1.0), (1e-8, 1e-2, "log-uniform")]


def train(settings: list[float]) -> float:
    """A training that takes a while, and its loss."""
    rate, width, depth, dropout, momentum, decay = settings
    time.sleep(0.03)
    return abs(rate - 0.003) * 40 + abs(width - 200) / 300 + abs(depth - 4) / 8 + dropout + momentum * decay


def main(rounds: int) -> None:
    forest = ExtraTreesRegressor(n_estimators=80, random_state=3)
    optimizer = Optimizer(
        SPACE, forest, n_initial_points=10, acq_optimizer="sampling", acq_optimizer_kwargs={"n_points": 500}
    )
    best = float("inf")
    for _ in range(rounds):
        settings = optimizer.ask()
        loss = train(settings)
        optimizer.tell(settings, loss)  # <- here
        best = min(best, loss)
    print(f"best {best:.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 115)
