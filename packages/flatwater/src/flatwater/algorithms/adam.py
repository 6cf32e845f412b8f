"""AdamW on stacked members: one block of moments, one step count per member (Loshchilov & Hutter 2019, algorithm 2).

Every member steps by itself: its gradient is clipped by its own norm, its count of steps is its own (evolution zeroes
the moments of a replaced member, and the bias correction must start again with them), and a member whose gradient is
not finite leaves out this step, alone.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from flatwater.state.allocation import filled_tensor
from flatwater.state.tree import derived_field, state

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
"""Adam's constants (Kingma & Ba 2015): decay of both moments, and the term that keeps the division finite."""
CLIP_MARGIN = 1e-6
"""Added to the norm before it divides, as in torch.nn.utils.clip_grad_norm_."""


@state
class Adam:
    """The optimiser of one network of every member, allocated whole by `build_adam`."""

    exp_avg: Float[Tensor, "P n"]
    exp_avg_sq: Float[Tensor, "P n"]
    steps: Float[Tensor, "P"]
    """Number of steps that each member's moments have seen; float32, as the fused kernel asks for."""
    grad: Float[Tensor, "P n"] = derived_field()
    """Buffer in which an update accumulates its gradients."""
    skip: Float[Tensor, "P"] = derived_field()
    """1 for a member that leaves out the step being taken."""


def build_adam(members: int, size: int, dtype: torch.dtype, device: torch.device) -> Adam:
    """Return an optimiser whose moments [P, n], gradient [P, n] and step counts [P] are 0.

    Args:
        members: number of members, P.
        size: weights of each member, n.
        dtype: precision of both moments and of the gradient; step counts are float32.
        device: device of all tensors.
    """
    zeros = partial(filled_tensor, 0, device=device, dtype=dtype)
    counts = partial(filled_tensor, 0, device=device, dtype=torch.float32)
    return Adam(
        exp_avg=zeros(members, size),
        exp_avg_sq=zeros(members, size),
        steps=counts(members),
        grad=zeros(members, size),
        skip=counts(members),
    )


Step = Callable[[], tuple[Float[Tensor, "P"], Bool[Tensor, "P"]]]
"""Takes one step of every member; returns each gradient's norm before clipping, and a mask of the finite norms."""


LearningRate = float | Callable[[], float]
"""A learning rate, or a function that gives the rate before each step."""


Span = tuple[int, int]
"""Consecutive members [low, high)."""


def bind_step(
    block: Float[Tensor, "P n"],
    adam: Adam,
    *,
    lr: LearningRate,
    weight_decay: float,
    clip: float,
    groups: Sequence[Span] = (),
) -> Step:
    """Return a function that takes one AdamW step of every member in place, with the gradients in `adam.grad`.

    It returns the norms of the gradients before clipping, [P], and a mask of the finite norms: other members skip it.

    Args:
        block: weights that are trained, a row for each member.
        adam: moments and gradients of the same members.
        lr: learning rate, or a function that gives it before each step.
        weight_decay: decoupled weight decay.
        clip: largest norm of a member's gradient; 0 turns clipping off.
        groups: spans of members whose norms are computed in one call, because the size of a call decides the order in
            which a norm is summed; empty for one call of all members.
    """
    tensors = (block, adam.grad, adam.exp_avg, adam.exp_avg_sq, adam.steps, adam.skip)
    # Views of each member's rows, made once: the storages never move.
    member_rows = list(zip(*(tensor.unbind() for tensor in tensors), strict=True))
    spans = groups or [(0, len(block))]  # one call of all members
    gradients = [adam.grad[low:high] for low, high in spans]

    def step_() -> tuple[Tensor, Tensor]:
        """Step each member whose gradient is finite; return norms [P] before clipping, and a mask of finite norms."""
        norms = [torch.linalg.vector_norm(gradient, dim=1) for gradient in gradients]
        norm = torch.cat(norms) if len(norms) > 1 else norms[0]
        finite = norm < torch.inf  # False for NaN, too; `isfinite` takes six operations
        # Counted before the kernel, which reads the count for its bias correction.
        adam.steps.add_(finite)
        torch.logical_not(finite, out=adam.skip)
        if clip:
            # An infinite norm makes NaN of its row here; `skip` keeps that row out of the weights.
            adam.grad.mul_(clip_factor(norm, clip).unsqueeze(1))
        rate = lr() if callable(lr) else lr
        for rows in member_rows:
            # One member at a time, because `found_inf` skips all tensors of a call; masking the gradients of all
            # members instead takes twice the time.
            _fused_step_(rows, lr=rate, weight_decay=weight_decay)
        return norm, finite

    return step_


def _fused_step_(rows: Sequence[Tensor], *, lr: float, weight_decay: float) -> None:
    """Update one member's weights, the first of its `rows`, with the kernel of `torch.optim.AdamW(fused=True)`."""
    weights, grad, exp_avg, exp_avg_sq, steps, skip = rows
    torch._fused_adamw_(
        [weights],
        [grad],
        [exp_avg],
        [exp_avg_sq],
        [],  # largest second moments, which AMSGrad alone has
        [steps],
        lr=lr,
        beta1=BETA1,
        beta2=BETA2,
        weight_decay=weight_decay,
        eps=EPSILON,
        amsgrad=False,
        maximize=False,
        found_inf=skip,
    )


def clip_factor(norm: Float[Tensor, "P"], clip: float) -> Float[Tensor, "P"]:
    """Return the factor for each member's gradient with which its norm is at most `clip`."""
    return (clip / (norm + CLIP_MARGIN)).clamp(max=1)
