"""A recurrent policy with a critic: normalised observation, one layer, an LSTM, and heads on both.

Axes: T steps, B environments, O numbers in an observation, M cells, R outputs. The network is one; its weights lie in
a block [1, n], a population of one, so that the same optimiser steps it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from flatwater.nets.stack import Layout, Weight, linear

Weights = Mapping[str, Tensor]
"""The weights by name, without the member axis."""

FORGET_BIAS = 1.0
"""Added to the forget gate: a new LSTM remembers until it has learned to forget (Jozefowicz et al. 2015)."""
SMALL_HEAD_FACTOR = 10_000
"""Factor on the fan-in of the action head, so that its weights start at 1/100 of the usual range.

The first policy is then uniform over what is legal.
"""
UNIT_GAIN_DIVISOR = 3.0
"""Divisor of the fan-in with which weights keep a signal's variance. With twice as large a divisor they double it,
which tanh layers need: the gain of the square root of 2 that is usual for PPO (Huang et al. 2022)."""
CLIP_DEVIATIONS = 5.0
"""Deviations that a normalised observation is cut to: a column that had been constant so far stays harmless."""
NARROW_DEVIATION = 0.5
"""Deviation below which a number of an observation is stretched."""
VARIANCE_EPSILON = 1e-4
"""Added to the variance of an observation's column."""


Activation = Literal["tanh", "relu", "silu", "elu", "gelu"]
ACTIVATIONS: Mapping[Activation, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "silu": functional.silu,
    "elu": functional.elu,
    "gelu": functional.gelu,
}


@dataclass(frozen=True)
class PolicyOutput:
    """Output of the policy on some steps."""

    logits: Float[Tensor, "T B R"]
    value: Float[Tensor, "T B"]
    memory: Float[Tensor, "2 B M"]
    """Memory after the last step: the LSTM's output, and its cells."""


@dataclass(frozen=True)
class RecurrentPolicy:
    """Pure functions of the weights; the memory is an argument and a result."""

    obs: int
    """Numbers in an observation, O."""
    hidden: int
    """Width of the layer that reads an observation."""
    cells: int
    """Cells of the LSTM, M."""
    outputs: int
    """Outputs of the policy, R."""
    activation: Activation = "tanh"
    """Function behind the layer that reads an observation."""

    @cached_property
    def layout(self) -> Layout:
        """The weights, as they lie in the block's row."""
        gates, features = 4 * self.cells, self.hidden + self.cells
        return Layout(
            linear("encoder", self.obs, self.hidden)
            | {
                "gates.seen": Weight((self.hidden, gates), features),
                "gates.remembered": Weight((self.cells, gates), features),
                "gates.bias": Weight((gates,), 0),
                "action.weight": Weight((features, self.outputs), SMALL_HEAD_FACTOR * features),
                "action.bias": Weight((self.outputs,), 0),
                "value.weight": Weight((features, 1), features),
                "value.bias": Weight((1,), 0),
            }
        )

    def __call__(
        self,
        weights: Weights,
        obs: Float[Tensor, "T B O"],
        memory: Float[Tensor, "2 B M"],
        starts: Bool[Tensor, "T B"] | None = None,
    ) -> PolicyOutput:
        """Run T steps in order.

        Args:
            weights: the weights by name.
            obs: normalised observations.
            memory: memory before the first step.
            starts: mask of rows where an episode begins, with an empty memory; None if none begins.
        """
        encoded = ACTIVATIONS[self.activation](_apply_layer(weights, "encoder", obs))
        # The observations' part of all T steps is one product; only the memory's part must wait for its turn.
        gates = encoded @ weights["gates.seen"] + weights["gates.bias"]
        output, cell = memory.unbind(0)
        outputs = []
        for t, row in enumerate(gates.unbind(0)):
            if starts is not None:
                begins = starts[t].unsqueeze(-1)
                output = output.masked_fill(begins, 0)
                cell = cell.masked_fill(begins, 0)
            input_gate, forget_gate, output_gate, update = (row + output @ weights["gates.remembered"]).chunk(4, dim=-1)
            cell = torch.sigmoid(forget_gate + FORGET_BIAS) * cell + torch.sigmoid(input_gate) * torch.tanh(update)
            output = torch.sigmoid(output_gate) * torch.tanh(cell)
            outputs.append(output)
        # The heads read the observation as well as the memory, so that what needs no memory is learned without it.
        features = torch.cat([encoded, torch.stack(outputs)], dim=-1)
        value = _apply_layer(weights, "value", features).squeeze(-1)
        return PolicyOutput(_apply_layer(weights, "action", features), value, torch.stack([output, cell]))


@dataclass(frozen=True)
class FeedForwardPolicy:
    """Actor and critic, of layers of their own or of the same, without a memory: the same face as `RecurrentPolicy`."""

    obs: int
    """Numbers in an observation, O."""
    layers: tuple[int, ...]
    """Widths of the hidden layers."""
    outputs: int
    """Outputs of the policy, R."""
    free: int
    """Number of last outputs that are weights, and no function of the observation."""
    cells: int = 0
    """Cells, M: nothing is remembered."""
    activation: Activation = "tanh"
    """Function behind each layer."""
    shared: bool = False
    """Whether actor and critic read the same layers."""

    @cached_property
    def layout(self) -> Layout:
        """The weights, as they lie in the block's row."""
        weights: dict[str, Weight] = {}
        widths = (self.obs, *self.layers)
        for net, outputs, scale in (
            ("action", self.outputs - self.free, SMALL_HEAD_FACTOR),
            ("value", 1, 1 / UNIT_GAIN_DIVISOR),
        ):
            for layer, (inputs, width) in enumerate(pairwise(widths)):
                # Hidden layers double the variance for tanh; the value head keeps it, the action head starts near 0.
                # Shared layers have one name: the critic finds them in their place.
                name = f"{self._trunk(net)}.{layer}"
                weights[f"{name}.weight"] = Weight((inputs, width), inputs / (2 * UNIT_GAIN_DIVISOR))
                weights[f"{name}.bias"] = Weight((width,), 0)
            weights[f"{net}.weight"] = Weight((widths[-1], outputs), scale * widths[-1])
            weights[f"{net}.bias"] = Weight((outputs,), 0)
        return Layout(weights | ({"free": Weight((self.free,), 0)} if self.free else {}))

    def __call__(
        self,
        weights: Weights,
        obs: Float[Tensor, "T B O"],
        memory: Float[Tensor, "2 B 0"],
        starts: Bool[Tensor, "T B"] | None = None,  # noqa: ARG002  (there is nothing to forget)
    ) -> PolicyOutput:
        """Run T steps, each by itself.

        Args:
            weights: the weights by name.
            obs: observations as `ActorCritic.embed_observation` reads them.
            memory: an empty memory, which is returned as it is.
            starts: not read: there is nothing to forget.
        """
        rows = obs.flatten(0, 1)
        features = self._features(weights, "action", rows)
        value_features = features if self.shared else self._features(weights, "value", rows)
        outputs = self._outputs(weights, features)
        value = _apply_head(weights, "value", value_features)
        return PolicyOutput(outputs.view(*obs.shape[:2], -1), value.view(obs.shape[:2]), memory)

    def action_outputs(self, weights: Weights, obs: Float[Tensor, "B O"]) -> Float[Tensor, "B R"]:
        """Return the actor's outputs alone."""
        return self._outputs(weights, self._features(weights, "action", obs))

    def _outputs(self, weights: Weights, features: Float[Tensor, "B H"]) -> Float[Tensor, "B R"]:
        outputs = _apply_head(weights, "action", features)
        return torch.cat([outputs, weights["free"].expand(outputs.shape[0], -1)], dim=-1) if self.free else outputs

    def _features(self, weights: Weights, net: str, x: Float[Tensor, "B O"]) -> Float[Tensor, "B H"]:
        """Return the last layer of the net of this name, `action` or `value`."""
        trunk = self._trunk(net)
        activate = ACTIVATIONS[self.activation]
        for layer in range(len(self.layers)):
            x = activate(torch.addmm(weights[f"{trunk}.{layer}.bias"], x, weights[f"{trunk}.{layer}.weight"]))
        return x

    def _trunk(self, net: str) -> str:
        """Return the name of the layers of a net."""
        return "shared" if self.shared else net


def _apply_head(weights: Weights, net: str, features: Float[Tensor, "B H"]) -> Float[Tensor, "B _"]:
    return torch.addmm(weights[f"{net}.bias"], features, weights[f"{net}.weight"])


def _apply_layer(weights: Weights, name: str, x: Tensor) -> Tensor:
    return x @ weights[f"{name}.weight"] + weights[f"{name}.bias"]


MEAN, VARIANCE, COUNT, MEASURED = ("obs.mean", "obs.variance", "obs.count", "obs.measured")
"""Names of the observations' statistics among the weights; the last marks the numbers that they scale."""


def build_statistics(obs: int, measures: Sequence[int], device: torch.device) -> dict[str, Tensor]:
    """Return mean 0 and variance 1 for every number of an observation, until observations are merged.

    Where only some numbers may be stretched, a row says which.

    Args:
        obs: numbers in an observation, O.
        measures: positions of the numbers that may be stretched; with all O of them there is no such row.
        device: device on which they will lie.

    Returns:
        `MEAN` and `VARIANCE` [O], `COUNT` (a single number), and `MEASURED`, bool [O], if only some may be stretched.
    """
    statistics = {
        MEAN: torch.zeros(obs, device=device),
        VARIANCE: torch.ones(obs, device=device),
        COUNT: torch.zeros((), dtype=torch.float64, device=device),  # float32 stops counting at 16.8 million
    }
    if len(measures) == obs:
        return statistics
    is_measure = torch.zeros(obs, dtype=torch.bool)
    is_measure[list(measures)] = True
    return statistics | {MEASURED: is_measure.to(device)}


def update_running_stats_(statistics: dict[str, Tensor], obs: Float[Tensor, "*N O"]) -> None:
    """Merge a batch into the statistics (Chan, Golub & LeVeque 1979), which then cover all batches together.

    Call it between rounds: a policy whose observations are normalised otherwise while it learns than while it acted is
    another policy, and its probability ratios start away from 1.
    """
    rows = obs.flatten(0, -2)
    new, mean, variance, count = rows.shape[0], statistics[MEAN], statistics[VARIANCE], statistics[COUNT]
    if not new:
        return
    share = new / (count + new)
    # Uncorrected variances merge exactly; corrected variances do not.
    new_variance, new_mean = torch.var_mean(rows, dim=0, correction=0)
    shift = new_mean - mean
    # The share is float64, as the count is; `lerp_` takes a weight of the row's own type.
    variance.lerp_(new_variance, share.float()).add_(shift.square() * (share * (1 - share)))
    mean.add_(shift * share)
    count.add_(new)


def normalise_obs(statistics: Mapping[str, Tensor], obs: Float[Tensor, "*N O"]) -> Float[Tensor, "*N O"]:
    """Return deviations from the mean, within `CLIP_DEVIATIONS`."""
    return ((obs - statistics[MEAN]) * (statistics[VARIANCE] + VARIANCE_EPSILON).rsqrt()).clamp(
        -CLIP_DEVIATIONS, CLIP_DEVIATIONS
    )


def stretch_columns(statistics: Mapping[str, Tensor], obs: Float[Tensor, "*N O"]) -> Float[Tensor, "*N O"]:
    """Return the observation, with narrow columns stretched about their mean to a deviation of `NARROW_DEVIATION`.

    Stretched numbers are cut to `CLIP_DEVIATIONS`.

    Other columns stay as they are: where all were read as deviations from their means, policies that had learned were
    lost again, at learning rates that logarithms allow.
    """
    mean, size = statistics[MEAN], (statistics[VARIANCE] + VARIANCE_EPSILON).sqrt() / NARROW_DEVIATION
    narrow = size < 1
    if MEASURED in statistics:
        narrow &= statistics[MEASURED]
    return torch.where(narrow, mean + ((obs - mean) / size).clamp(-CLIP_DEVIATIONS, CLIP_DEVIATIONS), obs)
