"""A factored action: an operation first, then further heads of which only some matter for that operation.

Each further head has logits and legal choices of its own *for every operation*, since the slot to prune is not the slot
to plant in. All of them lie side by side in one row, and a mask of what is legal has the same form:

    [ operation: O | first head: O x C1 | second head: O x C2 | ... ]

The operation is drawn from a mixture with the uniform distribution over legal operations, so that none of them dies
out; its probabilities, and so the ratios that a learner takes of them, are those of the mixture.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

NEVER = -1e9
"""The logit of what is illegal. exp of it is exactly 0 beside any legal choice; -inf would put NaN into gradients where
nothing is legal, in heads that do not matter."""


@dataclass(frozen=True)
class Heads:
    """The form of an action [..., 1 + H]: the operation's number, then one choice per further head."""

    choices: tuple[int, ...]
    """Choices of each further head."""
    relevant: Bool[Tensor, "O H"]
    """Which further heads matter for an operation."""
    floor: float
    """Weight of the uniform distribution: a legal operation among n has at least this probability over n."""

    @property
    def operations(self) -> int:
        """O."""
        return len(self.relevant)

    @cached_property
    def widths(self) -> list[int]:
        """Numbers of each part of a row."""
        return [self.operations, *(self.operations * c for c in self.choices)]

    @property
    def outputs(self) -> int:
        """Numbers in a row of logits, or of a mask."""
        return sum(self.widths)


@dataclass(frozen=True)
class Judgement:
    """How a distribution sees one action."""

    log_prob: Float[Tensor, "*N"]
    """Of the operation and the heads that matter for it; the others add exactly 0 and get a gradient of exactly 0."""
    entropy: Float[Tensor, "*N"]
    """Of the operation, and of the heads that matter given that one. Its expectation is the joint action's entropy, but
    its gradient does not favour operations for having more choices below them."""


def judge(
    heads: Heads, logits: Float[Tensor, "*N R"], legal: Bool[Tensor, "*N R"], action: Int[Tensor, "*N A"]
) -> Judgement:
    """Log-probability and entropy of the distribution that the action was drawn from."""
    operation, *choices = action.unbind(-1)
    first, *further = _log_probs(heads, logits, legal, heads.floor)
    log_prob, entropy = _at(first, operation), _entropy(first)
    relevant = heads.relevant[operation]
    for h, (table, choice) in enumerate(zip(further, choices, strict=True)):
        given = _given(table, operation)
        matters = relevant[..., h]
        log_prob = log_prob + torch.where(matters, _at(given, choice), 0)
        entropy = entropy + torch.where(matters, _entropy(given), 0)
    return Judgement(log_prob, entropy)


def sample(
    heads: Heads, logits: Float[Tensor, "*N R"], legal: Bool[Tensor, "*N R"], rng: torch.Generator
) -> Int[Tensor, "*N A"]:
    """Draw an action. Heads that do not matter for its operation are 0.

    Args:
        heads: the action's form.
        logits: of all parts.
        legal: what may be chosen: at least one operation, and one choice of each head that matters for a legal one.
        rng: a generator on the logits' device.
    """
    return _choose(heads, _log_probs(heads, logits, legal, heads.floor), lambda log_p: _draw(log_p, rng))


def likeliest(heads: Heads, logits: Float[Tensor, "*N R"], legal: Bool[Tensor, "*N R"]) -> Int[Tensor, "*N A"]:
    """The likeliest operation, and of each head that matters for it the likeliest choice; arguments as for `sample`.

    The floor changes the order of no two operations, so it plays no part.
    """
    return _choose(heads, _log_probs(heads, logits, legal, 0.0), lambda log_p: log_p.argmax(-1))


def _choose(
    heads: Heads, tables: Sequence[Float[Tensor, "*N_and_table"]], choice: Callable[[Tensor], Tensor]
) -> Int[Tensor, "*N A"]:
    """An action, head by head: the operation first, then what matters for it, by `choice` of log-probabilities."""
    first, *further = tables
    operation = choice(first)
    relevant = heads.relevant[operation]
    chosen = [operation]
    for h, table in enumerate(further):
        chosen.append(choice(_given(table, operation)) * relevant[..., h])
    return torch.stack(chosen, dim=-1)


def _log_probs(
    heads: Heads, logits: Float[Tensor, "*N R"], legal: Bool[Tensor, "*N R"], floor: float
) -> list[Float[Tensor, "*N_and_table"]]:
    """Operation [*N, O], then each head's table [*N, O, C]."""
    first, *further = torch.split(logits.masked_fill(~legal, NEVER), heads.widths, dim=-1)
    tables = [part.view(*part.shape[:-1], heads.operations, -1).log_softmax(-1) for part in further]
    return [_floored(first.log_softmax(-1), legal[..., : heads.operations], floor), *tables]


def _floored(log_p: Float[Tensor, "*N O"], legal: Bool[Tensor, "*N O"], floor: float) -> Float[Tensor, "*N O"]:
    """log((1 - floor) p + floor / n) of n legal operations."""
    if floor == 0:
        return log_p
    uniform = log(floor) - legal.sum(-1, keepdim=True, dtype=log_p.dtype).clamp(min=1).log()
    return torch.logaddexp(log_p + log(1 - floor), uniform.where(legal, NEVER))


def _given(table: Float[Tensor, "*N O C"], operation: Int[Tensor, "*N"]) -> Float[Tensor, "*N C"]:
    at = operation[..., None, None].expand(*operation.shape, 1, table.shape[-1])
    return table.gather(-2, at).squeeze(-2)


def _at(log_p: Float[Tensor, "*N C"], choice: Int[Tensor, "*N"]) -> Float[Tensor, "*N"]:
    return log_p.gather(-1, choice.unsqueeze(-1)).squeeze(-1)


def _entropy(log_p: Float[Tensor, "*N C"]) -> Float[Tensor, "*N"]:
    return -(log_p.exp() * log_p).sum(-1)


def _draw(log_p: Float[Tensor, "*N C"], rng: torch.Generator) -> Int[Tensor, "*N"]:
    # A race of exponential clocks: p / e is largest with probability p, and what has probability 0 never wins.
    # torch.multinomial draws in the same way, but waits for the device to check its argument.
    return (log_p.exp() / torch.empty_like(log_p).exponential_(generator=rng)).argmax(-1)
