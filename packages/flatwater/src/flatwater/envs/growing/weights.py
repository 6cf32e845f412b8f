"""Stacked weights of all hosts, or of the seeds in one slot of all hosts, with their optimizer: blocks [E, n].

A host is a network in training; a seed is a module that grows in one of its slots.
"""

from collections.abc import Sequence
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from flatwater.nets.stack import Layout, Params, views
from flatwater.state.allocation import filled_tensor
from flatwater.state.tree import derived_field, state

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
MOMENTUM = 0.9
"""Momentum of SGD; the constants above are Adam's."""


@state
class StackedMoments:
    """The optimizer's state for one block of weights: every host's row has its own moments and number of updates."""

    exp_avg: Float[Tensor, "E n"]
    """Adam's first moment, or the momentum of SGD."""
    exp_avg_sq: Float[Tensor, "E m"]
    """Adam's second moment; m = 0 with SGD."""
    updates: Float[Tensor, " E"]
    """Number of updates that the moments have seen, float32."""


@state
class StackedWeights:
    """A block of weights with a row for each host, and what its training and rollback need."""

    weights: Float[Tensor, "E n"]
    good: Float[Tensor, "E n"]
    """The weights of each host after its last step with a good loss, for a rollback."""
    moments: StackedMoments
    grad: Float[Tensor, "E n"] = derived_field()
    """Gradient of the last update."""


def build_weights(hosts: int, layout: Layout, *, has_adam: bool, device: torch.device) -> StackedWeights:
    """Return weights, moments and gradients of zero.

    Args:
        hosts: number of hosts, E.
        layout: names and shapes of one host's weights, n numbers in all.
        has_adam: whether the optimizer is Adam, which has second moments; else it is SGD with momentum.
        device: device of the tensors; `meta` makes a plan.
    """
    zeros = partial(filled_tensor, 0, device=device)
    size = layout.size
    moments = StackedMoments(
        exp_avg=zeros(hosts, size), exp_avg_sq=zeros(hosts, size if has_adam else 0), updates=zeros(hosts)
    )
    return StackedWeights(weights=zeros(hosts, size), good=zeros(hosts, size), moments=moments, grad=zeros(hosts, size))


def autograd_leaves(part: StackedWeights, layout: Layout) -> dict[str, Tensor]:
    """Return the weights by name, each [E, *shape], as new leaves of autograd that share the storage."""
    return {name: weight.detach().requires_grad_() for name, weight in views(part.weights, layout).items()}


def write_gradients_(
    parts: Sequence[StackedWeights], layouts: Sequence[Layout], weights: Sequence[Params], loss: Tensor
) -> None:
    """Write the gradients of a loss to each part's `grad`.

    Args:
        parts: their `grad` is overwritten.
        layouts: names and shapes of each part's weights.
        weights: results of `autograd_leaves` for each part, from which the loss was computed.
        loss: a single number, which must depend on every weight.
    """
    # Parts and names in order, so that the gradients come in the order of the views below.
    leaves = [weight for part_weights in weights for weight in part_weights.values()]
    grads = iter(torch.autograd.grad(loss, leaves))
    for part, layout in zip(parts, layouts, strict=True):
        for grad in views(part.grad, layout).values():
            grad.copy_(next(grads))


def reset_moments_(stack: StackedWeights, is_chosen: Bool[Tensor, " E"]) -> None:
    """Zero the moments of the chosen hosts, and their numbers of updates."""
    moments = stack.moments
    moments.exp_avg.masked_fill_(is_chosen[:, None], 0)
    moments.exp_avg_sq.masked_fill_(is_chosen[:, None], 0)
    moments.updates.masked_fill_(is_chosen, 0)


def step_optimizer_(stack: StackedWeights, *, lr: float, learns: Bool[Tensor, " E"]) -> None:
    """Update every row once, by torch's fused kernels, which need no memory of their own.

    Rows that do not learn have zero gradients and zero moments, which both kernels turn into a step of exactly zero.

    Args:
        stack: weights, moments and counts are updated in place; Adam where it has second moments, else SGD.
        lr: learning rate of all rows.
        learns: rows whose updates are counted.
    """
    moments = stack.moments
    # Counted before the kernels, which read the counts for their bias correction.
    moments.updates.add_(learns)
    # A tensor for each row, as the kernels take one count of updates for each tensor.
    weights = [*stack.weights.unbind()]
    grads = [*stack.grad.unbind()]
    exp_avgs = [*moments.exp_avg.unbind()]
    if moments.exp_avg_sq.numel():  # Adam
        # At least 1: with a count of 0 the kernel would divide by the bias correction 1 - beta ** 0, which is 0.
        counts = [*moments.updates.clamp(min=1).unbind()]
        torch._fused_adam_(
            weights,
            grads,
            exp_avgs,
            [*moments.exp_avg_sq.unbind()],
            [],  # maxima of the second moments, which only AMSGrad has
            counts,
            lr=lr,
            beta1=BETA1,
            beta2=BETA2,
            weight_decay=0.0,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )
    else:
        torch._fused_sgd_(
            weights,
            grads,
            exp_avgs,
            weight_decay=0.0,
            momentum=MOMENTUM,
            lr=lr,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=False,  # momenta of zero make the first step like any other
        )
