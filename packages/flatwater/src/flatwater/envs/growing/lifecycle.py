"""The slots of E hosts, and how operations and time change their stages: table look-ups, the same for every host.

A host is a network in training; a slot is a place behind one of its layers for a seed, a module that can grow there.
The stages of a slot are drawn in `stages`, the operations and heads of an action are listed in `spaces`. Alpha is the
share of a seed's output in its slot's.
"""

from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater.envs.growing.config import LifecycleConfig
from flatwater.envs.growing.spaces import (
    ALPHA_TARGET,
    BLUEPRINT,
    HEADS,
    OPERATION,
    RELEVANT,
    SLOT,
    TEMPO,
    Operation,
    head_sizes,
)
from flatwater.envs.growing.stages import HOSTED, MIXED_IN, STAGE_AFTER_OPERATION, STAGE_AFTER_TIME, SlotStage
from flatwater.state.allocation import filled_tensor
from flatwater.state.tree import state

IMPOSSIBLE = -1
"""Entry of a table where an operation is not possible in a stage."""


@state
class Slots:
    """The state of each slot of each host, all zero at the beginning of an episode."""

    stage: Int[Tensor, "E S"]
    in_stage: Int[Tensor, "E S"]
    """Steps since the slot entered its stage."""
    blueprint: Int[Tensor, "E S"]
    alpha: Float[Tensor, "E S"]
    alpha_target: Float[Tensor, "E S"]
    pace: Float[Tensor, "E S"]
    """Change of alpha in a step of blending."""
    age: Int[Tensor, "E S"]
    """Steps since the seed germinated; 0 without a seed."""
    germinations: Int[Tensor, "E S"]
    """Seeds that the slot has had in this episode."""


@state
class LifecycleTables:
    """The constants of the lifecycle as tensors on the device, for 6 operations, 9 stages and 5 heads of an action."""

    by_operation: Int[Tensor, "6 9"]
    """Stage after an operation in a stage, or -1 where the operation is impossible."""
    by_time: Int[Tensor, " 9"]
    """Stage that follows a stage with time; the stage itself if none does."""
    patience: Int[Tensor, " 9"]
    """Steps of a stage after which the next one follows."""
    hosted: Bool[Tensor, " 9"]
    """Whether a slot has a seed in a stage, as in `stages.HOSTED`."""
    mixed_in: Bool[Tensor, " 9"]
    """Whether a seed can change its host's output in a stage, as in `stages.MIXED_IN`."""
    relevant: Bool[Tensor, "6 5"]
    """Whether a head of the action matters for an operation, as in `spaces.RELEVANT`."""
    alpha_targets: Float[Tensor, " A"]
    """Choices of the head `alpha_target`."""
    paces: Float[Tensor, " T"]
    """Change of alpha in a step of blending, for each choice of the head `tempo`."""


class OperationEffect(NamedTuple):
    """Result of an operation in each host."""

    success: Bool[Tensor, " E"]
    """False if the operation was impossible, and so had the effect of a WAIT."""
    germinated: Bool[Tensor, "E S"]
    """Slots with a new seed."""
    pruned: Bool[Tensor, "E S"]
    """Slots whose seed was removed."""


class OperationMasks(NamedTuple):
    """Operations that are possible in each host now, and the choices of other heads with each of them."""

    operation: Bool[Tensor, "E 6"]
    choice_masks: dict[str, Tensor]
    """Possible choices of each head, by its name, with each operation: Bool [E, 6, choices]."""


def build_slots(hosts: int, slots: int, device: torch.device) -> Slots:
    """Return the state of empty slots."""
    zeros = partial(filled_tensor, 0, hosts, slots, device=device)
    return Slots(
        stage=zeros(dtype=torch.int64),
        in_stage=zeros(dtype=torch.int64),
        blueprint=zeros(dtype=torch.int64),
        alpha=zeros(),
        alpha_target=zeros(),
        pace=zeros(),
        age=zeros(dtype=torch.int64),
        germinations=zeros(dtype=torch.int64),
    )


def build_tables(config: LifecycleConfig, device: torch.device) -> LifecycleTables:
    """Return the rules of a slot's life, from the modules `stages` and `spaces`, as look-up tables on the device."""
    next_stages = [
        [STAGE_AFTER_OPERATION.get((operation, stage), IMPOSSIBLE) for stage in SlotStage] for operation in Operation
    ]
    patience = [config.embargo if stage == SlotStage.EMBARGOED else 1 for stage in SlotStage]
    return LifecycleTables(
        by_operation=torch.tensor(next_stages, device=device),
        by_time=torch.tensor([STAGE_AFTER_TIME.get(stage, stage) for stage in SlotStage], device=device),
        patience=torch.tensor(patience, device=device),
        hosted=torch.tensor([stage in HOSTED for stage in SlotStage], device=device),
        mixed_in=torch.tensor([stage in MIXED_IN for stage in SlotStage], device=device),
        relevant=torch.tensor(RELEVANT, device=device),
        alpha_targets=torch.tensor(config.alpha_targets, device=device),
        # A tempo is a number of steps, a pace the share of alpha's whole way in one step.
        paces=(1 / torch.tensor(config.tempos, dtype=torch.float32)).to(device),
    )


def possible_operations(slots: Slots, tables: LifecycleTables, config: LifecycleConfig) -> OperationMasks:
    """Return masks of the operations and choices that are possible with these slots.

    Where a head does not matter for an operation, or the operation is impossible, only choice 0 is possible. So every
    row of every mask has a choice, and each operation is written in one way.

    Args:
        slots: only their stages are read.
        tables: constants.
        config: settings, from which the numbers of choices follow.
    """
    # Whether each operation is possible in each slot: the look-up's [6, E, S] -> [E, 6, S]. Impossible ones are -1.
    possible_in_slot = (tables.by_operation >= 0)[:, slots.stage].transpose(0, 1)
    operation = possible_in_slot.any(-1)
    operation[:, Operation.WAIT] = True
    # Whether a head matters for an operation that is possible, [E, 6, 5].
    matters = tables.relevant & operation[..., None]
    masks = {HEADS[OPERATION]: operation[:, None].expand(-1, len(Operation), -1)}
    # The other heads: a slot is possible by its stage; all choices of blueprint, alpha target and tempo are possible.
    sizes = head_sizes(config, slots.stage.shape[1])
    for head in range(SLOT, len(HEADS)):
        choice_numbers = torch.arange(sizes[head], device=operation.device)
        possible_choices = possible_in_slot if head == SLOT else torch.ones_like(choice_numbers, dtype=torch.bool)
        masks[HEADS[head]] = torch.where(matters[..., head, None], possible_choices, choice_numbers == 0)
    return OperationMasks(operation, masks)


def apply_operation_(slots: Slots, tables: LifecycleTables, action: Int[Tensor, "E 5"]) -> OperationEffect:
    """Carry out one operation in each host, and let a step of time pass in all other slots; return what has changed.

    Args:
        slots: written in place.
        tables: constants.
        action: operation, slot, blueprint, alpha target and tempo of each host; the last two are numbers of choices. An
            impossible operation does nothing.
    """
    # Columns [E, 1], which broadcast over the slots.
    operation, slot = action[:, OPERATION, None], action[:, SLOT, None]
    is_chosen = torch.arange(slots.stage.shape[1], device=action.device) == slot
    next_stage = tables.by_operation[operation, slots.stage]
    is_acted_on = is_chosen & (next_stage != IMPOSSIBLE)
    is_germinate = operation == Operation.GERMINATE
    sets_target = operation == Operation.SET_ALPHA_TARGET
    is_germinated = is_acted_on & is_germinate
    is_pruned = is_acted_on & (operation == Operation.PRUNE)
    sets_pace = is_acted_on & tables.relevant[operation, TEMPO]

    # Before time passes, so that a new seed has its blueprint and target from its first step on.
    write_masked_(slots.blueprint, is_germinated, action[:, BLUEPRINT, None])
    # A new seed aims at the last of the configured targets.
    write_masked_(slots.alpha_target, is_germinated, tables.alpha_targets[-1])
    write_masked_(slots.alpha_target, is_acted_on & sets_target, tables.alpha_targets[action[:, ALPHA_TARGET, None]])
    write_masked_(slots.pace, sets_pace, tables.paces[action[:, TEMPO, None]])
    slots.germinations.add_(is_germinated)
    pass_time_(slots, tables, is_acted_on=is_acted_on, next_stage=next_stage)
    slots.alpha.masked_fill_(is_pruned, 0)
    success = is_acted_on.any(1) | (operation[:, 0] == Operation.WAIT)
    return OperationEffect(success, is_germinated, is_pruned)


def pass_time_(
    slots: Slots, tables: LifecycleTables, *, is_acted_on: Bool[Tensor, "E S"], next_stage: Int[Tensor, "E S"]
) -> None:
    """Let one step of time pass in each slot; a slot with an operation enters the operation's next stage instead.

    Args:
        slots: alpha, stage, steps in the stage and age are written in place.
        tables: constants.
        is_acted_on: slots in which an operation is carried out, at most one of each host.
        next_stage: stage after each host's operation in each slot; only read where `is_acted_on`.
    """
    is_blending = (slots.stage == SlotStage.BLENDING) & ~is_acted_on
    alpha_left = slots.alpha_target - slots.alpha
    alpha = slots.alpha + torch.minimum(alpha_left.abs(), slots.pace) * alpha_left.sign()
    # Within rounding of the target counts as there: six steps of a sixth must end a ramp.
    alpha = torch.where(alpha_left.abs() <= slots.pace * (1 + 1e-4), slots.alpha_target, alpha)
    write_masked_(slots.alpha, is_blending, alpha)

    is_stage_over = torch.where(
        is_blending, slots.alpha == slots.alpha_target, slots.in_stage + 1 >= tables.patience[slots.stage]
    )
    stage_by_time = torch.where(is_stage_over, tables.by_time[slots.stage], slots.stage)
    stage = torch.where(is_acted_on, next_stage, stage_by_time)
    # 0 in the first step of a stage, also of one that an operation begins again.
    slots.in_stage.add_(1).masked_fill_((stage != slots.stage) | is_acted_on, 0)
    slots.stage.copy_(stage)
    # Age 0 without a seed, and in the step in which it germinated.
    has_new_seed = is_acted_on & (next_stage == SlotStage.GERMINATED)
    slots.age.add_(1).mul_(tables.hosted[stage] & ~has_new_seed)


def write_masked_(values: Tensor, mask: Bool[Tensor, "E S"], new_values: Tensor) -> None:
    """Write `new_values`, which may broadcast, into `values` where the mask is True."""
    # Not `values[mask] = ...`, which waits until a GPU has counted the elements of the mask.
    values.copy_(torch.where(mask, new_values, values))
