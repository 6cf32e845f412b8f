"""What a policy's numbers say of an action: a choice from a list, several choices at once, or a vector of numbers.

All have the same face: how many numbers the policy gives (`outputs`), and what they make of them (`given`): a
distribution, from which an action is drawn, which has a likeliest one, and which sees one that was drawn.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from math import log, tau
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

LEAST_LOG_DEVIATION, MOST_LOG_DEVIATION = -5.0, 2.0
"""Deviations are kept within exp of these, of half a number's range: beyond that a gradient says nothing."""


class Distribution(Protocol):
    """Over the actions of each row."""

    def draw(self, noise: Tensor) -> Tensor:
        """An action of each row, from numbers that the actions' `noise_` drew for it."""
        ...

    def likeliest(self) -> Tensor:
        """The action of each row that is drawn most often."""
        ...

    def log_prob(self, action: Tensor) -> Float[Tensor, "*N"]:
        """Of an action of each row; its density where actions are numbers."""
        ...

    def entropy(self) -> Float[Tensor, "*N"]:
        """Of each row."""
        ...


class FromLogits(ABC):
    """Positions in lists, drawn by one exponential number for each logit."""

    free = 0
    """Numbers of the policy that no observation moves."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Logits."""

    @property
    def noise(self) -> int:
        """Random numbers that an action is drawn from."""
        return self.outputs

    def noise_(self, out: Float[Tensor, "*N R"], rng: torch.Generator) -> Float[Tensor, "*N R"]:
        """Draw them, exponential."""
        return out.exponential_(generator=rng)


@dataclass(frozen=True)
class Choices(FromLogits):
    """One of a list: an action is a position in it, int64 [*N]."""

    size: int
    """Length of the list."""

    @property
    def outputs(self) -> int:
        """Logits."""
        return self.size

    def given(self, logits: Float[Tensor, "*N R"]) -> Distribution:
        """What the policy's numbers say."""
        return Categorical(logits.log_softmax(-1))


@dataclass(frozen=True)
class Categorical:
    """A distribution over a list."""

    log_p: Float[Tensor, "*N R"]

    def draw(self, noise: Float[Tensor, "*N R"]) -> Int[Tensor, "*N"]:
        """A race of exponential clocks: p / e is largest with probability p (see `nets.heads`)."""
        return (self.log_p.exp() / noise).argmax(-1)

    def likeliest(self) -> Int[Tensor, "*N"]:
        """The largest probability."""
        return self.log_p.argmax(-1)

    def log_prob(self, action: Int[Tensor, "*N"]) -> Float[Tensor, "*N"]:
        """Of a position in the list."""
        return self.log_p.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Float[Tensor, "*N"]:
        """Of the choice."""
        return -(self.log_p.exp() * self.log_p).sum(-1)


@dataclass(frozen=True)
class MultiChoice(FromLogits):
    """H independent choices, each from a list of its own: an action is int64 [*N, H]."""

    sizes: tuple[int, ...]
    """Lengths of the lists."""

    @property
    def outputs(self) -> int:
        """Logits, those of one list after those of the other."""
        return sum(self.sizes)

    def given(self, logits: Float[Tensor, "*N R"]) -> Distribution:
        """What the policy's numbers say."""
        return Joint(tuple(Categorical(part.log_softmax(-1)) for part in logits.split_with_sizes(self.sizes, -1)))


@dataclass(frozen=True)
class Joint:
    """A distribution over each list, independent of the others."""

    parts: tuple[Categorical, ...]

    def draw(self, noise: Float[Tensor, "*N R"]) -> Int[Tensor, "*N H"]:
        """A choice from each list."""
        drawn = noise.split_with_sizes([part.log_p.shape[-1] for part in self.parts], -1)
        return torch.stack([part.draw(its) for part, its in zip(self.parts, drawn, strict=True)], -1)

    def likeliest(self) -> Int[Tensor, "*N H"]:
        """The largest probability of each list."""
        return torch.stack([part.likeliest() for part in self.parts], -1)

    def log_prob(self, action: Int[Tensor, "*N H"]) -> Float[Tensor, "*N"]:
        """Of all choices together."""
        chosen = zip(self.parts, action.unbind(-1), strict=True)
        return torch.stack([part.log_prob(choice) for part, choice in chosen]).sum(0)

    def entropy(self) -> Float[Tensor, "*N"]:
        """Of all choices together."""
        return torch.stack([part.entropy() for part in self.parts]).sum(0)


@dataclass(frozen=True)
class Numbers:
    """D independent numbers: an action is float32 [*N, D]. What leaves the bounds is cut by the world that is given it.

    The policy gives D means, as shares of half of each range around its middle, and D logarithms of the deviation.
    """

    bounds: tuple[tuple[float, float], ...]
    device: torch.device

    @property
    def outputs(self) -> int:
        """Means and logarithms of deviations."""
        return 2 * len(self.bounds)

    @property
    def free(self) -> int:
        """The deviations are weights of their own (Andrychowicz et al. 2021: state-independent ones do as well)."""
        return len(self.bounds)

    @property
    def noise(self) -> int:
        """Random numbers that an action is drawn from."""
        return len(self.bounds)

    def noise_(self, out: Float[Tensor, "*N D"], rng: torch.Generator) -> Float[Tensor, "*N D"]:
        """Draw them, standard normal."""
        return out.normal_(generator=rng)

    def given(self, numbers: Float[Tensor, "*N R"]) -> Distribution:
        """What the policy's numbers say."""
        middle, half = self._range
        mean, log_deviation = numbers.chunk(2, dim=-1)
        return Normal(middle + half * mean, log_deviation.clamp(LEAST_LOG_DEVIATION, MOST_LOG_DEVIATION) + half.log())

    @cached_property
    def _range(self) -> tuple[Tensor, Tensor]:
        """Middle and half of the width of each number's range."""
        low, high = torch.tensor(self.bounds, device=self.device).T
        return (low + high) / 2, (high - low) / 2


@dataclass(frozen=True)
class Normal:
    """A normal distribution of each number."""

    mean: Float[Tensor, "*N D"]
    log_deviation: Float[Tensor, "*N D"]

    def draw(self, noise: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        """All numbers."""
        return self.mean + self.log_deviation.exp() * noise

    def likeliest(self) -> Float[Tensor, "*N D"]:
        """The means."""
        return self.mean

    def log_prob(self, action: Float[Tensor, "*N D"]) -> Float[Tensor, "*N"]:
        """Of all numbers together."""
        distance = (action - self.mean) * (-self.log_deviation).exp()
        return -(distance.square() / 2 + self.log_deviation + log(tau) / 2).sum(-1)

    def entropy(self) -> Float[Tensor, "*N"]:
        """Of all numbers together."""
        return (self.log_deviation + (1 + log(tau)) / 2).sum(-1)


Actions = Choices | MultiChoice | Numbers
