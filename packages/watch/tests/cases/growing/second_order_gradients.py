"""A gradient that is itself a graph: weights and gradient hold each other, inside the library.

Thread: https://github.com/pytorch/pytorch/issues/7343
Looks like: memory climbs with the tasks, no name of the program holds it, and `gc.collect()` does not help.
Fix: `torch.autograd.grad(loss, weights, create_graph=True)`, or set `weights.grad = None` at the end.
"""

import sys
import time

import torch


def sharpness(start: float) -> float:
    weights = torch.full((300_000,), start, requires_grad=True)
    loss = (weights**3).sum()
    loss.backward(create_graph=True)  # <- here
    return weights.grad.square().sum().item()


def main(rounds: int) -> None:
    total = 0.0
    for n in range(rounds):
        total += sharpness(n / 100)
        time.sleep(0.14)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
