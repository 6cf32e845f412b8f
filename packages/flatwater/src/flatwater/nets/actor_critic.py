"""The network of PPO: an actor-critic, recurrent or not, that reads tokens, a vector, images or a module's input.

Axes: T steps, B agents, K tokens, R rows of the table, D numbers of a row.
"""

from dataclasses import dataclass
from functools import cached_property
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
"""Scale on which numbers are read: `symlog`, deviations from their means so far, or as they are."""


@dataclass(frozen=True)
class ActorCriticStep:
    """Output of the network on one step of each agent."""

    logits: Float[Tensor, "B R"]
    value: Float[Tensor, "B"] | None
    """Value of the state; None if it is computed after the block (`ActorCritic.values_later`)."""
    memory: Float[Tensor, "2 B M"]
    """Memory after the step."""


@dataclass(frozen=True)
class ActorCritic:
    """A recurrent or feed-forward actor-critic, as pure functions of its weights.

    Its methods share these arguments: `weights` are the weights by name, with the statistics of observations where
    these are read; `memory` is the memory before the first step, whose dtype is that of the results; `starts` marks the
    rows where an episode begins, with an empty memory.
    """

    obs: tuple[int, ...]
    """Shape of an observation: tokens [K, 3], a vector [N], or bytes."""
    actions: Actions
    padding: int
    """Position that marks a token as padding."""
    config: ActorCriticConfig
    device: torch.device
    measures: tuple[int, ...] = ()
    """Positions of a vector's numbers that are read by statistics of them so far, which are kept with the weights
    (`build_statistics`)."""
    scaling: Scaling = "logarithms"
    """Scale on which the network reads numbers; logarithms of `measures` that hardly differ are stretched."""
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
    def values_later(self) -> bool:
        """Whether values and log-probabilities are computed after a block, for all its steps in one pass.

        They are if there is no memory; but a module would read the observations a second time for them.
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
        """The network that takes the embedding of an observation."""
        config, actions, inputs = self.config, self.actions, self.embedding_size
        if not config.memory:
            return FeedForwardPolicy(
                obs=inputs,
                layers=config.layers,
                outputs=actions.outputs,
                free=actions.free,
                activation=config.activation,
                shared=config.heads == "shared",
            )
        return RecurrentPolicy(inputs, config.hidden, config.memory, actions.outputs, config.activation)

    @cached_property
    def layout(self) -> Layout:
        """The weights that embed an observation, if there are any, and the policy's."""
        if self.encoder is not None:
            return Layout(dict(self.encoder.layout.weights) | dict(self.policy.layout.weights))
        if not self.sees_tokens:
            return self.policy.layout
        table = Weight((self.config.rows + 1, self.config.width), self.obs[0])
        return Layout({"tokens": table} | dict(self.policy.layout.weights))

    def scale_for_statistics(self, numbers: Float[Tensor, "*N O"]) -> Float[Tensor, "*N O"]:
        """Return numbers on the scale on which statistics of them are kept."""
        return numbers if self.scaling == "deviations" else symlog(numbers)

    def read_numbers(self, obs: Tensor) -> Float[Tensor, "*N O"]:
        """Return the numbers of observations that are neither tokens nor in an image."""
        if obs.dtype != torch.uint8:
            return obs
        numbers: Tensor = view_numbers(obs, () if self.encoder is None else self.encoder.parts, torch.float32)
        return numbers

    def embed_observation(self, weights: Weights, obs: Tensor, *, learning: bool = False) -> Float[Tensor, "T B O"]:
        """Return the policy's input for observations [T, B, *obs].

        The sum of the tokens' rows is normalised (Ba et al. 2016), as observations have different numbers of tokens.
        With `learning` a module that reads them is in training mode.
        """
        if self.encoder is not None:
            rows = obs.flatten(0, 1).flatten(1)
            numbers = self._scale_numbers(weights, self.read_numbers(rows))
            pixels = rows if rows.dtype == torch.uint8 else None
            with bfloat16_autocast(obs.device, enabled=self.autocast_bfloat16):
                features = self.encoder(weights, numbers, pixels, learning=learning)
            return features.float().view(*obs.shape[:2], -1)
        if not self.sees_tokens:
            return self._scale_numbers(weights, obs)
        bags = token_rows(obs, self.config.rows, self.padding).flatten(0, 1)
        # Padding adds nothing and gets no gradient: the table has one row more for it.
        row_sums = functional.embedding_bag(bags, weights["tokens"], mode="sum", padding_idx=self.config.rows)
        return functional.layer_norm(row_sums, row_sums.shape[-1:]).relu().view(*obs.shape[:2], -1)

    def _scale_numbers(self, weights: Weights, numbers: Float[Tensor, "*N O"]) -> Float[Tensor, "*N O"]:
        """Return numbers as the network reads them: deviations, logarithms, or as they are."""
        if self.scaling == "none":
            return numbers
        if self.scaling == "deviations":
            return normalise_obs(weights, numbers)
        return stretch_columns(weights, symlog(numbers)) if self.measures else symlog(numbers)

    def run_step(
        self, weights: Weights, obs: Tensor, memory: Float[Tensor, "2 B M"], starts: Bool[Tensor, "B"]
    ) -> ActorCriticStep:
        """Return outputs on one observation of each agent, [B, *obs]: without values if they are computed later."""
        return self.run_embedded_step(weights, self.embed_observation(weights, obs.unsqueeze(0)), memory, starts)

    def run_embedded_step(
        self,
        weights: Weights,
        embedding: Float[Tensor, "1 B O"],
        memory: Float[Tensor, "2 B M"],
        starts: Bool[Tensor, "B"],
    ) -> ActorCriticStep:
        """Return the outputs of `run_step`, given the result of `embed_observation` for its observations."""
        if self.values_later and isinstance(self.policy, FeedForwardPolicy):
            with bfloat16_autocast(memory.device, enabled=self.autocast_bfloat16):
                return ActorCriticStep(self.policy.action_outputs(weights, embedding[0]).to(memory.dtype), None, memory)
        output = self._apply_policy(weights, embedding, memory, starts.unsqueeze(0))
        return ActorCriticStep(output.logits[0], output.value[0], output.memory)

    def __call__(
        self,
        weights: Weights,
        obs: Tensor,
        memory: Float[Tensor, "2 B M"],
        starts: Bool[Tensor, "T B"],
        *,
        learning: bool = False,
    ) -> PolicyOutput:
        """Return the outputs of T steps in order on observations [T, B, *obs], as `RecurrentPolicy` does.

        With `learning` a module that reads observations is in training mode.
        """
        return self._apply_policy(weights, self.embed_observation(weights, obs, learning=learning), memory, starts)

    def _apply_policy(
        self, weights: Weights, embedding: Float[Tensor, "T B O"], memory: Float[Tensor, "2 B M"], starts: Tensor
    ) -> PolicyOutput:
        """Return the policy's outputs on embedded observations of T steps, in the precision of `memory`."""
        with bfloat16_autocast(memory.device, enabled=self.autocast_bfloat16):
            output = self.policy(weights, embedding, memory, starts)
        return PolicyOutput(*(tensor.to(memory.dtype) for tensor in (output.logits, output.value, output.memory)))


def token_rows(tokens: Int[Tensor, "*N K 3"], rows: int, padding: int) -> Int[Tensor, "*N K"]:
    """Return the row of the table for each token, by its hash: position, feature and value together are one word.

    Two words may fall into one row (Weinberger et al. 2009). Padding is row `rows`.

    Args:
        tokens: tokens as uint8.
        rows: number of rows of the table, a power of two.
        padding: position that marks a token as padding.
    """
    position, feature, value = tokens.long().unbind(-1)
    word = (position << 16 | feature << 8 | value) + 1
    # A multiplicative hash is best in the top bits of its low word. 25 bits times 32 fit into int64.
    row = (word * FIBONACCI & (1 << WORD) - 1) >> WORD - (rows.bit_length() - 1)
    return row.masked_fill_(position == padding, rows)


def symlog(x: Tensor) -> Tensor:
    """sign(x) log(1 + |x|) (Hafner et al. 2023, eq. 9): large numbers stay readable without statistics of them."""
    return x.abs().log1p() * x.sign()  # not `copysign`, which ONNX does not know
