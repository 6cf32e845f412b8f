"""Measurements of each host: its last validations, the contributions of its seeds, and its rollbacks.

A host is a network in training; a seed is a module that grows in one of its slots. A seed's contribution is the host's
accuracy with it minus the accuracy without it. A rollback gives a host its last good weights back.

Nothing is measured before the first step, so each number has a count next to it, which tells 0 from not yet measured.
"""

from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater.envs.growing.fitting import ValidationResult
from flatwater.envs.growing.lifecycle import OperationEffect, write_masked_
from flatwater.state.allocation import filled_tensor
from flatwater.state.tree import derived_field, state


@state
class Measures:
    """The measurements of all hosts. All are zero at the beginning of an episode, except `good_loss`."""

    loss: Float[Tensor, "E H"]
    """Losses of the last validations, the newest first."""
    accuracy: Float[Tensor, "E H"]
    validations: Int[Tensor, " E"]
    contribution: Float[Tensor, "E S"]
    before: Float[Tensor, "E S"]
    """The contribution that was measured before the last one."""
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
    """Return the measures of hosts before their first validation: zeros, and no good loss yet.

    Args:
        hosts: number of hosts, E.
        slots: number of slots of a host, S.
        history: number of validations that are kept, H.
        chance: accuracy of a host until its first validation.
        device: device of the tensors; `meta` makes a plan.
    """
    zeros = partial(filled_tensor, 0, device=device)
    slot_shape = (hosts, slots)
    return Measures(
        loss=zeros(hosts, history),
        accuracy=zeros(hosts, history),
        validations=zeros(hosts, dtype=torch.int64),
        contribution=zeros(*slot_shape),
        before=zeros(*slot_shape),
        contributions=zeros(*slot_shape, dtype=torch.int64),
        grad_norm=zeros(*slot_shape),
        graded=zeros(*slot_shape, dtype=torch.bool),
        started_from=zeros(*slot_shape),
        good_loss=filled_tensor(torch.inf, hosts, device=device),
        rollbacks=zeros(hosts, dtype=torch.int64),
        rolled_back=zeros(hosts, dtype=torch.bool),
        operation=zeros(hosts, dtype=torch.int64),
        success=zeros(hosts, dtype=torch.bool),
        chance=chance,
    )


def last_accuracy(measures: Measures) -> Float[Tensor, " E"]:
    """Return each host's last measured accuracy; before the first validation, the accuracy of chance."""
    return torch.where(measures.validations > 0, measures.accuracy[:, 0], measures.chance)


def record_operation_(measures: Measures, operation: Int[Tensor, " E"], effect: OperationEffect) -> None:
    """Record each host's operation and whether it succeeded; forget the measures of slots whose seed is new or gone.

    Args:
        measures: written in place.
        operation: number of each host's operation.
        effect: its success, and the slots in which a seed has germinated or was pruned.
    """
    measures.operation.copy_(operation)
    measures.success.copy_(effect.success)
    # The accuracy before the step's training, which is the host's without the new seed.
    write_masked_(measures.started_from, effect.germinated, last_accuracy(measures)[:, None])
    has_changed = effect.germinated | effect.pruned
    for leaf in (measures.contribution, measures.before, measures.contributions, measures.grad_norm, measures.graded):
        leaf.masked_fill_(has_changed, 0)


def has_good_loss(measures: Measures, validation: ValidationResult, spike: float) -> Bool[Tensor, " E"]:
    """Return whether each host's loss is finite, and at most `spike` times its last good loss + 1."""
    return validation.loss.isfinite() & (validation.loss <= spike * measures.good_loss + 1)


def record_validation_(
    measures: Measures, validation: ValidationResult, *, is_good: Bool[Tensor, " E"], is_mixed: Bool[Tensor, "E S"]
) -> None:
    """Record the validation of good hosts; count a rollback of the others, and keep their last record.

    After a rollback any finite loss is good, as `good_loss` is infinite. So a host whose loss has risen for a reason,
    such as a pruned seed, is rolled back once and not for ever.

    Args:
        measures: written in place.
        validation: results of the validation.
        is_good: hosts with a good loss, by `has_good_loss`; the others were rolled back.
        is_mixed: slots whose seed changes its host's output, so that its contribution was measured.
    """
    for history, new_value in ((measures.loss, validation.loss), (measures.accuracy, validation.accuracy)):
        # Newest first: the oldest drops out at the end of the row.
        write_masked_(history, is_good[:, None], torch.cat((new_value[:, None], history[:, :-1]), 1))
    measures.validations.add_(is_good)
    is_measured = is_mixed & is_good[:, None]
    # Before `contribution` is overwritten below.
    write_masked_(measures.before, is_measured, measures.contribution)
    write_masked_(measures.contribution, is_measured, validation.contribution)
    measures.contributions.add_(is_measured)
    write_masked_(measures.good_loss, is_good, validation.loss)
    measures.good_loss.masked_fill_(~is_good, torch.inf)
    measures.rollbacks.add_(~is_good)
    torch.logical_not(is_good, out=measures.rolled_back)


def record_gradients_(measures: Measures, norm: Float[Tensor, "E S"], *, has_learned: Bool[Tensor, "E S"]) -> None:
    """Record the norm of each seed's gradient in its slot, if the seed has learned and the norm is finite."""
    is_finite = has_learned & norm.isfinite()
    write_masked_(measures.grad_norm, is_finite, norm)
    measures.graded.logical_or_(is_finite)
