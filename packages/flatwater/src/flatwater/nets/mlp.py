"""Actor, critic and values of ReLU layers, for agents whose observations are vectors."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import FunctionCtx

from flatwater.nets.actions import mask_logits
from flatwater.nets.stack import Layout, Params, Weight, apply_linear, linear

NARROW_OUTPUTS = 16
"""Batched matrix products with fewer output columns are computed transposed: 4 times as fast at 6 columns (MKL)."""


@dataclass(frozen=True)
class MLPActor:
    """Actions in [-1, 1]: hidden ReLU layers, then tanh."""

    obs: int
    """Numbers in an observation."""
    action: int
    """Numbers in an action."""
    hidden: tuple[int, ...] = (256, 256)
    """Width of each hidden layer."""
    drawn: bool = False
    """Whether actions can be drawn from the policy: then it has a layer for their log-deviations."""

    @cached_property
    def layout(self) -> Layout:
        """The weights of one member."""
        last_width = (self.obs, *self.hidden)[-1]  # of the last hidden layer; without any, of an observation
        deviation = linear("deviation", last_width, self.action) if self.drawn else {}
        return Layout(_linear_weights((self.obs, *self.hidden, self.action)) | deviation)

    def __call__(self, params: Params, obs: Float[Tensor, "P B O"]) -> Float[Tensor, "P B A"]:
        """Return the action on each observation: the mean, if actions can be drawn."""
        x = _apply_hidden_layers(params, obs, len(self.hidden))
        # Layers are named by their numbers: the output layer by the number of hidden ones.
        return _apply_output(params, str(len(self.hidden)), x).tanh()

    def gaussian(
        self, params: Params, obs: Float[Tensor, "P B O"]
    ) -> tuple[Float[Tensor, "P B A"], Float[Tensor, "P B A"]]:
        """Return means and log-deviations of the actions before they are squashed by tanh."""
        x = _apply_hidden_layers(params, obs, len(self.hidden))
        # Layers are named by their numbers: the output layer by the number of hidden ones.
        return _apply_output(params, str(len(self.hidden)), x), _apply_output(params, "deviation", x)


@dataclass(frozen=True)
class MLPValues:
    """Hidden ReLU layers, then a number for each choice of a list: a value, or a logit."""

    obs: int
    """Numbers in an observation."""
    choices: int
    """Length of the list."""
    hidden: tuple[int, ...] = (64, 64)
    """Width of each hidden layer."""
    duelling: bool = False
    """Whether the network has a separate output for the observation's value, and an advantage for each choice."""
    drawn: bool = False
    """Whether the numbers are logits, by which a choice can be drawn."""
    masked: bool = False
    """Whether rows of observations end in a flag for each choice, as `add_mask` writes them: 0 where it is illegal."""

    @cached_property
    def layout(self) -> Layout:
        """Names and shapes of one member's weights; those of `value` are a duelling network's separate output."""
        last_width = (self.obs, *self.hidden)[-1]  # of the last hidden layer; without any, of an observation
        value_weights = linear("value", last_width, 1) if self.duelling else {}
        return Layout(_linear_weights((self.obs, *self.hidden, self.choices)) | value_weights)

    def __call__(self, params: Params, obs: Float[Tensor, "P B O"]) -> Int[Tensor, "P B"]:
        """Return the choice with the largest number in each observation."""
        return self.values(params, obs).argmax(-1)

    def values(self, params: Params, obs: Tensor) -> Float[Tensor, "P B A"]:
        """Return the value (or logit) of every choice, for observations [P, B, ...].

        An illegal choice has `IMPOSSIBLE_LOGIT`.
        """
        if not self.masked:
            return self.unmasked_values(params, obs)
        rows = obs.flatten(2)  # each ends in a flag for each choice
        # Contiguous, as the numbers next to images are a view of aligned bytes.
        values = self.unmasked_values(params, rows[..., : -self.choices].contiguous())
        return mask_logits(values, rows[..., -self.choices :] != 0)

    def unmasked_values(self, params: Params, obs: Float[Tensor, "P B O"]) -> Float[Tensor, "P B A"]:
        """Return the value (or logit) of every choice, for observations without flags of legal choices."""
        x = _apply_hidden_layers(params, obs, len(self.hidden))
        # Layers are named by their numbers: the output layer by the number of hidden ones.
        values = _apply_output(params, str(len(self.hidden)), x)
        if not self.duelling:
            return values
        # Duelling: `values` are advantages. Less their mean, because a constant could move between them and the value.
        return _apply_output(params, "value", x) + values - values.mean(-1, keepdim=True)


def add_mask(obs: Tensor, legal: Bool[Tensor, "B A"] | None) -> Tensor:
    """Return observations as rows that end in the flags of legal choices, [B, N + A]; unchanged without a mask."""
    return obs if legal is None else torch.cat([obs.flatten(1), legal.to(obs.dtype)], 1)


@dataclass(frozen=True)
class MLPCritic:
    """Q of observation and action, side by side through hidden ReLU layers."""

    obs: int
    """Numbers in an observation."""
    action: int
    """Numbers in an action."""
    hidden: tuple[int, ...] = (256, 256)
    """Width of each hidden layer."""

    @cached_property
    def layout(self) -> Layout:
        """The weights of one member. The first layer's matrix is kept in two parts, for observation and action."""
        inputs = self.obs + self.action
        widths = (inputs, *self.hidden, 1)
        obs_part = Weight((self.obs, widths[1]), fan_in=inputs)
        action_part = Weight((self.action, widths[1]), fan_in=inputs)
        return Layout(_linear_weights(widths) | {"0.weight": obs_part, "0.action": action_part})

    def __call__(
        self, params: Params, obs: Float[Tensor, "P B O"], action: Float[Tensor, "P B A"]
    ) -> Float[Tensor, "P B"]:
        """Return the value of each observation and action, of P members on B rows each.

        Args:
            params: weights of the members, each [P, *shape].
            obs: observations.
            action: the action in each of them.
        """
        # In two parts, so that the actor's gradient passes through the action's part of the matrix alone.
        x = torch.baddbmm(apply_linear(params, "0", obs), action, params["0.action"]).relu_()
        for layer in range(1, len(self.hidden)):
            x = apply_linear(params, str(layer), x).relu_()
        head = str(len(self.hidden))  # name of the output layer, which follows the hidden ones
        # Not a matrix product: with one output column a batched product takes 4 times as long.
        return (x * params[f"{head}.weight"].mT).sum(-1) + params[f"{head}.bias"]


def _linear_weights(widths: tuple[int, ...]) -> dict[str, Weight]:
    """Return the weights of linear layers of these widths, by name: `0.weight`, `0.bias`, ..."""
    weights: dict[str, Weight] = {}
    for layer, (inputs, outputs) in enumerate(pairwise(widths)):
        weights |= linear(str(layer), inputs, outputs)
    return weights


def _apply_hidden_layers(params: Params, obs: Float[Tensor, "P B O"], layers: int) -> Float[Tensor, "P B H"]:
    """Return the output of the last of `layers` hidden ReLU layers."""
    x = obs
    for layer in range(layers):
        # ReLU in place: nothing else reads its input, and its gradient reads the result alone.
        x = apply_linear(params, str(layer), x).relu_()
    return x


def _apply_output(params: Params, name: str, x: Float[Tensor, "P B H"]) -> Float[Tensor, "P B A"]:
    """Return the output layer's result, by `NarrowLinear` where that is faster: for few outputs in float32.

    Args:
        params: weights of P members, each [P, *shape].
        name: the layer's name, as in `{name}.weight`.
        x: H features in each of B rows.
    """
    weight, bias = params[f"{name}.weight"], params[f"{name}.bias"]
    # On the meta device torch has no autocast to ask for.
    in_autocast = not x.is_meta and torch.is_autocast_enabled(x.device.type)
    if in_autocast or weight.shape[-1] >= NARROW_OUTPUTS:
        return apply_linear(params, name, x)
    if not torch.is_grad_enabled():
        return _multiply_narrow(x, weight, bias)  # the call of a `Function` takes longer than a product of few rows
    narrow: Tensor = NarrowLinear.apply(x, weight, bias)  # type: ignore[no-untyped-call]  # torch's own
    return narrow


def _multiply_narrow(x: Float[Tensor, "P B H"], weight: Float[Tensor, "P H A"], bias: Float[Tensor, "P A"]) -> Tensor:
    """Return the output [P, B, A] of a linear layer, computed transposed."""
    return torch.baddbmm(bias.unsqueeze(2), weight.mT, x.mT).mT


class NarrowLinear(torch.autograd.Function):
    """A linear layer with few outputs, whose three matrix products are computed transposed where that is faster."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Return the layer's output [P, B, out], as `apply_linear` does.

        Args:
            ctx: torch's; x and the weight are saved in it for the gradient.
            x: [P, B, in], of P members.
            weight: [P, in, out].
            bias: [P, out].
        """
        ctx.save_for_backward(x, weight)
        return _multiply_narrow(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ANN401  (torch's, untyped)
        """Return the gradients of x, weight and bias."""
        (grad,) = grads  # of the output, [P, B, out]
        x, weight = ctx.saved_tensors
        return grad.bmm(weight.mT), grad.mT.bmm(x).mT, grad.sum(1)
