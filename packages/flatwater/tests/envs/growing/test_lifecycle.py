"""A slot's life: every transition of the table and no other, by operations and by time."""

import pytest
import torch
from small import CPU, at_random, begun, config, do, envs_of, generator, grow

from flatwater.envs.growing.config import GrowingConfig, LifecycleConfig
from flatwater.envs.growing.lifecycle import (
    OperationMasks,
    apply_operation_,
    build_slots,
    build_tables,
    possible_operations,
)
from flatwater.envs.growing.simulator import masks
from flatwater.envs.growing.spaces import HEADS, RELEVANT, SLOT, Operation, head_sizes
from flatwater.envs.growing.stages import STAGE_AFTER_OPERATION, STAGE_AFTER_TIME, SlotStage

torch.set_num_threads(1)
LIVE = [SlotStage.GERMINATED, SlotStage.TRAINING, SlotStage.BLENDING, SlotStage.HOLDING]
CONFIG = GrowingConfig(lifecycle=LifecycleConfig(embargo=2))


@pytest.mark.parametrize("operation", Operation)
@pytest.mark.parametrize("stage", SlotStage)
def test_an_operation_does_what_the_table_says_and_only_where_it_says(operation: Operation, stage: SlotStage) -> None:
    slots, tables = build_slots(2, 3, CPU), build_tables(CONFIG.lifecycle, CPU)
    slots.stage[0, 1] = stage
    slots.alpha_target[0, 1] = 1
    possible = possible_operations(slots, tables, CONFIG.lifecycle).choice_masks["slot"][0, operation, 1]
    legal = (operation, stage) in STAGE_AFTER_OPERATION

    changed = apply_operation_(slots, tables, torch.tensor([[operation, 1, 2, 1, 1], [0, 0, 0, 0, 0]]))

    by_itself = {SlotStage.PRUNED: SlotStage.EMBARGOED, SlotStage.RESETTING: SlotStage.DORMANT}.get(stage, stage)
    assert slots.stage[0, 1] == (STAGE_AFTER_OPERATION[operation, stage] if legal else by_itself)
    assert bool(possible) is legal
    assert changed.success.tolist() == [legal or operation == Operation.WAIT, True]
    assert changed.germinated.sum() == (legal and operation == Operation.GERMINATE)
    assert changed.pruned.sum() == (legal and operation == Operation.PRUNE)
    assert slots.stage[1].tolist() == [0, 0, 0]


def test_every_live_stage_can_be_pruned_and_the_fossilised_cannot() -> None:
    assert [s for s in SlotStage if (Operation.PRUNE, s) in STAGE_AFTER_OPERATION] == LIVE
    assert not [o for o in Operation if (o, SlotStage.FOSSILISED) in STAGE_AFTER_OPERATION]
    assert SlotStage.FOSSILISED not in STAGE_AFTER_TIME


@pytest.mark.parametrize("stage", LIVE)
def test_a_pruned_slot_is_closed_for_the_embargo_and_then_empty(stage: SlotStage) -> None:
    slots, tables = build_slots(1, 3, CPU), build_tables(CONFIG.lifecycle, CPU)
    slots.stage[0, 0] = stage
    slots.alpha[0, 0] = 0.5
    seen = []
    for operation in (Operation.PRUNE, *[Operation.WAIT] * 5):
        apply_operation_(slots, tables, torch.tensor([[operation, 0, 0, 0, 0]]))
        seen.append(SlotStage(int(slots.stage[0, 0])))
    embargo = [SlotStage.EMBARGOED] * CONFIG.lifecycle.embargo
    assert seen == [SlotStage.PRUNED, *embargo, SlotStage.RESETTING, SlotStage.DORMANT, SlotStage.DORMANT]
    assert slots.alpha.sum() == 0
    assert slots.age.sum() == 0


@pytest.mark.parametrize(("tempo", "ramp"), [(0, [1.0]), (1, [1 / 3, 2 / 3, 1.0]), (2, [k / 6 for k in range(1, 7)])])
def test_alpha_ramps_in_as_many_steps_as_the_tempo_says(tempo: int, ramp: list[float]) -> None:
    slots, tables = build_slots(1, 3, CPU), build_tables(CONFIG.lifecycle, CPU)
    for operation in (Operation.GERMINATE, Operation.ADVANCE, Operation.ADVANCE):
        apply_operation_(slots, tables, torch.tensor([[operation, 0, 1, 0, tempo]]))
    alphas = []
    while slots.stage[0, 0] == SlotStage.BLENDING:
        apply_operation_(slots, tables, torch.tensor([[Operation.WAIT, 0, 0, 0, 0]]))
        alphas.append(slots.alpha[0, 0].clone())
    torch.testing.assert_close(torch.stack(alphas), torch.tensor(ramp))
    assert alphas[-1] == 1
    assert slots.stage[0, 0] == SlotStage.HOLDING
    assert slots.age[0, 0] == 2 + len(ramp)


def test_a_new_target_sends_a_holding_seed_back_to_blending_down_to_it() -> None:
    envs = begun(config(), torch.tensor([1, 2]))
    grow(envs, slot=2)
    do(envs)
    assert envs.slots.stage[:, 2].tolist() == [SlotStage.HOLDING] * 2
    do(envs, operation=Operation.SET_ALPHA_TARGET, slot=2, alpha_target=0, tempo=1)
    assert envs.slots.stage[:, 2].tolist() == [SlotStage.BLENDING] * 2
    do(envs)
    assert envs.slots.alpha[:, 2].tolist() == [0.5] * 2
    assert envs.slots.stage[:, 2].tolist() == [SlotStage.HOLDING] * 2


def test_a_hundred_thousand_masked_draws_hold_no_impossible_operation_and_no_impossible_choice() -> None:
    slots, tables = build_slots(1000, 3, CPU), build_tables(CONFIG.lifecycle, CPU)
    envs = envs_of(config(), count=1000)
    rng, met, legal = generator(0), set(), set(STAGE_AFTER_OPERATION)
    for _ in range(100):
        possible = possible_operations(slots, tables, CONFIG.lifecycle)
        action = at_random(envs, possible, rng)
        before, at = slots.stage.gather(1, action[:, SLOT, None])[:, 0].tolist(), action[:, 0].tolist()
        met |= {(Operation(o), SlotStage(s)) for o, s in zip(at, before, strict=True) if o}
        assert bool(apply_operation_(slots, tables, action).success.all())
    assert met == legal


def test_each_row_of_each_mask_has_a_choice_and_one_alone_where_a_head_does_not_matter() -> None:
    envs = begun(config(), torch.tensor([1, 2]))
    do(envs, operation=Operation.GERMINATE, slot=1)
    possible: OperationMasks = masks(envs)
    for head, name in enumerate(HEADS):
        by_operation = possible.choice_masks[name]
        assert by_operation.shape == (2, len(Operation), head_sizes(envs.config.lifecycle, slots=3)[head])
        assert bool(by_operation.any(-1).all())
        if head:
            idle = ~torch.tensor(RELEVANT)[:, head] | ~possible.operation[0]
            assert by_operation[0, idle].sum(-1).tolist() == [1] * int(idle.sum())
            assert bool(by_operation[0, idle, 0].all())
    assert possible.operation.tolist() == [[True, True, True, False, False, True]] * 2
    assert possible.choice_masks["slot"][0, Operation.GERMINATE].tolist() == [True, False, True]
    assert possible.choice_masks["slot"][0, Operation.ADVANCE].tolist() == [False, True, False]


def test_an_impossible_operation_is_a_wait_without_success() -> None:
    waiting, wrong = (begun(config(), torch.tensor([3, 4])) for _ in range(2))
    paid = [do(waiting), do(wrong, operation=Operation.PRUNE, slot=2, blueprint=1)]
    assert torch.equal(*paid)
    assert torch.equal(waiting.host.weights, wrong.host.weights)
    assert waiting.measures.success.tolist() == [True, True]
    assert wrong.measures.success.tolist() == [False, False]
