"""Updates of one recurrent policy from a block of sequences: dealt into minibatches, stepped in place, summed up."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flatwater.algorithms.adam import Adam, bind_step
from flatwater.errors import require
from flatwater.learners.graph import as_graph
from flatwater.nets.stack import Layout, views

Weights = Mapping[str, Tensor]
"""By name, without the member axis; leaves of their own, which share the block's storage."""


class SequenceLearner(Protocol):
    """What learns: a state of the tree."""

    block: Float[Tensor, "1 n"]
    """The policy's weights: a population of one."""
    adam: Adam
    order: Int[Tensor, "B"]
    """The sequences, as they are dealt into this epoch's minibatches."""
    rng: torch.Generator
    sums: Float[Tensor, "S"]
    """Of what the loss tells, the gradient's norm, and whether a step was skipped, since they were last read."""
    updates: int
    updates_read: int


class Pace(Protocol):
    """How often and how far it steps."""

    @property
    def minibatches(self) -> int:
        """Parts of the sequences, dealt anew in each epoch."""
        ...

    @property
    def lr(self) -> float:
        """Learning rate."""
        ...

    @property
    def grad_clip(self) -> float:
        """Largest norm of a gradient; 0 for none."""
        ...


Loss = Callable[[Weights, Mapping[str, Tensor], Int[Tensor, "b"]], tuple[Float[Tensor, ""], Sequence[Tensor]]]
"""Of weights, of what it reads, and of some of the sequences: what is minimised, and 0-d tensors to be summed."""


def bind_update(
    pace: Pace,
    layout: Layout,
    learner: SequenceLearner,
    loss: Loss,
    reads: Mapping[str, Tensor],
    *,
    graph: bool = False,
) -> Callable[[int], None]:
    """Bind an update to the learner's storage.

    Args:
        pace: how often and how far it steps.
        layout: of the weights.
        learner: what learns.
        loss: a pure function.
        reads: what it reads besides the weights, by name; the storages never move.
        graph: whether loss and gradient are compiled.

    Returns:
        `update_(number)` learns from minibatch `number % minibatches`; the first of an epoch deals the sequences anew.
        It does not wait for the device.

    Raises:
        ConfigError: the sequences cannot be dealt into equal minibatches.
    """
    whole, parts = len(learner.order), pace.minibatches
    require(whole % parts == 0, "learner.minibatches", parts, f"a divisor of {whole} sequences")
    weights = {name: w[0].detach().requires_grad_() for name, w in views(learner.block, layout).items()}
    step_ = bind_step(learner.block, learner.adam, lr=pace.lr, weight_decay=0.0, clip=pace.grad_clip)

    def gradients(sequences: Int[Tensor, "b"], *tensors: Tensor) -> tuple[Tensor, ...]:
        inside = dict(zip(weights, tensors, strict=False))
        found, told = loss(inside, dict(zip(reads, tensors[len(weights) :], strict=True)), sequences)
        grads = torch.autograd.grad(found, list(inside.values()))
        return torch.stack(list(told)), torch.cat([grad.flatten() for grad in grads])

    learn = as_graph(gradients, wanted=graph and not learner.block.is_meta)  # a plan does without the compiler

    def update_(number: int) -> None:
        part, size = number % parts, whole // parts
        if part == 0:
            torch.randperm(whole, generator=learner.rng, out=learner.order)
        told, grad = learn(learner.order[part * size : (part + 1) * size], *weights.values(), *reads.values())
        learner.adam.grad[0].copy_(grad)
        norm, finite = step_()
        learner.sums.add_(torch.cat([told, norm, ~finite]))
        learner.updates += 1

    return update_


def read_sums_(learner: SequenceLearner, names: Sequence[str]) -> dict[str, float]:
    """Means over the updates since the last reading, by metric name; then the sums start again from zero.

    The one place where the learner waits for its device: once a round. Empty where there was no update.

    Args:
        learner: whose sums are read.
        names: of its rows; `skipped` is counted, and is no mean.
    """
    updates, learner.updates_read = learner.updates - learner.updates_read, learner.updates
    # A copy also where the learner is on the CPU: the sums are zeroed before it is read.
    sums = dict(zip(names, learner.sums.to("cpu", torch.float64, copy=True), strict=True))
    learner.sums.zero_()
    if not updates:
        return {}
    means = {f"train/{name}": float(value) / updates for name, value in sums.items() if name != "skipped"}
    return means | {"train/skipped": float(sums["skipped"])}
