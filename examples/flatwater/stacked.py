"""Thirty-two networks trained at once: one row of weights a member, one product a layer, one step of Adam for each.

    python examples/flatwater/stacked.py [--steps 300]

Each member has a curve of its own to learn, sin(k x); prints the error of the easiest and of the hardest one.
"""

import argparse

import torch

import flatwater as fw

MEMBERS, POINTS, HIDDEN = 32, 64, 64
LAYOUT = fw.stack.Layout(fw.stack.linear("first", 1, HIDDEN) | fw.stack.linear("last", HIDDEN, 1))


def curves(params: fw.stack.Params, x: torch.Tensor) -> torch.Tensor:
    """What each member makes of its points: [P, B, 1] to [P, B, 1]."""
    return fw.stack.apply_linear(params, "last", fw.stack.apply_linear(params, "first", x).tanh())


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    steps = parser.parse_args().steps
    rng = torch.Generator().manual_seed(0)
    weights = torch.empty(MEMBERS, LAYOUT.size)
    fw.stack.init_(weights, LAYOUT, rng)
    optimiser = fw.adam.build_adam(MEMBERS, LAYOUT.size, weights.dtype, weights.device)
    step_ = fw.adam.bind_step(weights, optimiser, lr=1e-2, weight_decay=0.0, clip=1.0)
    pace = torch.linspace(0.5, 2, MEMBERS).view(-1, 1, 1)
    for _ in range(steps):
        x = 6 * torch.rand(MEMBERS, POINTS, 1, generator=rng) - 3
        block = weights.detach().requires_grad_()
        error = (curves(fw.stack.views(block, LAYOUT), x) - (pace * x).sin()).square().mean((1, 2))
        optimiser.grad.copy_(torch.autograd.grad(error.sum(), block)[0])
        step_()
    print(f"error of the easiest curve {error[0].item():.4f}, of the hardest {error[-1].item():.4f}")


if __name__ == "__main__":
    main()
