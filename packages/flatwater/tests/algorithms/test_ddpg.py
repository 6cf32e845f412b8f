"""The stacked update against members trained one by one, and what holds between the members of a population."""

import shutil

import pytest
import torch
from one_by_one import OneLearner, Transitions
from populations import (
    ACTION,
    ACTOR,
    ACTOR_SPEC,
    CRITIC,
    CRITIC_SPEC,
    NETS,
    B,
    batch_of,
    draws_of,
    members_of,
    population,
    settings_of,
)

from flatwater.algorithms.api import Members, Setting, draw_normal, find_algorithm, read_tally_
from flatwater.nets.stack import views
from flatwater.replay.batch import Batch
from flatwater.state.tree import leaves, nbytes
from flatwater_trading.training.learner import LearnerConfig
from flatwater_watch.errors import ConfigError

UPDATES = 50


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "settings",
    [
        {"micro_batches": 1},
        {"micro_batches": 3, "grad_clip": 0.5},
        {"micro_batches": 2, "grad_clip": 0.0, "weight_decay": 0.0, "groups": [(0, 2), (2, 3)]},
        {"micro_batches": 2, "algorithm": "td3", "grad_clip": 0.5},
        {"micro_batches": 1, "algorithm": "td3", "policy_delay": 3, "groups": [(0, 1), (1, 2), (2, 3)]},
    ],
    ids=["ddpg", "accumulated and clipped", "in groups, Adam", "td3", "td3, member by member"],
)
def test_equals_members_trained_one_by_one(settings: dict[str, object]) -> None:
    """50 updates in float64 agree to 1e-12 with torch modules and torch.optim.AdamW, whatever the grouping."""
    pop = population(**settings)
    config, learner = pop.config, pop.learner
    ones = [
        OneLearner(config, ACTOR_SPEC, CRITIC_SPEC, [block[p] for block in (learner.actor, *learner.critics)])
        for p in range(3)
    ]
    rng = torch.Generator().manual_seed(1)
    groups = settings.get("groups", [(0, 3)])
    for _ in range(UPDATES):
        batches = [batch_of(3, rng) for _ in range(config.micro_batches)]
        noises = target_noises(config, learner, batches, groups)

        errors = pop.update_(draws_of(batches))

        for p, one in enumerate(ones):
            own = [Transitions(**{name: part[p] for name, part in vars(batch).items()}) for batch in batches]
            expected = one.update(own, [None if noise is None else noise[p] for noise in noises])
            torch.testing.assert_close(errors[p], torch.stack(expected), rtol=0, atol=1e-12)

    for p, one in enumerate(ones):
        actors = zip((one.actor, one.actor_target), (learner.actor, learner.actor_target), strict=True)
        critics = zip(one.critics + one.critic_targets, learner.critics + learner.critic_targets, strict=True)
        assert max(net.distance(block[p], ACTOR.layout) for net, block in actors) <= 1e-12
        assert max(net.distance(block[p], CRITIC.layout) for net, block in critics) <= 1e-12


def target_noises(
    config: LearnerConfig, learner: Members, batches: list[Batch], groups: list[tuple[int, int]]
) -> list[torch.Tensor | None]:
    """The noise that the learner draws, group by group, for each micro-batch of all members."""
    if config.algorithm == "ddpg":
        return [None] * config.micro_batches
    return [
        torch.cat([draw_normal(learner, span, batch.action[slice(*span)], "target actions", n) for span in groups])
        for n, batch in enumerate(batches)
    ]


def test_noise_belongs_to_an_update_a_group_and_a_micro_batch_whoever_draws_it() -> None:
    like, all_members, share = torch.empty(2, B, ACTION), population(members=4), population(members=2, first=2)
    mine = draw_normal(share.learner, (0, 2), like, "target actions", 0)
    assert torch.equal(mine, draw_normal(all_members.learner, (2, 4), like, "target actions", 0))
    others = [
        draw_normal(share.learner, (0, 2), like, "target actions", 1),
        draw_normal(share.learner, (0, 2), like, "critics", 0),
        draw_normal(all_members.learner, (0, 2), like, "target actions", 0),
        draw_normal(population(members=2, first=2, seed=1).learner, (0, 2), like, "target actions", 0),
    ]
    share.learner.tally.updates += 1
    others.append(draw_normal(share.learner, (0, 2), like, "target actions", 0))
    assert not any(torch.equal(mine, other) for other in others)


@pytest.mark.parametrize("algorithm", ["ddpg", "td3", "sac"])
def test_a_groups_update_is_the_same_beside_any_other_groups_and_in_a_worker(algorithm: str) -> None:
    """What `Algorithm.make_update` promises: members 2 and 3 as one group, whoever else learns there, bit for bit."""
    settings = {"algorithm": algorithm, "micro_batches": 2}
    beside = population(members=4, groups=[(0, 2), (2, 4)], **settings)
    others = population(members=4, groups=[(0, 1), (1, 2), (2, 4)], **settings)
    share = population(members=2, first=2, **settings)
    for rows, whole in zip(share.learner.inherited, beside.learner.inherited, strict=True):
        rows[:2] = whole[2:4]
    rng = torch.Generator().manual_seed(1)

    for _ in range(4):
        batches = [batch_of(4, rng) for _ in range(2)]
        for pop in (beside, others):
            pop.update_(draws_of(batches))
        share.update_(draws_of([members_of(batch, 2, 4) for batch in batches]))

    for mine, wide, other in zip(
        share.learner.inherited, beside.learner.inherited, others.learner.inherited, strict=True
    ):
        assert torch.equal(mine[:2], wide[2:4])
        assert torch.equal(wide[2:4], other[2:4])


def test_the_champions_slot_is_never_trained_and_nothing_is_rebound() -> None:
    pop = population(algorithm="td3")
    champion = [block[-1].clone() for block in pop.learner.inherited]
    home = {leaf.path: leaf.value.data_ptr() for leaf in leaves(pop.learner) if isinstance(leaf.value, torch.Tensor)}
    rng = torch.Generator().manual_seed(1)

    for _ in range(4):
        pop.update_(draws_of([batch_of(3, rng), batch_of(3, rng)]))
    read_tally_(pop.learner.tally)

    for block, before in zip(pop.learner.inherited, champion, strict=True):
        assert torch.equal(block[-1], before)
    assert home == {
        leaf.path: leaf.value.data_ptr() for leaf in leaves(pop.learner) if isinstance(leaf.value, torch.Tensor)
    }


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_a_member_with_a_gradient_that_is_not_finite_leaves_out_the_step_alone(poison: float, clip: float) -> None:
    settings = {"micro_batches": 1, "grad_clip": clip}
    hurt, well = population(**settings), population(**settings)
    rng = torch.Generator().manual_seed(1)
    first, second = batch_of(3, rng), batch_of(3, rng)
    for pop in (hurt, well):
        pop.update_(draws_of([first]))
    read_tally_(hurt.learner.tally)
    critic = hurt.learner.critics[0][1].clone()
    moments = hurt.learner.critic_adams[0].exp_avg[1].clone()
    well.update_(draws_of([second]))
    second.reward[1, 2] = poison

    hurt.update_(draws_of([second]))

    assert torch.equal(hurt.learner.critics[0][1], critic)
    assert torch.equal(hurt.learner.critic_adams[0].exp_avg[1], moments)
    assert hurt.learner.critic_adams[0].steps.tolist() == [2, 1, 2]
    for mine, other in zip(hurt.learner.inherited, well.learner.inherited, strict=True):
        assert torch.isfinite(mine).all()
        assert torch.equal(mine[[0, 2]], other[[0, 2]])
    assert read_tally_(hurt.learner.tally)["train/skipped"] == 1
    assert hurt.learner.tally.skipped_total.tolist() == [0, 1, 0]


def test_a_member_whose_moments_are_zeroed_steps_like_a_new_one() -> None:
    """The bias correction restarts with the moments: the first step of Adam has the size of the learning rate."""
    pop = population(micro_batches=1, weight_decay=0.0, grad_clip=0.0)
    rng = torch.Generator().manual_seed(1)
    for _ in range(30):
        pop.update_(draws_of([batch_of(3, rng)]))
    adam, before = pop.learner.critic_adams[0], pop.learner.critics[0].clone()
    for moments in (adam.exp_avg, adam.exp_avg_sq, adam.steps):
        moments[1].zero_()

    pop.update_(draws_of([batch_of(3, rng)]))

    moved = (pop.learner.critics[0] - before).abs()
    torch.testing.assert_close(
        moved[1][moved[1] > 0].median(), torch.tensor(3e-4, dtype=torch.float64), rtol=1e-3, atol=0
    )
    assert moved[0].median() < 2.5e-4


def test_losses_are_means_of_the_round_and_start_again_when_read() -> None:
    pop = population(micro_batches=2, actor_lr=1e-30, critic_lr=1e-30, weight_decay=0.0)
    rng = torch.Generator().manual_seed(1)
    batches = [batch_of(3, rng, weighted=False) for _ in range(2)]
    assert read_tally_(pop.learner.tally) == {}

    errors = [pop.update_(draws_of(batches)) for _ in range(3)]
    losses = read_tally_(pop.learner.tally)

    assert losses["train/critic_loss"] == pytest.approx(float(errors[0].square().mean()), rel=1e-12)
    weights = {layer: view[:3] for layer, view in _views(pop.learner.actor).items()}
    actions = [ACTOR(weights, batch.obs) for batch in batches]
    critic = {layer: view[:3] for layer, view in _views(pop.learner.critics[0], critic=True).items()}
    values = [CRITIC(critic, batch.obs, action) for batch, action in zip(batches, actions, strict=True)]
    assert losses["train/actor_loss"] == pytest.approx(-float(torch.stack(values).mean()), rel=1e-9)
    assert losses["train/skipped"] == 0
    assert read_tally_(pop.learner.tally) == {}


def _views(block: torch.Tensor, *, critic: bool = False) -> dict[str, torch.Tensor]:
    return views(block, (CRITIC if critic else ACTOR).layout)


def test_plan_on_the_meta_device_is_what_is_held_and_updates_hold_no_more() -> None:
    def build(device: str) -> object:
        config = settings_of({})
        return find_algorithm(config).build(config, NETS, Setting(members=3, seed=0, device=torch.device(device)))

    planned, pop = nbytes(build("meta")), population(dtype=torch.float32)

    assert nbytes(pop.learner) == planned
    rng = torch.Generator().manual_seed(1)
    for _ in range(2):
        pop.update_(draws_of([batch_of(3, rng, dtype=torch.float32) for _ in range(2)]))
    assert nbytes(pop.learner) == planned


def test_gradient_blocks_are_left_out_of_checkpoints() -> None:
    saved = {leaf.path for leaf in leaves(population().learner) if not leaf.derived}

    assert "actor_adam.exp_avg" in saved
    assert not {path for path in saved if path.endswith(("grad", "skip"))}


def test_a_wrong_number_of_micro_batches_is_refused() -> None:
    pop = population(micro_batches=2)

    with pytest.raises(ConfigError, match=r"draws = 1: .* 2"):
        pop.update_(draws_of([batch_of(3, torch.Generator().manual_seed(0))]))


def test_learns_the_value_and_the_best_action_of_a_bandit() -> None:
    """Reward -(a - s)^2 and no future: the critic learns it and the actor learns a = s."""
    pop = population(micro_batches=1, dtype=torch.float32, actor_lr=3e-3, critic_lr=3e-3, weight_decay=0.0)
    rng = torch.Generator().manual_seed(1)
    for _ in range(1500):
        batch = batch_of(3, rng, dtype=torch.float32, weighted=False)
        batch.obs[..., 0].clamp_(-0.8, 0.8)
        batch.action.uniform_(-1, 1, generator=rng)
        batch.reward.copy_(-(batch.action[..., 0] - batch.obs[..., 0]).square())
        batch.discount.zero_()
        pop.update_(draws_of([batch]))

    seen = batch_of(3, rng, dtype=torch.float32).obs
    seen[..., 0].clamp_(-0.8, 0.8)
    weights = {name: view[:3] for name, view in _views(pop.learner.actor).items()}
    missed = (ACTOR(weights, seen)[..., 0] - seen[..., 0]).square().mean(1)
    assert (missed < 0.1 * seen[..., 0].square().mean(1)).all(), missed


def test_bfloat16_stays_near_float32_and_keeps_weights_in_float32() -> None:
    exact, rounded = (population(dtype=torch.float32, autocast=kind, micro_batches=1) for kind in ("off", "bf16"))
    batch = batch_of(3, torch.Generator().manual_seed(1), dtype=torch.float32)

    errors = [pop.update_(draws_of([batch])) for pop in (exact, rounded)]

    assert rounded.learner.actor.dtype == torch.float32
    torch.testing.assert_close(errors[1], errors[0], rtol=0.05, atol=0.05)
    assert not torch.equal(errors[1], errors[0])


HAS_COMPILER = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")


@pytest.mark.slow
@pytest.mark.skipif(not HAS_COMPILER, reason="compiling needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, while it loads its compiler
@pytest.mark.parametrize(
    "settings",
    [{"micro_batches": 1}, {"algorithm": "td3", "micro_batches": 2, "groups": [(0, 2), (2, 4)]}],
    ids=["ddpg", "td3 in groups"],
)
def test_compiled_equals_eager_to_float_tolerance(settings: dict[str, object]) -> None:
    """Also for the member that leaves out a step."""
    eager, compiled = (
        population(members=4, dtype=torch.float32, compile=compile_, **settings) for compile_ in (False, True)
    )
    rng = torch.Generator().manual_seed(1)
    for update in range(12):
        batches = [batch_of(4, rng, dtype=torch.float32) for _ in range(eager.config.micro_batches)]
        if update == 7:
            batches[0].reward[2, 0] = torch.nan
        errors = [pop.update_(draws_of(batches)) for pop in (eager, compiled)]
        torch.testing.assert_close(errors[1], errors[0], rtol=1e-4, atol=1e-5, equal_nan=True)

    for mine, other in zip(compiled.learner.inherited, eager.learner.inherited, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-6)
    assert compiled.learner.critic_adams[0].steps.tolist() == [12, 12, 11, 12]
    assert read_tally_(compiled.learner.tally) == pytest.approx(read_tally_(eager.learner.tally), rel=1e-4, nan_ok=True)
