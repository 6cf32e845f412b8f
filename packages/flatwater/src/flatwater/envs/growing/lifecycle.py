"""The slots of E hosts, and how an operation or a step of time moves them: table look-ups, the same for every host."""

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
    """Stage of each slot of each host. All numbers are zero in a new env, but for the targets."""

    stage: Int[Tensor, "E S"]
    in_stage: Int[Tensor, "E S"]
    """Steps since the slot came into this stage."""
    blueprint: Int[Tensor, "E S"]
    alpha: Float[Tensor, "E S"]
    alpha_target: Float[Tensor, "E S"]
    pace: Float[Tensor, "E S"]
    """Change of alpha in a step of blending."""
    age: Int[Tensor, "E S"]
    """Steps since its seed germinated; 0 without a seed."""
    germinations: Int[Tensor, "E S"]
    """Seeds that the slot has had in this episode."""


@state
class LifecycleTables:
    """The constants of the lifecycle, on the device, where every step looks them up."""

    by_operation: Int[Tensor, "6 9"]
    """The stage to which an operation leads from a stage, or -1."""
    by_time: Int[Tensor, " 9"]
    """The stage that follows by itself; the stage itself if no other does."""
    patience: Int[Tensor, " 9"]
    """Steps after which the next stage follows."""
    hosted: Bool[Tensor, " 9"]
    mixed_in: Bool[Tensor, " 9"]
    relevant: Bool[Tensor, "6 5"]
    alpha_targets: Float[Tensor, " A"]
    paces: Float[Tensor, " T"]


class OperationEffect(NamedTuple):
    """Result of an operation in each host."""

    success: Bool[Tensor, " E"]
    """False if it was impossible, which leaves the host as a WAIT does."""
    germinated: Bool[Tensor, "E S"]
    pruned: Bool[Tensor, "E S"]


class OperationMasks(NamedTuple):
    """Operations and choices that are possible in each host now."""

    operation: Bool[Tensor, "E 6"]
    choice_masks: dict[str, Tensor]
    """Choices that each operation would leave, by head: Bool [E, 6, choices]."""


def build_slots(hosts: int, slots: int, device: torch.device) -> Slots:
    """Return empty slots."""
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
    """Return the tables of `stages` as tensors."""
    by_operation = [[STAGE_AFTER_OPERATION.get((o, s), IMPOSSIBLE) for s in SlotStage] for o in Operation]
    patience = [config.embargo if s == SlotStage.EMBARGOED else 1 for s in SlotStage]
    return LifecycleTables(
        by_operation=torch.tensor(by_operation, device=device),
        by_time=torch.tensor([STAGE_AFTER_TIME.get(s, s) for s in SlotStage], device=device),
        patience=torch.tensor(patience, device=device),
        hosted=torch.tensor([s in HOSTED for s in SlotStage], device=device),
        mixed_in=torch.tensor([s in MIXED_IN for s in SlotStage], device=device),
        relevant=torch.tensor(RELEVANT, device=device),
        alpha_targets=torch.tensor(config.alpha_targets, device=device),
        paces=(1 / torch.tensor(config.tempos, dtype=torch.float32)).to(device),
    )


def possible_operations(slots: Slots, tables: LifecycleTables, config: LifecycleConfig) -> OperationMasks:
    """Return masks of the choices that are possible with these slots; every other rule is left to the agent.

    Where a head does not matter, or the operation itself is impossible, choice 0 alone is left: every row of every
    mask has a choice, and an action is written in one way.

    Args:
        slots: only their stages are read.
        tables: constants.
        config: numbers of alpha targets and tempos.
    """
    # [6, E, S] of the look-up -> [E, 6, S].
    possible = (tables.by_operation >= 0)[:, slots.stage].transpose(0, 1)
    operation = possible.any(-1)
    operation[:, Operation.WAIT] = True
    matters = tables.relevant & operation[..., None]
    masks = {HEADS[OPERATION]: operation[:, None].expand(-1, len(Operation), -1)}
    for head, choices in list(enumerate(head_sizes(config, slots.stage.shape[1])))[SLOT:]:
        numbers = torch.arange(choices, device=operation.device)
        choice_possible = possible if head == SLOT else numbers >= 0
        masks[HEADS[head]] = torch.where(matters[..., head, None], choice_possible, numbers == 0)
    return OperationMasks(operation, masks)


def apply_operation_(slots: Slots, tables: LifecycleTables, action: Int[Tensor, "E 5"]) -> OperationEffect:
    """Carry out one operation in each host, and let time pass in all slots that it left alone.

    Args:
        slots: written in place.
        tables: constants.
        action: columns as in `HEADS`, each within its head's choices. Impossible operations do nothing.
    """
    operation, slot = action[:, OPERATION, None], action[:, SLOT, None]
    is_chosen = torch.arange(slots.stage.shape[1], device=action.device) == slot
    leads_to = tables.by_operation[operation, slots.stage]
    is_acted_on = is_chosen & (leads_to >= 0)
    is_germinate, is_target = operation == Operation.GERMINATE, operation == Operation.SET_ALPHA_TARGET
    is_germinated, is_pruned = is_acted_on & is_germinate, is_acted_on & (operation == Operation.PRUNE)
    sets_pace = is_acted_on & tables.relevant[operation, TEMPO]

    # Before time passes, so that a new seed has its blueprint and target from its first step on.
    write_where_(slots.blueprint, is_germinated, action[:, BLUEPRINT, None])
    write_where_(slots.alpha_target, is_germinated, tables.alpha_targets[-1])
    write_where_(slots.alpha_target, is_acted_on & is_target, tables.alpha_targets[action[:, ALPHA_TARGET, None]])
    write_where_(slots.pace, sets_pace, tables.paces[action[:, TEMPO, None]])
    slots.germinations.add_(is_germinated)
    pass_time_(slots, tables, acted=is_acted_on, leads_to=leads_to)
    slots.alpha.masked_fill_(is_pruned, 0)
    success = is_acted_on.any(1) | (operation[:, 0] == Operation.WAIT)
    return OperationEffect(success, is_germinated, is_pruned)


def pass_time_(
    slots: Slots, tables: LifecycleTables, *, acted: Bool[Tensor, "E S"], leads_to: Int[Tensor, "E S"]
) -> None:
    """Move alphas and stages on by one step, or to the stage that the operation leads to.

    Args:
        slots: alpha, stage, time in the stage and age are written in place.
        tables: constants.
        acted: slots in which an operation is carried out, at most one of each host.
        leads_to: the stage to which each host's operation leads from that of each slot; only read where `acted`.
    """
    is_blending = (slots.stage == SlotStage.BLENDING) & ~acted
    alpha_left = slots.alpha_target - slots.alpha
    alpha = slots.alpha + torch.minimum(alpha_left.abs(), slots.pace) * alpha_left.sign()
    # Rounding must not keep a ramp of six sixths from its end.
    alpha = torch.where(alpha_left.abs() <= slots.pace * (1 + 1e-4), slots.alpha_target, alpha)
    write_where_(slots.alpha, is_blending, alpha)

    is_over = torch.where(
        is_blending, slots.alpha == slots.alpha_target, slots.in_stage + 1 >= tables.patience[slots.stage]
    )
    stage = torch.where(acted, leads_to, torch.where(is_over, tables.by_time[slots.stage], slots.stage))
    slots.in_stage.add_(1).masked_fill_((stage != slots.stage) | acted, 0)
    slots.stage.copy_(stage)
    slots.age.add_(1).mul_(tables.hosted[stage] & (leads_to_seed(leads_to, acted)))


def leads_to_seed(leads_to: Int[Tensor, "E S"], acted: Bool[Tensor, "E S"]) -> Bool[Tensor, "E S"]:
    """Return False if the operation has just put a new seed into the slot: its age is 0."""
    return ~(acted & (leads_to == SlotStage.GERMINATED))


def write_where_(values: Tensor, where: Bool[Tensor, "E S"], new: Tensor) -> None:
    """Write `new`, which may broadcast, where the mask says so."""
    # Not `values[where] = ...`, which waits for a GPU to count the places.
    values.copy_(torch.where(where, new, values))
