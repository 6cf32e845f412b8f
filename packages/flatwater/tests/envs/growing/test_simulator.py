"""What an env does depends on its seed and its actions alone; seeds learn, are measured and are taken back."""

from dataclasses import replace

import pytest
import torch
from small import CPU, at_random, begun, config, do, generator, grow, play
from torch import Tensor

from flatwater.envs.growing.config import GrowingConfig
from flatwater.envs.growing.observation import observation_size
from flatwater.envs.growing.pool import build_envs, pool_host
from flatwater.envs.growing.simulator import host_gates, masks, observe, reset_, step_
from flatwater.envs.growing.spaces import HEADS, Operation
from flatwater.envs.growing.stages import SlotStage
from flatwater.envs.growing.task import load_task
from flatwater.nets.stack import views
from flatwater.state.tree import leaves, nbytes
from flatwater_watch.errors import ConfigError

torch.set_num_threads(1)
KINDS = pytest.mark.parametrize("kind", ["conv", "mlp"])


def leaves_of_env(envs: object, env: int, hosts: int) -> dict[str, Tensor]:
    """What belongs to one env: the rows of every tensor that has a row for each."""
    return {
        leaf.path: leaf.value[env].clone()
        for leaf in leaves(envs)
        if isinstance(leaf.value, Tensor) and not leaf.path.startswith(("task", "tables", "seed_share"))
        if leaf.value.shape[0] == hosts
    }


@pytest.mark.long
@KINDS
@pytest.mark.parametrize("poisoned", [False, True])
def test_an_env_does_not_notice_what_the_others_are_or_do_not_even_their_nans(kind: str, *, poisoned: bool) -> None:
    found = []
    for others in (1, 2):
        envs = begun(config(kind), torch.tensor([10 * others, 7, 20 * others, 31 * others]))
        rng = generator(others)
        mine = [(Operation.GERMINATE, 1, 0, 0, 0), (Operation.ADVANCE, 1, 0, 0, 0), (Operation.ADVANCE, 1, 0, 0, 1)]
        for step in range(8):
            if poisoned and others == 2:
                envs.host.weights[0] = torch.nan
                envs.seeds[2].weights[2] = torch.inf
            action = at_random(envs, masks(envs), rng)
            action[1] = torch.tensor(mine[step] if step < len(mine) else (0, 0, 0, 0, 0))
            reward = step_(envs, action)
        found.append(leaves_of_env(envs, 1, 4) | {"reward": reward[1], "observation": observe(envs)[1]})
    assert len(found[0]) > 40
    assert [path for path, value in found[0].items() if not torch.equal(value, found[1][path])] == []


@KINDS
def test_a_seed_that_learns_or_does_not_blend_leaves_its_host_unchanged_to_the_bit(kind: str) -> None:
    alone, behind = (begun(config(kind), torch.tensor([1, 2, 3])) for _ in range(2))
    do(alone)
    do(behind, operation=Operation.GERMINATE, slot=1, blueprint=0)
    do(alone)
    do(behind, operation=Operation.ADVANCE, slot=1)
    for _ in range(3):
        first = behind.seeds[1].weights.clone()
        assert torch.equal(do(alone) - do(behind) > 0, torch.ones(3, dtype=torch.bool))  # rent alone
        assert torch.equal(alone.host.weights, behind.host.weights)
        assert torch.equal(alone.measures.loss, behind.measures.loss)
        assert bool((behind.seeds[1].weights != first).any(1).all())


@KINDS
def test_contributions_are_those_of_passes_with_the_seed_switched_off(kind: str) -> None:
    envs = begun(config(kind, steps=20), torch.tensor([1, 2, 3]))
    for slot, blueprint in enumerate((2, 1, 0)):
        grow(envs, slot, blueprint)
    do(envs)
    net, valid = pool_host(envs), envs.task.valid_images
    for slot in range(3):
        worth = []
        for alpha in (envs.slots.alpha, envs.slots.alpha.clone().index_fill_(1, torch.tensor(slot), 0)):
            named = [views(seed.weights, layout) for seed, layout in zip(envs.seeds, net.seeds, strict=True)]
            gates = host_gates(envs)._replace(alpha=alpha)
            images = valid[:, None].expand(-1, 3, -1)
            logits = net.logits(views(envs.host.weights, net.layout), named, gates, images)
            worth.append((logits.argmax(-1) == envs.task.valid_labels[:, None]).float().mean(0))
        torch.testing.assert_close(envs.measures.contribution[:, slot], worth[0] - worth[1])
        torch.testing.assert_close(envs.measures.accuracy[:, 0], worth[0])
    assert envs.measures.contribution.abs().sum() > 0


@pytest.mark.parametrize("poison", [torch.nan, 1e4])
def test_a_host_whose_loss_is_no_number_or_spikes_goes_back_to_its_last_good_weights(poison: float) -> None:
    envs = begun(config(steps=20), torch.tensor([1, 2, 3]))
    grow(envs, slot=0)
    do(envs)
    good, seed = envs.host.weights.clone(), envs.seeds[0].weights.clone()
    known = envs.measures.accuracy[:, 0].clone()
    envs.host.weights[1, -30:] = poison * torch.linspace(-1, 1, 30)
    reward = do(envs)
    assert envs.measures.rollbacks.tolist() == [0, 1, 0]
    assert envs.measures.rolled_back.tolist() == [False, True, False]
    assert torch.equal(envs.host.weights[1], good[1])
    assert torch.equal(envs.seeds[0].weights[1], seed[1])
    assert envs.host.moments.exp_avg[1].abs().sum() == 0
    assert envs.measures.accuracy[1, 0] == known[1]
    assert not torch.equal(envs.host.weights[0], good[0])
    assert bool(reward.isfinite().all() & observe(envs).isfinite().all())
    do(envs)
    assert envs.measures.rollbacks.tolist() == [0, 1, 0]


def test_a_seed_germinated_in_the_step_of_a_rollback_is_still_there() -> None:
    envs = begun(config(), torch.tensor([1, 2]))
    do(envs)
    envs.host.weights[0] = torch.nan
    do(envs, operation=Operation.GERMINATE, slot=2)
    assert envs.measures.rollbacks.tolist() == [1, 0]
    assert envs.seeds[2].weights[0].count_nonzero() > 50


def test_a_slot_that_was_pruned_gets_other_weights_the_next_time() -> None:
    envs = begun(config(steps=20), torch.tensor([1, 1]))
    do(envs, operation=Operation.GERMINATE, slot=0)
    first = envs.seeds[0].weights.clone()
    do(envs, operation=Operation.PRUNE, slot=0)
    assert envs.seeds[0].weights.abs().sum() == 0
    for _ in range(3):
        do(envs)
    do(envs, operation=Operation.GERMINATE, slot=0)
    again = envs.seeds[0].weights
    assert torch.equal(again[0], again[1])
    assert not torch.equal(again, first)


def test_never_measured_is_not_zero() -> None:
    envs = begun(config(), torch.tensor([1, 2]))
    before = observe(envs)
    do(envs)
    known = slice(3 + 2 * 3, 3 + 3 * 3)
    assert before.shape == (2, observation_size(envs.config, slots=3))
    assert before[0, known].tolist() == [0, 0, 0]
    assert observe(envs)[0, known].tolist() == [1, 0, 0]
    grow(envs, slot=0)
    measured = observe(envs)[0, -3 * 21 :].view(3, 21)[:, 12 + 3]
    assert measured.tolist() == [0, 0, 0]  # blending, but with alpha 0 still
    do(envs)
    assert observe(envs)[0, -3 * 21 :].view(3, 21)[:, 12 + 3].tolist() == [1, 0, 0]


def test_the_last_step_pays_for_accuracy() -> None:
    envs = begun(config(steps=2), torch.tensor([2, 4]))
    assert do(envs).tolist() == [0, 0]
    torch.testing.assert_close(do(envs), envs.config.reward.terminal * envs.measures.accuracy[:, 0])


def test_equal_seeds_and_actions_make_equal_episodes_and_other_seeds_do_not() -> None:
    def episode(seeds: list[int]) -> list[Tensor]:
        envs = begun(config(), torch.tensor(seeds))
        return [value for _, value in play(envs, generator(3), 6)]

    once, again, other = episode([1, 2]), episode([1, 2]), episode([3, 4])
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))
    assert not torch.equal(once[-2], other[-2])


def test_odd_seeds_make_impaired_hosts_whose_kernels_have_a_centre_alone() -> None:
    envs = begun(config(), torch.tensor([4, 5]))
    assert envs.kernel.sum(1).tolist() == [9, 1]
    for impaired, taps in (("all", [1, 1]), ("none", [9, 9])):
        host = replace(envs.config.host, impaired=impaired)
        assert begun(replace(envs.config, host=host), torch.tensor([4, 5])).kernel.sum(1).tolist() == taps


@KINDS
def test_a_plan_on_the_meta_device_weighs_what_is_held(kind: str) -> None:
    meta, held = torch.device("meta"), build_envs(config(kind), count=3, data=load_task("digits", CPU), device=CPU)
    assert nbytes(build_envs(config(kind), count=3, data=load_task("digits", meta), device=meta)) == nbytes(held)


def test_an_action_of_another_shape_is_refused() -> None:
    envs = begun(config(), torch.tensor([1, 2]))
    with pytest.raises(ConfigError, match=r"action \(3, 5\): .*\(2, 5\)"):
        step_(envs, torch.zeros(3, len(HEADS), dtype=torch.int64))


@pytest.mark.slow
def test_growing_pays_on_impaired_hosts_and_not_on_capable_ones() -> None:
    """What an agent has to find out: the right decision depends on the host."""
    accuracy = {}
    whole = load_task("digits", CPU)
    for name in ("wait", "grow"):
        envs = build_envs(GrowingConfig(), count=8, data=whole, device=CPU)
        reset_(envs, torch.arange(8))
        for step in range(30):
            at = (step - 4) % 3 if 4 <= step < 13 and name == "grow" else None
            operation = (Operation.GERMINATE, Operation.ADVANCE, Operation.ADVANCE)[at] if at is not None else 0
            do(envs, operation=operation, slot=max(0, step - 4) // 3, tempo=1)
        accuracy[name] = envs.measures.accuracy[:, 0].view(4, 2).mean(0)
        assert name == "wait" or envs.slots.stage.eq(SlotStage.HOLDING).all()
    capable, impaired = accuracy["grow"] - accuracy["wait"]
    assert accuracy["wait"][0] > 0.75
    assert accuracy["wait"][1] < 0.35
    assert impaired > 0.2
    assert capable < 0.03
