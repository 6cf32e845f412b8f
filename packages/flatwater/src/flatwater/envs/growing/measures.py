"""Measurements of each host: its last validations, the contributions of its seeds, and its rollbacks.

Nothing here is measured before the first step, so each number has a count next to it: not yet measured is not 0.
"""

from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater.envs.growing.fitting import ValidationResult
from flatwater.envs.growing.lifecycle import OperationEffect, write_where_
from flatwater.state.allocation import filled_tensor
from flatwater.state.tree import derived_field, state


@state
class Measures:
    """The measurements of all hosts, all zero in a new env, but for `good_loss`."""

    loss: Float[Tensor, "E H"]
    """Losses of the last validations, the newest first."""
    accuracy: Float[Tensor, "E H"]
    validations: Int[Tensor, " E"]
    contribution: Float[Tensor, "E S"]
    before: Float[Tensor, "E S"]
    """The contribution measured before the last."""
    contributions: Int[Tensor, "E S"]
    """Number of measurements of the slot's present seed."""
    grad_norm: Float[Tensor, "E S"]
    """Norm of the seed's gradient in the step's last update."""
    graded: Bool[Tensor, "E S"]
    """Whether the present seed has learned yet."""
    started_from: Float[Tensor, "E S"]
    """The host's accuracy when the slot's seed germinated."""
    good_loss: Float[Tensor, " E"]
    """Loss of the last validation that no rollback followed; infinite before the first and after a rollback."""
    rollbacks: Int[Tensor, " E"]
    rolled_back: Bool[Tensor, " E"]
    """Whether the last step ended in a rollback."""
    operation: Int[Tensor, " E"]
    """Operation of the last step."""
    success: Bool[Tensor, " E"]
    chance: float = derived_field()
    """Accuracy of a host that was never validated."""


def build_measures(hosts: int, slots: int, *, history: int, chance: float, device: torch.device) -> Measures:
    """Return measures of hosts that were never measured.

    Args:
        hosts: number of hosts, E.
        slots: number of slots of a host, S.
        history: number of validations that are kept, H.
        chance: accuracy that a host has until its first validation.
        device: device on which they will lie; `meta` makes a plan.
    """
    zeros = partial(filled_tensor, 0, device=device)
    per_slot = (hosts, slots)
    return Measures(
        loss=zeros(hosts, history),
        accuracy=zeros(hosts, history),
        validations=zeros(hosts, dtype=torch.int64),
        contribution=zeros(*per_slot),
        before=zeros(*per_slot),
        contributions=zeros(*per_slot, dtype=torch.int64),
        grad_norm=zeros(*per_slot),
        graded=zeros(*per_slot, dtype=torch.bool),
        started_from=zeros(*per_slot),
        good_loss=filled_tensor(torch.inf, hosts, device=device),
        rollbacks=zeros(hosts, dtype=torch.int64),
        rolled_back=zeros(hosts, dtype=torch.bool),
        operation=zeros(hosts, dtype=torch.int64),
        success=zeros(hosts, dtype=torch.bool),
        chance=chance,
    )


def last_accuracy(measures: Measures) -> Float[Tensor, " E"]:
    """Return the last measured accuracy, or chance."""
    return torch.where(measures.validations > 0, measures.accuracy[:, 0], measures.chance)


def note_operation_(measures: Measures, operation: Int[Tensor, " E"], changed: OperationEffect) -> None:
    """Record the operation; a seed that is new or gone has not been measured."""
    measures.operation.copy_(operation)
    measures.success.copy_(changed.success)
    # Before the step trains the host: the seed is judged by what the host was without it.
    write_where_(measures.started_from, changed.germinated, last_accuracy(measures)[:, None])
    is_new = changed.germinated | changed.pruned
    for leaf in (measures.contribution, measures.before, measures.contributions, measures.grad_norm, measures.graded):
        leaf.masked_fill_(is_new, 0)


def is_good(measures: Measures, worth: ValidationResult, spike: float) -> Bool[Tensor, " E"]:
    """Return whether a loss is a number, and no more than `spike` times the last good loss + 1."""
    return worth.loss.isfinite() & (worth.loss <= spike * measures.good_loss + 1)


def note_worth_(
    measures: Measures, worth: ValidationResult, *, good: Bool[Tensor, " E"], measured: Bool[Tensor, "E S"]
) -> None:
    """Record a validation where it was good; elsewhere count a rollback and keep the last record.

    After a rollback any loss is good, as long as it is a number: a host whose loss has a reason to be higher (a seed
    was pruned) is taken back once, not for ever.

    Args:
        measures: written in place.
        worth: results of the validation.
        good: hosts whose validation counts, as `is_good` says; the others were rolled back.
        measured: slots whose seed is mixed into its host, so that its contribution was measured.
    """
    for history, new in ((measures.loss, worth.loss), (measures.accuracy, worth.accuracy)):
        # Newest first: the oldest drops out at the end of the row.
        write_where_(history, good[:, None], torch.cat((new[:, None], history[:, :-1]), 1))
    measures.validations.add_(good)
    measured = measured & good[:, None]
    # Before `contribution` is overwritten below.
    write_where_(measures.before, measured, measures.contribution)
    write_where_(measures.contribution, measured, worth.contribution)
    measures.contributions.add_(measured)
    write_where_(measures.good_loss, good, worth.loss)
    measures.good_loss.masked_fill_(~good, torch.inf)
    measures.rollbacks.add_(~good)
    torch.logical_not(good, out=measures.rolled_back)


def note_gradients_(measures: Measures, norm: Float[Tensor, "E S"], *, has_learned: Bool[Tensor, "E S"]) -> None:
    """Record the gradients' norms, where a seed has learned and the norm is a number."""
    is_finite = has_learned & norm.isfinite()
    write_where_(measures.grad_norm, is_finite, norm)
    measures.graded.logical_or_(is_finite)
