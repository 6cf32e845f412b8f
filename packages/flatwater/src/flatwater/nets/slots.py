"""The slot where a seed module joins its host: a gate of each host blends the seed's features into the host's.

With h the features, z the seed's output on them, alpha in [0, 1] and train 0 or 1:

    h + alpha (z - h) + train (z - stopgrad z),    z computed from stopgrad h where train is 1

A seed with alpha 0 and train 0 is not there. With train 1 it learns behind the host: the value is exactly h, the seed's
gradient is that of a z added to h, and none of it reaches the host through the seed. With alpha 1 the value is exactly
z. A gate of 0 hides finite numbers only: 0 x NaN is NaN, so the weights of an absent seed must be finite.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import FunctionCtx


class SlotGates(NamedTuple):
    """Masks and gates in which hosts differ, besides their weights."""

    kernel: Float[Tensor, "E K"]
    """Mask of the host's own kernel taps, 0 or 1; unused by hosts without kernels."""
    blueprint: Int[Tensor, "E S"]
    """Kind of each slot's seed."""
    alpha: Float[Tensor, "E S"]
    """Share of the seed's output in the slot's, 0 to 1."""
    train: Float[Tensor, "E S"]
    """1 where the seed learns behind the host."""


def seed_input(h: Float[Tensor, "B E F"], train: Float[Tensor, " E"]) -> Float[Tensor, "B E F"]:
    """Return the features `h` as the seed's input: equal numbers, whose gradient stops for hosts whose `train` is 1."""
    features: Tensor = _ScaledGradient.apply(h, train)  # type: ignore[no-untyped-call]  # torch's own
    return features


def blend_seed(
    h: Float[Tensor, "B E F"], z: Float[Tensor, "B E F"], *, alpha: Float[Tensor, " E"], train: Float[Tensor, " E"]
) -> Float[Tensor, "B E F"]:
    """Return the features after the slot, h + alpha (z - h); with `train` 1 the seed gets the gradient of an added z.

    No gradient reaches the gates.

    Args:
        h: features before the slot, F of each of B images of E hosts.
        z: the seed's output on `seed_input` of them.
        alpha: share of the seed's output, 0 to 1.
        train: 1 where the seed learns behind the host, else 0.
    """
    features: Tensor = _BlendedSeed.apply(h, z, alpha, train)  # type: ignore[no-untyped-call]  # torch's own
    return features


def vmap_seed_input(h: Tensor, train: Tensor) -> Tensor:
    """Return `seed_input` of one host, in operations that `torch.func.vmap` can stack."""
    constant = h.detach()
    # h - constant is exactly 0: the value stays h, and only the gradient is scaled.
    return constant + (1 - train) * (h - constant)


def vmap_blend_seed(h: Tensor, z: Tensor, *, alpha: Tensor, train: Tensor) -> Tensor:
    """Return `blend_seed` of one host, in operations that `torch.func.vmap` can stack.

    Args:
        h: features before the slot, of any shape.
        z: the seed's output on `vmap_seed_input` of them, of the same shape.
        alpha: share of the seed's output, a single number 0 to 1.
        train: a single number, 1 where the seed learns behind the host, else 0.
    """
    # z - z.detach() is exactly 0: with train 1 a gradient reaches the seed, and the value stays h.
    return torch.lerp(h, z, alpha) + train * (z - z.detach())


class _ScaledGradient(torch.autograd.Function):
    """The identity, whose gradient is multiplied by 1 - train of each host."""

    @staticmethod
    def forward(ctx: FunctionCtx, h: Tensor, train: Tensor) -> Tensor:
        """Return the features, and keep `train` for the gradient."""
        ctx.save_for_backward(train)
        # A view, which copies nothing and is still another tensor to autograd than the input.
        return h.view_as(h)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401  (torch's, untyped)
        """Return the gradient of the features, 0 where `train` is 1; no gradient reaches `train`."""
        (train,) = ctx.saved_tensors
        return grads[0] * (1 - train)[:, None], None


class _BlendedSeed(torch.autograd.Function):
    """The slot's formula with an explicit gradient, which takes three passes over the features, not six."""

    @staticmethod
    def forward(ctx: FunctionCtx, h: Tensor, z: Tensor, alpha: Tensor, train: Tensor) -> Tensor:
        """Return h + alpha (z - h), and keep both gates for the gradient.

        Args:
            ctx: torch's; the gates are saved in it.
            h: features before the slot, [B, E, F].
            z: the seed's output, [B, E, F].
            alpha: [E], 0 to 1.
            train: [E], 0 or 1; it changes the gradient alone.
        """
        ctx.save_for_backward(alpha, train)
        # lerp computes h + alpha (z - h) below alpha 0.5 and z - (1 - alpha) (z - h) from there on: exact at both ends.
        return torch.lerp(h, z, alpha[:, None])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:  # noqa: ANN401  (torch's, untyped)
        """Return the gradient of `h`, times 1 - alpha, and that of `z`, times alpha + train; the gates get none."""
        alpha, train = ctx.saved_tensors
        grad = grads[0]
        return grad * (1 - alpha)[:, None], grad * (alpha + train)[:, None], None, None
