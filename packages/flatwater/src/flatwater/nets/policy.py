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

The first policy is then nearly uniform over the legal actions.
"""
UNIT_GAIN_DIVISOR = 3.0
"""Divisor of the fan-in with which weights keep a signal's variance. With twice as large a divisor they double it,
which tanh layers need: the gain of the square root of 2 that is usual for PPO (Huang et al. 2022)."""
CLIP_DEVIATIONS = 5.0
"""Deviations that a normalised observation is cut to: a column that had been constant so far stays harmless."""
NARROW_DEVIATION = 0.5
"""Columns of observations with a smaller deviation are stretched to this deviation."""
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
    """An LSTM policy as a pure function of its weights; the memory is an argument and a result."""

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
        """Names, shapes and initial ranges of the weights, in the order in which they lie in the policy's row."""
        gates = 4 * self.cells  # of input, forgetting and output, and the update
        features = self.hidden + self.cells
        return Layout(
            linear("encoder", self.obs, self.hidden)
            | {
                "gates.seen": Weight((self.hidden, gates), fan_in=features),
                "gates.remembered": Weight((self.cells, gates), fan_in=features),
                "gates.bias": Weight((gates,), fan_in=0),
                "action.weight": Weight((features, self.outputs), fan_in=SMALL_HEAD_FACTOR * features),
                "action.bias": Weight((self.outputs,), fan_in=0),
                "value.weight": Weight((features, 1), fan_in=features),
                "value.bias": Weight((1,), fan_in=0),
            }
        )

    def __call__(
        self,
        weights: Weights,
        obs: Float[Tensor, "T B O"],
        memory: Float[Tensor, "2 B M"],
        starts: Bool[Tensor, "T B"] | None = None,
    ) -> PolicyOutput:
        """Return the outputs of T consecutive steps.

        Args:
            weights: the weights by name.
            obs: normalised observations.
            memory: memory before the first step.
            starts: mask of rows where an episode begins, with an empty memory; None if no episode begins.
        """
        encoded_obs = ACTIVATIONS[self.activation](_apply_layer(weights, "encoder", obs))
        # The observations' part of the gates is one product for all T steps; the memory's part is added step by step.
        gates = encoded_obs @ weights["gates.seen"] + weights["gates.bias"]
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
        # The heads read the observation as well as the memory, so that reactions need no memory.
        features = torch.cat([encoded_obs, torch.stack(outputs)], dim=-1)
        value = _apply_layer(weights, "value", features).squeeze(-1)
        logits = _apply_layer(weights, "action", features)
        return PolicyOutput(logits, value, memory=torch.stack([output, cell]))


@dataclass(frozen=True)
class FeedForwardPolicy:
    """Actor and critic without a memory, with separate or shared layers; called like `RecurrentPolicy`."""

    obs: int
    """Numbers in an observation, O."""
    layers: tuple[int, ...]
    """Widths of the hidden layers."""
    outputs: int
    """Outputs of the policy, R."""
    free: int
    """Number of the last outputs that are free weights, which do not depend on the observation."""
    cells: int = 0
    """Cells of memory, M: none."""
    activation: Activation = "tanh"
    """Function behind each layer."""
    shared: bool = False
    """Whether actor and critic read the same layers."""
    free_start: float = 0.0
    """First value of the free weights."""

    @cached_property
    def layout(self) -> Layout:
        """Names, shapes and initial ranges of the weights, in the order in which they lie in the policy's row."""
        weights: dict[str, Weight] = {}
        widths = (self.obs, *self.layers)
        # (name, outputs, factor on the fan-in): the action head starts near 0, the value head keeps the variance of its
        # input.
        heads = (
            ("action", self.outputs - self.free, SMALL_HEAD_FACTOR),
            ("value", 1, 1 / UNIT_GAIN_DIVISOR),
        )
        for head, outputs, fan_in_factor in heads:
            for layer, (inputs, width) in enumerate(pairwise(widths)):
                # Shared layers have one name for both heads. Hidden layers double the variance, for tanh.
                name = f"{self._trunk(head)}.{layer}"
                weights[f"{name}.weight"] = Weight((inputs, width), fan_in=inputs / (2 * UNIT_GAIN_DIVISOR))
                weights[f"{name}.bias"] = Weight((width,), fan_in=0)
            weights[f"{head}.weight"] = Weight((widths[-1], outputs), fan_in=fan_in_factor * widths[-1])
            weights[f"{head}.bias"] = Weight((outputs,), fan_in=0)
        if self.free:
            weights["free"] = Weight((self.free,), fan_in=0, start=self.free_start)
        return Layout(weights)

    def __call__(
        self,
        weights: Weights,
        obs: Float[Tensor, "T B O"],
        memory: Float[Tensor, "2 B 0"],
        starts: Bool[Tensor, "T B"] | None = None,  # noqa: ARG002  (there is nothing to forget)
    ) -> PolicyOutput:
        """Return the outputs of T steps, which do not depend on each other.

        Args:
            weights: the weights by name.
            obs: observations embedded by `ActorCritic.embed_observation`.
            memory: an empty memory, which is returned as it is.
            starts: not read, as there is nothing to forget.
        """
        rows = obs.flatten(0, 1)
        features = self._features(weights, "action", rows)
        value_features = features if self.shared else self._features(weights, "value", rows)
        outputs = self._outputs(weights, features)
        value = _apply_head(weights, "value", value_features)
        return PolicyOutput(logits=outputs.view(*obs.shape[:2], -1), value=value.view(obs.shape[:2]), memory=memory)

    def action_outputs(self, weights: Weights, obs: Float[Tensor, "B O"]) -> Float[Tensor, "B R"]:
        """Return the actor's outputs, without the critic's value."""
        return self._outputs(weights, self._features(weights, "action", obs))

    def _outputs(self, weights: Weights, features: Float[Tensor, "B H"]) -> Float[Tensor, "B R"]:
        """Return the action head's outputs, followed by the free weights, which are the same in each row."""
        outputs = _apply_head(weights, "action", features)
        return torch.cat([outputs, weights["free"].expand(outputs.shape[0], -1)], dim=-1) if self.free else outputs

    def _features(self, weights: Weights, head: str, x: Float[Tensor, "B O"]) -> Float[Tensor, "B H"]:
        """Return the last hidden layer of a head, `action` or `value`."""
        trunk = self._trunk(head)
        activate = ACTIVATIONS[self.activation]
        for layer in range(len(self.layers)):
            x = activate(torch.addmm(weights[f"{trunk}.{layer}.bias"], x, weights[f"{trunk}.{layer}.weight"]))
        return x

    def _trunk(self, head: str) -> str:
        """Return the prefix of the names of a head's hidden layers."""
        return "shared" if self.shared else head


def _apply_head(weights: Weights, head: str, features: Float[Tensor, "B H"]) -> Float[Tensor, "B _"]:
    """Return the output of the linear layer of a head, `action` or `value`."""
    return torch.addmm(weights[f"{head}.bias"], features, weights[f"{head}.weight"])


def _apply_layer(weights: Weights, name: str, x: Tensor) -> Tensor:
    """Return the output [T, B, out] of the linear layer `name` on inputs [T, B, in]."""
    return x @ weights[f"{name}.weight"] + weights[f"{name}.bias"]


MEAN, VARIANCE, COUNT, MEASURED = ("obs.mean", "obs.variance", "obs.count", "obs.measured")
"""Names of the observations' statistics among the weights; `MEASURED` marks the columns that may be stretched."""


def build_statistics(obs: int, measures: Sequence[int], device: torch.device) -> dict[str, Tensor]:
    """Return the statistics of no observations yet: mean 0, variance 1 and count 0.

    Args:
        obs: numbers in an observation, O.
        measures: positions of the numbers that may be stretched; with all O of them, `MEASURED` is left out.
        device: device of the statistics.

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
    """Merge a batch, if it has rows, into the running mean, variance and count (Chan, Golub & LeVeque 1979).

    Call it between rounds only: new statistics change what the policy returns for the same observation, so that PPO's
    probability ratios would no longer start at 1.
    """
    rows = obs.flatten(0, -2)
    mean, variance, count = statistics[MEAN], statistics[VARIANCE], statistics[COUNT]
    batch_size = rows.shape[0]
    if not batch_size:
        return
    batch_share = batch_size / (count + batch_size)  # of all rows so far, those of the batch
    # Uncorrected variances merge exactly; corrected variances do not.
    batch_variance, batch_mean = torch.var_mean(rows, dim=0, correction=0)
    shift = batch_mean - mean
    # variance + share (batch variance - variance) + share (1 - share) shift^2. The share is float64, like the count;
    # `lerp_` takes a weight of the variance's type.
    variance.lerp_(batch_variance, batch_share.float()).add_(shift.square() * (batch_share * (1 - batch_share)))
    mean.add_(shift * batch_share)
    count.add_(batch_size)


def normalise_obs(statistics: Mapping[str, Tensor], obs: Float[Tensor, "*N O"]) -> Float[Tensor, "*N O"]:
    """Return observations in deviations from their running means, clipped to `CLIP_DEVIATIONS`."""
    deviations = (obs - statistics[MEAN]) * (statistics[VARIANCE] + VARIANCE_EPSILON).rsqrt()
    return deviations.clamp(-CLIP_DEVIATIONS, CLIP_DEVIATIONS)


def stretch_columns(statistics: Mapping[str, Tensor], obs: Float[Tensor, "*N O"]) -> Float[Tensor, "*N O"]:
    """Return observations with narrow columns stretched about their mean to a deviation of `NARROW_DEVIATION`.

    Stretched numbers are at most `CLIP_DEVIATIONS` from the mean. Wide columns stay as they are: when all columns were
    normalised, some trained policies were lost again (`docs/adr/0021-one-ppo-for-worlds.md`).
    """
    mean = statistics[MEAN]
    scale = (statistics[VARIANCE] + VARIANCE_EPSILON).sqrt() / NARROW_DEVIATION
    is_narrow = scale < 1
    # The places of a choice are no measured numbers, and are never stretched.
    if MEASURED in statistics:
        is_narrow &= statistics[MEASURED]
    stretched_obs = mean + ((obs - mean) / scale).clamp(-CLIP_DEVIATIONS, CLIP_DEVIATIONS)
    return torch.where(is_narrow, stretched_obs, obs)
