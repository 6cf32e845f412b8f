"""The network of PPO: an actor-critic, recurrent or not, that reads tokens, a vector, images or a module's input.

Axes: T steps, B agents, K tokens, R rows of the table, D numbers of a row.
"""

from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from flatwater.nets.actions import Actions
from flatwater.nets.config import ActorCriticConfig
from flatwater.nets.module_encoder import ModuleEncoder
from flatwater.nets.observation import count_numbers, view_numbers
from flatwater.nets.policy import (
    FeedForwardPolicy,
    PolicyOutput,
    RecurrentPolicy,
    Weights,
    normalise_obs,
    stretch_columns,
)
from flatwater.nets.stack import Layout, Weight, bfloat16_autocast

FIBONACCI = 2654435769
"""2^32 divided by the golden ratio (Knuth, volume 3, section 6.4): consecutive keys fall far apart."""
WORD = 32
"""Bits of a token's hash."""
Scaling = Literal["logarithms", "deviations", "none"]
"""Scale of an observation's numbers as the network reads them: `symlog`, deviations from running means, or raw."""


@dataclass(frozen=True)
class ActorCriticStep:
    """Output of the network on one step of each agent."""

    logits: Float[Tensor, "B R"]
    value: Float[Tensor, "B"] | None
    """Value of the state; None if it is computed after the block (`ActorCritic.evaluates_after_block`)."""
    memory: Float[Tensor, "2 B M"]
    """Memory after the step."""


@dataclass(frozen=True)
class ActorCritic:
    """A recurrent or feed-forward actor-critic, as pure functions of its weights.

    Its methods share these arguments: `weights` has the weights by name, and the statistics of observations if the
    network uses them; `memory` is the memory before the first step, and results have its dtype; `starts` marks the rows
    where an episode begins, with an empty memory.
    """

    obs: tuple[int, ...]
    """Shape of an observation: tokens [K, 3], a vector [N], or bytes."""
    actions: Actions
    padding: int
    """Position that marks a token as padding."""
    config: ActorCriticConfig
    device: torch.device
    measures: tuple[int, ...] = ()
    """Positions of a vector's numbers that are scaled by running statistics, which are kept with the weights
    (`build_statistics`)."""
    scaling: Scaling = "logarithms"
    """Scale of the numbers as the network reads them; among logarithms, narrow columns of `measures` are stretched."""
    autocast_bfloat16: bool = False
    """Whether the policy takes products in bfloat16, to act and to learn: ratios of probabilities would start away
    from 1 otherwise. Its outputs have the type of the memory that it is given."""
    encoder: ModuleEncoder | None = None
    """The module that reads observations; None for tokens and vectors without a module of the user's."""

    @property
    def sees_tokens(self) -> bool:
        """Whether an observation is a list of tokens that are looked up in a table."""
        return self.encoder is None and len(self.obs) > 1

    @property
    def number_count(self) -> int:
        """Count of an observation's numbers that are neither tokens nor in an image."""
        return self.obs[0] if self.encoder is None else count_numbers(self.encoder.parts)

    @property
    def evaluates_after_block(self) -> bool:
        """Whether values and log-probabilities are computed after a block, for all its steps in one pass.

        They are if there is neither a memory nor a module, which would have to read all observations a second time.
        """
        return self.encoder is None and not self.config.memory

    @property
    def embedding_size(self) -> int:
        """Count of the numbers that the policy gets for an observation."""
        if self.encoder is not None:
            return self.encoder.features
        return self.config.width if self.sees_tokens else self.obs[0]

    @cached_property
    def policy(self) -> RecurrentPolicy | FeedForwardPolicy:
        """The network from the embedding of an observation: recurrent if `config.memory` is above 0."""
        config, actions, inputs = self.config, self.actions, self.embedding_size
        if not config.memory:
            return FeedForwardPolicy(
                obs=inputs,
                layers=config.layers,
                outputs=actions.outputs,
                free=actions.free,  # logarithms of deviations, which do not depend on the observation
                activation=config.activation,
                shared=config.heads == "shared",
                free_start=log(config.deviation),
            )
        return RecurrentPolicy(
            obs=inputs,
            hidden=config.hidden,
            cells=config.memory,
            outputs=actions.outputs,
            activation=config.activation,
        )

    @cached_property
    def layout(self) -> Layout:
        """The weights that embed an observation, if there are any, and the policy's."""
        if self.encoder is not None:
            return Layout(dict(self.encoder.layout.weights) | dict(self.policy.layout.weights))
        if not self.sees_tokens:
            return self.policy.layout
        # One row more, for padding. An observation is the sum of as many rows as it has tokens.
        table = Weight((self.config.rows + 1, self.config.width), fan_in=self.obs[0])
        return Layout({"tokens": table} | dict(self.policy.layout.weights))

    def scale_for_statistics(self, numbers: Float[Tensor, "*N O"]) -> Float[Tensor, "*N O"]:
        """Return numbers on the scale of their running statistics: raw for deviations, otherwise `symlog`."""
        return numbers if self.scaling == "deviations" else symlog(numbers)

    def read_numbers(self, obs: Tensor) -> Float[Tensor, "*N O"]:
        """Return the numbers of observations that are neither tokens nor in an image."""
        # Bytes are rows with images, next to which the other numbers are packed, or tokens, which have no such numbers.
        if obs.dtype != torch.uint8:
            return obs
        parts = () if self.encoder is None else self.encoder.parts
        numbers: Tensor = view_numbers(obs, parts, torch.float32)
        return numbers

    def embed_observation(self, weights: Weights, obs: Tensor, *, learning: bool = False) -> Float[Tensor, "T B O"]:
        """Return the policy's input for observations [T, B, *obs]; a module is in training mode while `learning`."""
        if self.encoder is not None:
            rows = obs.flatten(0, 1).flatten(1)
            numbers = self._scale_numbers(weights, self.read_numbers(rows))
            # Without images a row is its numbers alone.
            pixels = rows if rows.dtype == torch.uint8 else None
            with bfloat16_autocast(obs.device, enabled=self.autocast_bfloat16):
                features = self.encoder(weights, numbers, pixels, learning=learning)
            return features.float().view(*obs.shape[:2], -1)
        return self._embed_tokens(weights, obs) if self.sees_tokens else self._scale_numbers(weights, obs)

    def _embed_tokens(self, weights: Weights, obs: Int[Tensor, "T B K 3"]) -> Float[Tensor, "T B O"]:
        """Return for each observation the sum of its tokens' rows in the table, through layer norm and ReLU.

        It is normalised because the number of tokens varies (Ba et al. 2016).
        """
        bags = token_rows(obs, self.config.rows, self.padding).flatten(0, 1)
        # One row past those of tokens, to which `token_rows` sends padding: it adds nothing and gets no gradient.
        padding_row = self.config.rows
        row_sums = functional.embedding_bag(bags, weights["tokens"], mode="sum", padding_idx=padding_row)
        return functional.layer_norm(row_sums, row_sums.shape[-1:]).relu().view(*obs.shape[:2], -1)

    def _scale_numbers(self, weights: Weights, numbers: Float[Tensor, "*N O"]) -> Float[Tensor, "*N O"]:
        """Return numbers on the network's scale: deviations from running means, logarithms, or raw."""
        if self.scaling == "none":
            return numbers
        if self.scaling == "deviations":
            return normalise_obs(weights, numbers)
        # Logarithms; narrow columns of measured numbers are stretched about their running means.
        return stretch_columns(weights, symlog(numbers)) if self.measures else symlog(numbers)

    def run_step(
        self, weights: Weights, obs: Tensor, memory: Float[Tensor, "2 B M"], starts: Bool[Tensor, "B"]
    ) -> ActorCriticStep:
        """Return the outputs for one observation of each agent.

        They have no value if the network computes values after a block (`evaluates_after_block`).

        Args:
            weights: weights of the network by name.
            obs: observations [B, *obs].
            memory: state before the step.
            starts: whether an episode begins with the observation.
        """
        embedding = self.embed_observation(weights, obs.unsqueeze(0))  # of one step, T = 1
        return self.run_embedded_step(weights, embedding, memory, starts)

    def run_embedded_step(
        self,
        weights: Weights,
        embedding: Float[Tensor, "1 B O"],
        memory: Float[Tensor, "2 B M"],
        starts: Bool[Tensor, "B"],
    ) -> ActorCriticStep:
        """Return the outputs of `run_step` for observations that `embed_observation` has embedded already."""
        # The second condition follows from the first, and is for the type checker.
        if self.evaluates_after_block and isinstance(self.policy, FeedForwardPolicy):
            with bfloat16_autocast(memory.device, enabled=self.autocast_bfloat16):
                logits = self.policy.action_outputs(weights, embedding[0])
            return ActorCriticStep(logits=logits.to(memory.dtype), value=None, memory=memory)
        output = self._apply_policy(weights, embedding, memory, starts.unsqueeze(0))
        return ActorCriticStep(logits=output.logits[0], value=output.value[0], memory=output.memory)

    def __call__(
        self,
        weights: Weights,
        obs: Tensor,
        memory: Float[Tensor, "2 B M"],
        starts: Bool[Tensor, "T B"],
        *,
        learning: bool = False,
    ) -> PolicyOutput:
        """Return the outputs of T consecutive steps on observations [T, B, *obs].

        While `learning`, a module that reads observations is in training mode.
        """
        embedding = self.embed_observation(weights, obs, learning=learning)
        return self._apply_policy(weights, embedding, memory, starts)

    def _apply_policy(
        self, weights: Weights, embedding: Float[Tensor, "T B O"], memory: Float[Tensor, "2 B M"], starts: Tensor
    ) -> PolicyOutput:
        """Return the policy's outputs on embedded observations of T steps, in the precision of `memory`."""
        with bfloat16_autocast(memory.device, enabled=self.autocast_bfloat16):
            output = self.policy(weights, embedding, memory, starts)
        dtype = memory.dtype
        return PolicyOutput(output.logits.to(dtype), output.value.to(dtype), output.memory.to(dtype))


def token_rows(tokens: Int[Tensor, "*N K 3"], rows: int, padding: int) -> Int[Tensor, "*N K"]:
    """Return the table row of each token, by a hash of its position, feature and value; padding gets row `rows`.

    Several tokens may share a row (Weinberger et al. 2009).

    Args:
        tokens: tokens as uint8.
        rows: number of rows of the table, a power of two.
        padding: position that marks a token as padding.
    """
    position, feature, value = tokens.long().unbind(-1)
    # The token's three bytes as one number, and 1 more, as the product of 0 would be 0.
    word = ((position << 16) | (feature << 8) | value) + 1
    # A multiplicative hash is best in the top bits of its low 32 bits. 25 bits times 32 bits fit into int64.
    row_bits = rows.bit_length() - 1
    row = ((word * FIBONACCI) & ((1 << WORD) - 1)) >> (WORD - row_bits)
    return row.masked_fill_(position == padding, rows)


def symlog(x: Tensor) -> Tensor:
    """Return sign(x) log(1 + |x|) (Hafner et al. 2023, eq. 9), which scales large numbers without statistics."""
    return x.abs().log1p() * x.sign()  # not `copysign`, which ONNX does not know
