"""Kinds of actions: one choice or several, an operation and its arguments, or continuous numbers.

Each kind has the same interface: the number of the policy's `outputs`, and the `distribution` that they describe, from
which an action is drawn, and which gives the likeliest action and the log-probability of any action.

A mask `legal`, of the same form as the logits, marks the legal choices: an illegal choice has probability 0, is never
drawn, and its logit gets a gradient of exactly 0.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log, tau
from typing import Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

IMPOSSIBLE_LOGIT = -1e9
"""Logit of an illegal choice. Its exp is exactly 0 next to any legal choice; -inf would put NaN into the gradients of a
list without a legal choice, which an operation may have that does not use the list."""
MINIMUM_LOG_DEVIATION, MAXIMUM_LOG_DEVIATION = -5.0, 2.0
"""Bounds of a log-deviation, in units of half a number's range: beyond them gradients are useless."""


def bound_tensors(
    bounds: Sequence[tuple[float, float]] | None, device: torch.device
) -> tuple[Float[Tensor, "D"], Float[Tensor, "D"]]:
    """Return the lowest and the highest value of each number of an action; where actions are choices, [0] for both."""
    low, high = torch.tensor(bounds or [(0.0, 0.0)], dtype=torch.float32, device=device).T
    return low.contiguous(), high.contiguous()


def scale_to_bounds(action: Float[Tensor, "*N D"], low: Tensor, high: Tensor) -> Float[Tensor, "*N D"]:
    """Return actions from [-1, 1] as numbers from `low` to `high`."""
    # Clamped, because rounding may lead a little beyond a bound.
    return clamp_to_bounds(action * ((high - low) / 2) + (low + high) / 2, low, high)


def clamp_to_bounds(action: Float[Tensor, "*N D"], low: Tensor, high: Tensor) -> Float[Tensor, "*N D"]:
    """Return actions moved to the nearest bound where they are beyond it."""
    return torch.minimum(torch.maximum(action, low), high)


class Distribution(Protocol):
    """A distribution over the actions of each row."""

    def sample(self, noise: Tensor) -> Tensor:
        """Return an action of each row, made of the row's random numbers from the actions' `noise_`."""

    def mode(self) -> Tensor:
        """Return the likeliest action of each row."""

    def log_prob(self, action: Tensor) -> Float[Tensor, "*N"]:
        """Return the log-probability of an action of each row; its log-density where actions are numbers."""

    def entropy(self) -> Float[Tensor, "*N"]:
        """Return the entropy of each row."""


class LogitActions(ABC):
    """Actions that are positions in lists, drawn by exponential random numbers."""

    free = 0
    """Number of the policy's outputs that are free weights, which do not depend on the observation."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Number of logits."""

    @property
    def noise(self) -> int:
        """Number of random values that an action is drawn from."""
        return self.outputs

    def noise_(self, out: Float[Tensor, "*N R"], rng: torch.Generator) -> Float[Tensor, "*N R"]:
        """Fill `out` with exponential random numbers, and return it."""
        return out.exponential_(generator=rng)


def mask_logits(logits: Float[Tensor, "*N R"], legal: Bool[Tensor, "*N R"] | None) -> Float[Tensor, "*N R"]:
    """Return the logits, with `IMPOSSIBLE_LOGIT` for illegal choices."""
    return logits if legal is None else logits.masked_fill(~legal, IMPOSSIBLE_LOGIT)


def draw_random_choice(values: Float[Tensor, "*any A"], rng: torch.Generator) -> Int[Tensor, "*any"]:
    """Return a random position in each row, all legal ones equally likely.

    Only the illegal positions are read from `values`: they have `IMPOSSIBLE_LOGIT`.
    """
    # Each choice gets a clock that rings after an exponential time; the legal choice whose clock rings first is drawn.
    clocks = torch.empty_like(values).exponential_(generator=rng)
    return clocks.masked_fill_(values == IMPOSSIBLE_LOGIT, torch.inf).argmin(-1)


@dataclass(frozen=True)
class DiscreteActions(LogitActions):
    """One choice from a list: an action is a position in it, int64 [*N]."""

    size: int
    """Length of the list."""

    @property
    def outputs(self) -> int:
        """Number of logits."""
        return self.size

    def distribution(self, logits: Float[Tensor, "*N R"], legal: Bool[Tensor, "*N R"] | None = None) -> Distribution:
        """Return the distribution that the policy's outputs describe."""
        return Categorical(mask_logits(logits, legal).log_softmax(-1))


@dataclass(frozen=True)
class Categorical:
    """A distribution over a list."""

    log_p: Float[Tensor, "*N R"]

    def sample(self, noise: Float[Tensor, "*N R"]) -> Int[Tensor, "*N"]:
        """Return a position of each row, drawn with its probability p, from exponential random numbers."""
        # p / noise is the largest with probability p, and never where p is 0. torch.multinomial draws in the same way,
        # but waits for the device to check its argument.
        return (self.log_p.exp() / noise).argmax(-1)

    def mode(self) -> Int[Tensor, "*N"]:
        """Return the position of the largest probability."""
        return self.log_p.argmax(-1)

    def log_prob(self, action: Int[Tensor, "*N"]) -> Float[Tensor, "*N"]:
        """Return the log-probability of a position in the list."""
        return self.log_p.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Float[Tensor, "*N"]:
        """Return the entropy of the choice."""
        return -(self.log_p.exp() * self.log_p).sum(-1)


@dataclass(frozen=True)
class MultiDiscreteActions(LogitActions):
    """H independent choices, each from a list of its own: an action is int64 [*N, H]."""

    sizes: tuple[int, ...]
    """Lengths of the lists."""

    @property
    def outputs(self) -> int:
        """Number of logits, list after list."""
        return sum(self.sizes)

    def distribution(self, logits: Float[Tensor, "*N R"], legal: Bool[Tensor, "*N R"] | None = None) -> Distribution:
        """Return the distribution that the policy's outputs describe."""
        lists = mask_logits(logits, legal).split_with_sizes(self.sizes, -1)
        return MultiCategorical(tuple(Categorical(part.log_softmax(-1)) for part in lists))


@dataclass(frozen=True)
class MultiCategorical:
    """A distribution over each list, independent of the others."""

    parts: tuple[Categorical, ...]

    def sample(self, noise: Float[Tensor, "*N R"]) -> Int[Tensor, "*N H"]:
        """Return a choice from each list, drawn by the list's own part of the random numbers."""
        noise_parts = noise.split_with_sizes([part.log_p.shape[-1] for part in self.parts], -1)
        pairs = zip(self.parts, noise_parts, strict=True)
        return torch.stack([part.sample(part_noise) for part, part_noise in pairs], -1)

    def mode(self) -> Int[Tensor, "*N H"]:
        """Return the likeliest choice of each list."""
        return torch.stack([part.mode() for part in self.parts], -1)

    def log_prob(self, action: Int[Tensor, "*N H"]) -> Float[Tensor, "*N"]:
        """Return the log-probability of all choices together."""
        pairs = zip(self.parts, action.unbind(-1), strict=True)
        return torch.stack([part.log_prob(choice) for part, choice in pairs]).sum(0)

    def entropy(self) -> Float[Tensor, "*N"]:
        """Return the entropy of all choices together."""
        return torch.stack([part.entropy() for part in self.parts]).sum(0)


@dataclass(frozen=True)
class OperationActions(LogitActions):
    """An operation, and H further choices of which each operation uses some: an action is int64 [*N, 1 + H].

    Each further choice has logits and a legal mask of its own *for every operation*, since the slot to prune is not the
    slot to plant in. All logits lie side by side in one row, and a mask of legal choices has the same form:

        [ operation: O | first choice: O x C1 | second choice: O x C2 | ... ]
    """

    choices: tuple[int, ...]
    """Length of each further list."""
    relevant: Bool[Tensor, "O H"]
    """Whether each operation uses each further choice."""
    floor: float = 0.0
    """Weight of a uniform distribution over the n legal operations, which is mixed into the policy's: each of them has
    at least the probability floor / n, so that none dies out."""

    @property
    def operations(self) -> int:
        """Number of operations, O."""
        return len(self.relevant)

    @property
    def outputs(self) -> int:
        """Number of logits, and of flags in a mask."""
        return self.operations * (1 + sum(self.choices))

    @property
    def noise(self) -> int:
        """Number of random values that an action is drawn from."""
        return self.operations + sum(self.choices)

    def distribution(self, logits: Float[Tensor, "*N R"], legal: Bool[Tensor, "*N R"] | None = None) -> Distribution:
        """Return the distribution that the policy's outputs describe.

        Args:
            logits: first the logits of the O operations, then for each further list a table of O x C logits.
            legal: mask of legal choices: at least one operation, and one choice of each list that a legal operation
                uses; None if all are legal.
        """
        sizes = [self.operations, *(self.operations * size for size in self.choices)]
        operation_logits, *choice_logits = mask_logits(logits, legal).split_with_sizes(sizes, -1)
        # [*N, O C] -> [*N, O, C], log-probabilities for each operation.
        choice_tables = [part.view(*part.shape[:-1], self.operations, -1).log_softmax(-1) for part in choice_logits]
        # A mask begins with the flags of the operations, as the logits do.
        legal_operations = None if legal is None else legal[..., : self.operations]
        operation = Categorical(_floor_probabilities(operation_logits.log_softmax(-1), legal_operations, self.floor))
        return ConditionalCategorical(operation, tuple(Categorical(table) for table in choice_tables), self.relevant)


def _floor_probabilities(
    log_p: Float[Tensor, "*N O"], legal: Bool[Tensor, "*N O"] | None, floor: float
) -> Float[Tensor, "*N O"]:
    """Return log((1 - floor) p + floor / n) for the n legal operations, of which each gets at least floor / n."""
    if floor == 0:
        return log_p
    if legal is None:
        legal = torch.ones_like(log_p, dtype=torch.bool)
    # At least 1: log(0) would be infinite in a row without a legal operation.
    log_least = log(floor) - legal.sum(-1, keepdim=True, dtype=log_p.dtype).clamp(min=1).log()
    return torch.logaddexp(log_p + log(1 - floor), log_least.where(legal, IMPOSSIBLE_LOGIT))


@dataclass(frozen=True)
class ConditionalCategorical:
    """A distribution over operations, and for each operation a distribution over each further list."""

    operation: Categorical
    """The first choice, [*N, O]."""
    further: tuple[Categorical, ...]
    """Each further list for each operation, [*N, O, C]."""
    relevant: Bool[Tensor, "O H"]

    def sample(self, noise: Float[Tensor, "*N R"]) -> Int[Tensor, "*N A"]:
        """Draw the operation first, then its further choices; a choice that the operation does not use is 0."""
        sizes = [part.log_p.shape[-1] for part in (self.operation, *self.further)]
        operation_noise, *noise_parts = noise.split_with_sizes(sizes, -1)
        operation = self.operation.sample(operation_noise)
        pairs = zip(self._further_choices(operation), noise_parts, strict=True)
        return self._join_action(operation, [choice.sample(choice_noise) for choice, choice_noise in pairs])

    def mode(self) -> Int[Tensor, "*N A"]:
        """Return the likeliest operation, and the likeliest choice of each list that it uses."""
        operation = self.operation.mode()
        return self._join_action(operation, [choice.mode() for choice in self._further_choices(operation)])

    def log_prob(self, action: Int[Tensor, "*N A"]) -> Float[Tensor, "*N"]:
        """Return the log-probability of the operation and of the choices that it uses.

        All other choices add exactly 0 and get a gradient of exactly 0.
        """
        operation, *choices = action.unbind(-1)
        total = self.operation.log_prob(operation)
        is_used = self.relevant[operation].unbind(-1)  # by each row's operation, for each further list
        for used, distribution, choice in zip(is_used, self._further_choices(operation), choices, strict=True):
            total = total + torch.where(used, distribution.log_prob(choice), 0)
        return total

    def entropy(self) -> Float[Tensor, "*N"]:
        """Return the entropy of the operation plus that of the choices it uses, averaged over the operations."""
        total = self.operation.entropy()
        # Detached: a gradient through p would favour the operations with the longest lists.
        p = self.operation.log_p.detach().exp()
        for number, table in enumerate(self.further):
            # 0 for operations that do not use this list.
            total = total + (p * table.entropy() * self.relevant[:, number]).sum(-1)
        return total

    def _further_choices(self, operation: Int[Tensor, "*N"]) -> list[Categorical]:
        """Return the distribution over each further list [*N, C], given the operation."""
        index = operation[..., None, None]
        choices = []
        for table in self.further:
            # Of log-probabilities [*N, O, C], the row of each sample's operation.
            row = table.log_p.gather(-2, index.expand(*index.shape[:-1], table.log_p.shape[-1]))
            choices.append(Categorical(row.squeeze(-2)))
        return choices

    def _join_action(self, operation: Int[Tensor, "*N"], choices: list[Int[Tensor, "*N"]]) -> Int[Tensor, "*N A"]:
        """Return the operation and its further choices as one action; a choice that it does not use becomes 0."""
        pairs = zip(choices, self.relevant[operation].unbind(-1), strict=True)
        return torch.stack([operation, *(choice * is_used for choice, is_used in pairs)], dim=-1)


@dataclass(frozen=True)
class ContinuousActions:
    """D independent numbers: an action is float32 [*N, D]. The world clips numbers to the bounds.

    The policy's outputs are D means and D log-deviations, both in units of half of each number's range; means are
    measured from the middle of the range.
    """

    bounds: tuple[tuple[float, float], ...]
    device: torch.device

    @property
    def outputs(self) -> int:
        """Number of means and of logarithms of deviations."""
        return 2 * len(self.bounds)

    @property
    def free(self) -> int:
        """Number of log-deviations: they do not depend on the observation (as in Andrychowicz et al. 2021)."""
        return len(self.bounds)

    @property
    def noise(self) -> int:
        """Number of random values that an action is drawn from."""
        return len(self.bounds)

    def noise_(self, out: Float[Tensor, "*N D"], rng: torch.Generator) -> Float[Tensor, "*N D"]:
        """Fill `out` with standard normal random numbers, and return it."""
        return out.normal_(generator=rng)

    def distribution(
        self,
        numbers: Float[Tensor, "*N R"],
        legal: Bool[Tensor, "*N R"] | None = None,  # noqa: ARG002  (all numbers within the bounds are legal)
    ) -> Distribution:
        """Return the distribution that the policy's outputs describe."""
        middle, half_range = self._middle_and_half_range
        mean, log_deviation = numbers.chunk(2, dim=-1)
        # Clamped in units of half the range, before it is scaled: bounds of 1e-3 or 1e3 explore alike.
        log_deviation = log_deviation.clamp(MINIMUM_LOG_DEVIATION, MAXIMUM_LOG_DEVIATION)
        return Normal(middle + half_range * mean, log_deviation + half_range.log())

    @cached_property
    def _middle_and_half_range(self) -> tuple[Tensor, Tensor]:
        """Middle [D] and half of the width [D] of each number's range."""
        # Cached, because a tensor made of Python numbers is a copy to the device each time.
        low, high = torch.tensor(self.bounds, device=self.device).T
        return (low + high) / 2, (high - low) / 2


@dataclass(frozen=True)
class Normal:
    """A normal distribution of each number."""

    mean: Float[Tensor, "*N D"]
    log_deviation: Float[Tensor, "*N D"]

    def sample(self, noise: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        """Return numbers drawn from their distributions, from standard normal random numbers."""
        return self.mean + self.log_deviation.exp() * noise

    def mode(self) -> Float[Tensor, "*N D"]:
        """Return the means."""
        return self.mean

    def log_prob(self, action: Float[Tensor, "*N D"]) -> Float[Tensor, "*N"]:
        """Return the log-density of all numbers together."""
        distance = (action - self.mean) * (-self.log_deviation).exp()
        # log N(x) = -(d^2 / 2 + log sigma + log(2 pi) / 2), with tau = 2 pi.
        return -(distance.square() / 2 + self.log_deviation + log(tau) / 2).sum(-1)

    def entropy(self) -> Float[Tensor, "*N"]:
        """Return the entropy of all numbers together."""
        # log sigma + log(2 pi e) / 2 for each number.
        return (self.log_deviation + (1 + log(tau)) / 2).sum(-1)


Actions = DiscreteActions | MultiDiscreteActions | OperationActions | ContinuousActions
