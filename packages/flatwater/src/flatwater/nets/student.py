"""A student: a policy, recurrent or not, that reads tokens, a vector, images or what a module reads.

Axes: T steps, B agents, K tokens, R rows of the table, D numbers of a row.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from flatwater.nets.actions import Actions
from flatwater.nets.config import StudentConfig
from flatwater.nets.module_encoder import ModuleEncoder
from flatwater.nets.observation import count_numbers, numbers_in
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


@dataclass(frozen=True)
class StudentStep:
    """Output of a student on one step of each agent."""

    logits: Float[Tensor, "B R"]
    value: Float[Tensor, "B"] | None
    """Value of the state; None if it can be computed at any later time."""
    memory: Float[Tensor, "2 B M"]
    """Memory after the step."""


@dataclass(frozen=True)
class Student:
    """Pure functions of the weights."""

    obs: tuple[int, ...]
    """Shape of an observation: tokens [K, 3], a vector [N], or bytes."""
    actions: Actions
    padding: int
    """Position that marks a token as padding."""
    config: StudentConfig
    device: torch.device
    measures: tuple[int, ...] = ()
    """Positions of a vector's numbers that are read by statistics of them so far, which are kept with the weights
    (`build_statistics`): those that hardly differ are stretched."""
    deviations: bool = False
    """Whether a vector's numbers are read by deviations from their means so far, and not by their logarithms."""
    lowered: bool = False
    """Whether the policy takes products in bfloat16, to act and to learn: ratios of probabilities would start away
    from 1 otherwise. Its outputs have the type of the memory that it is given."""
    plain: bool = False
    """Whether a vector's numbers are read as they are."""
    encoder: ModuleEncoder | None = None
    """The module that reads observations, where there is one: of images always."""

    @property
    def sees_tokens(self) -> bool:
        """Whether an observation is a list of tokens that are looked up in a table."""
        return self.encoder is None and len(self.obs) > 1

    @property
    def numbers(self) -> int:
        """Numbers of an observation that are neither tokens nor in an image."""
        return self.obs[0] if self.encoder is None else count_numbers(self.encoder.parts)

    @property
    def values_later(self) -> bool:
        """Whether values are computed after a block, of all its steps in one pass.

        They are where nothing is remembered; but a module would read the observations a second time for them.
        """
        return self.encoder is None and not self.config.memory

    @property
    def inputs(self) -> int:
        """Numbers that the policy is given of an observation."""
        if self.encoder is not None:
            return self.encoder.features
        return self.config.width if self.sees_tokens else self.obs[0]

    @cached_property
    def policy(self) -> RecurrentPolicy | FeedForwardPolicy:
        """The network behind the reading of an observation."""
        config, actions, inputs = self.config, self.actions, self.inputs
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
        """The weights of what reads an observation, if it has any, and the policy's."""
        if self.encoder is not None:
            return Layout(dict(self.encoder.layout.weights) | dict(self.policy.layout.weights))
        if not self.sees_tokens:
            return self.policy.layout
        table = Weight((self.config.rows + 1, self.config.width), self.obs[0])
        return Layout({"tokens": table} | dict(self.policy.layout.weights))

    def measured(self, numbers: Float[Tensor, "*N O"]) -> Float[Tensor, "*N O"]:
        """Return numbers on the scale on which statistics of them are kept."""
        return numbers if self.deviations else symlog(numbers)

    def read_numbers(self, obs: Tensor) -> Float[Tensor, "*N O"]:
        """Return the numbers of observations that are neither tokens nor in an image."""
        if obs.dtype != torch.uint8:
            return obs
        numbers: Tensor = numbers_in(obs, () if self.encoder is None else self.encoder.parts, torch.float32)
        return numbers

    def embed_observation(self, weights: Weights, obs: Tensor, *, learning: bool = False) -> Float[Tensor, "T B O"]:
        """Return the policy's input for observations [T, B, *obs].

        The sum of the tokens' rows is normalised (Ba et al. 2016), as observations have different numbers of tokens.

        Args:
            weights: the weights by name, with statistics and buffers.
            obs: observations, as the world shows them.
            learning: whether a module that reads them is in training mode.
        """
        if self.encoder is not None:
            rows = obs.flatten(0, 1).flatten(1)
            numbers = self._scale_numbers(weights, self.read_numbers(rows))
            pixels = rows if rows.dtype == torch.uint8 else None
            with bfloat16_autocast(obs.device, wanted=self.lowered):
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
        if self.plain:
            return numbers
        if self.deviations:
            return normalise_obs(weights, numbers)
        return stretch_columns(weights, symlog(numbers)) if self.measures else symlog(numbers)

    def choose(
        self, weights: Weights, obs: Tensor, memory: Float[Tensor, "2 B M"], starts: Bool[Tensor, "B"]
    ) -> StudentStep:
        """Return outputs on one observation of each agent, [B, *obs], without the critic where it is asked later.

        Args:
            weights: the weights by name, with the observations' statistics where these are read.
            obs: one observation of each agent, as its world shows it.
            memory: memory before the step; its type is that of the results.
            starts: mask of rows where an episode begins, with an empty memory.
        """
        return self.choose_read(weights, self.embed_observation(weights, obs.unsqueeze(0)), memory, starts)

    def choose_read(
        self, weights: Weights, read: Float[Tensor, "1 B O"], memory: Float[Tensor, "2 B M"], starts: Bool[Tensor, "B"]
    ) -> StudentStep:
        """Return `choose` on observations that `embed_observation` has read.

        Args:
            weights: the weights by name, with the observations' statistics where these are read.
            read: result of `embed_observation` for one step.
            memory: memory before the step; its type is that of the results.
            starts: mask of rows where an episode begins, with an empty memory.
        """
        if self.values_later and isinstance(self.policy, FeedForwardPolicy):
            with bfloat16_autocast(memory.device, wanted=self.lowered):
                return StudentStep(self.policy.choose(weights, read[0]).to(memory.dtype), None, memory)
        output = self._apply_policy(weights, read, memory, starts.unsqueeze(0))
        return StudentStep(output.logits[0], output.value[0], output.memory)

    def __call__(
        self,
        weights: Weights,
        obs: Tensor,
        memory: Float[Tensor, "2 B M"],
        starts: Bool[Tensor, "T B"],
        *,
        learning: bool = False,
    ) -> PolicyOutput:
        """Run T steps in order, as `RecurrentPolicy` does.

        Args:
            weights: the weights by name, with the observations' statistics where these are read.
            obs: observations [T, B, *obs], as the world shows them.
            memory: memory before the step 0; its type is that of the results.
            starts: mask of rows where an episode begins, with an empty memory.
            learning: whether a module that reads observations is in training mode.
        """
        return self._apply_policy(weights, self.embed_observation(weights, obs, learning=learning), memory, starts)

    def _apply_policy(
        self, weights: Weights, read: Tensor, memory: Float[Tensor, "2 B M"], starts: Tensor
    ) -> PolicyOutput:
        """Return the policy's output on embedded observations, in the precision of `memory`.

        Args:
            weights: the weights by name, with the observations' statistics where these are read.
            read: results of `embed_observation`, [T, B, O].
            memory: memory before the step 0; its type is that of the results.
            starts: bool [T, B], where an episode begins, with an empty memory.
        """
        with bfloat16_autocast(memory.device, wanted=self.lowered):
            output = self.policy(weights, read, memory, starts)
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
