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


def seed_input(features: Float[Tensor, "B E F"], train: Float[Tensor, " E"]) -> Float[Tensor, "B E F"]:
    """Return the features as the seed's input: equal numbers, whose gradient stops for hosts whose `train` is 1."""
    scaled: Tensor = _ScaledGradient.apply(features, train)  # type: ignore[no-untyped-call]  # torch's own
    return scaled


def blend_seed(
    features: Float[Tensor, "B E F"],
    seed_output: Float[Tensor, "B E F"],
    *,
    alpha: Float[Tensor, " E"],
    train: Float[Tensor, " E"],
) -> Float[Tensor, "B E F"]:
    """Return the features after the slot, features + alpha (seed_output - features).

    With `train` 1 the seed gets the gradient of an added term. No gradient reaches the gates.

    Args:
        features: those before the slot, F of each of B images of E hosts.
        seed_output: the seed's output on `seed_input` of them.
        alpha: share of the seed's output, 0 to 1.
        train: 1 where the seed learns behind the host, else 0.
    """
    blended: Tensor = _BlendedSeed.apply(features, seed_output, alpha, train)  # type: ignore[no-untyped-call]  # torch's own
    return blended


def vmap_seed_input(features: Tensor, train: Tensor) -> Tensor:
    """Return `seed_input` of one host, in operations that `torch.func.vmap` can stack."""
    constant = features.detach()
    # The difference is exactly 0: the value stays, and only the gradient is scaled.
    return constant + (1 - train) * (features - constant)


def vmap_blend_seed(features: Tensor, seed_output: Tensor, *, alpha: Tensor, train: Tensor) -> Tensor:
    """Return `blend_seed` of one host, in operations that `torch.func.vmap` can stack.

    Args:
        features: those before the slot, of any shape.
        seed_output: the seed's output on `vmap_seed_input` of them, of the same shape.
        alpha: share of the seed's output, a single number 0 to 1.
        train: a single number, 1 where the seed learns behind the host, else 0.
    """
    # The last difference is exactly 0: with train 1 a gradient reaches the seed, and the value stays.
    return torch.lerp(features, seed_output, alpha) + train * (seed_output - seed_output.detach())


class _ScaledGradient(torch.autograd.Function):
    """The identity, whose gradient is multiplied by 1 - train of each host."""

    @staticmethod
    def forward(ctx: FunctionCtx, features: Tensor, train: Tensor) -> Tensor:
        """Return the features, and keep `train` for the gradient."""
        ctx.save_for_backward(train)
        # A view, which copies nothing and is still another tensor to autograd than the input.
        return features.view_as(features)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401  (torch's, untyped)
        """Return the gradient of the features, 0 where `train` is 1; no gradient reaches `train`."""
        (train,) = ctx.saved_tensors
        return grads[0] * (1 - train)[:, None], None


class _BlendedSeed(torch.autograd.Function):
    """The slot's formula with an explicit gradient, which takes three passes over the features, not six."""

    @staticmethod
    def forward(ctx: FunctionCtx, features: Tensor, seed_output: Tensor, alpha: Tensor, train: Tensor) -> Tensor:
        """Return features + alpha (seed_output - features), and keep both gates for the gradient.

        Args:
            ctx: torch's; the gates are saved in it.
            features: those before the slot, [B, E, F].
            seed_output: the seed's output, [B, E, F].
            alpha: [E], 0 to 1.
            train: [E], 0 or 1; it changes the gradient alone.
        """
        ctx.save_for_backward(alpha, train)
        # lerp computes it from `features` below alpha 0.5, and from `seed_output` from there on: exact at both ends.
        return torch.lerp(features, seed_output, alpha[:, None])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:  # noqa: ANN401  (torch's, untyped)
        """Return the gradients of features, times 1 - alpha, and seed output, times alpha + train; gates get none."""
        alpha, train = ctx.saved_tensors
        grad = grads[0]
        return grad * (1 - alpha)[:, None], grad * (alpha + train)[:, None], None, None
