"""The laws of a round of teaching: resumable at every step, nothing moves, what is stored is what was executed."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from toy import CueWorld, DoorWorld
from trees import differing, digest, leaf_copies, pointers, restore_
from watchers import Silent

from flatwater.algorithms.config import Ramp
from flatwater.algorithms.returns import gae
from flatwater.config.mappings import from_mapping
from flatwater.envs.random_teacher import RandomTeacher
from flatwater.envs.world import PADDING, Array, build_outcome
from flatwater.nets.actor_critic import ActorCritic, token_rows
from flatwater.nets.stack import views
from flatwater.recipes.teach import sections
from flatwater.recipes.teach.config import TeachRunConfig
from flatwater.state.tree import nbytes
from flatwater.trainers.blocks.collect import HELD_OUT
from flatwater.trainers.blocks.round import PARTS, BlocksTrainer
from flatwater.trainers.blocks.state import BlocksSetup, build_blocks
from flatwater.trainers.episodes import (
    ask_teacher_,
    begin_,
    build_episodes,
    replay_episodes_,
    step_,
    view_episodes,
)
from flatwater.trainers.loop import train_
from flatwater.trainers.resume_worlds import resume_episodes_
from flatwater_watch.errors import ConfigError, RunError

Built = Callable[..., BlocksTrainer]
Trained = Callable[..., tuple[BlocksTrainer, list[dict[str, float]]]]
FORMS = pytest.mark.parametrize("form", ["tokens", "vector"])


class Profiled(Silent):
    """Keeps the times as well."""

    def on_round(self, round_: int, metrics: Mapping[str, float]) -> None:
        self.done = round_
        self.rounds.append(dict(metrics))


class StopsWithinABlock(Silent):
    """Stops after two steps of a block."""

    def on_step(self, phase: str, done: int, total: int) -> None:
        super().on_step(phase, done, total)
        if (phase, done) == ("collect", 2):
            self.left = 0


def test_the_profile_of_a_block_that_was_begun_by_another_process_is_not_told(build_small: Built) -> None:
    """The update of a whole block, divided by the few steps that were left of it, looked like a slow one."""
    first, other, told = build_small(), build_small(), Profiled()
    assert not train_(first, 2, StopsWithinABlock())
    assert (first.progress.phase, first.progress.step) == (1, 2), "within the first block"
    restore_(other.run, leaf_copies(first.run))
    resume_episodes_(other)
    train_(other, 2, told)
    assert ["profile/env_us" in numbers for numbers in told.rounds] == [False, True]
    assert ["train/sps" in numbers for numbers in told.rounds] == [False, True]
    assert all(np.isfinite(value) for name, value in told.rounds[0].items() if name.startswith(("train/", "profile/")))


@pytest.mark.long
@pytest.mark.few(1)
@FORMS
def test_a_run_that_was_stopped_at_any_step_goes_on_bit_for_bit(form: str, build_small: Built) -> None:
    """A new build has the leaves alone: its worlds and teachers play their episodes again."""
    whole = build_small(form=form)
    train_(whole, 4, Silent())
    wanted = leaf_copies(whole.run)
    steps, places = 0, set()
    while True:
        first = build_small(form=form)
        if train_(first, 4, Silent(steps)):
            break
        places.add((first.progress.phase, first.progress.step))
        other = build_small(form=form)
        restore_(other.run, leaf_copies(first.run))
        resume_episodes_(other)
        train_(other, 4, Silent())
        assert differing(leaf_copies(other.run), wanted) == [], f"stopped after {steps} steps"
        steps += 3
    assert {phase for phase, _ in places} == {0, 1, 2, 3}


@pytest.mark.parametrize("steps", [5, 15, 21, 24, 35, 51])
def test_where_a_world_does_not_come_to_where_it_was_new_episodes_begin(steps: int, build_small: Built) -> None:
    """At any step: the episodes under way are cut there, and what was paid for is kept."""
    first, other = build_small(), build_small()
    assert not train_(first, 4, Silent(steps))
    restore_(other.run, leaf_copies(first.run))
    now = {"baselines": other.run.held_out.obs, "evaluate": other.run.held_out.obs}
    playing = first.phases[first.progress.phase].name if first.progress.phase < len(first.phases) else ""
    seen = now[playing].numpy() if playing in now else other.collector.current_obs
    seen += 1  # as if the package showed other things by now
    t = first.progress.step - 1 if playing == "collect" else -1
    assert "observations " in resume_episodes_(other)
    if playing in now:
        assert other.progress.step % other.setup.held_out.steps == 0, "whoever plays begins again"
    else:
        assert int(other.run.episodes.steps.sum()) == 0
        assert bool(other.run.starts.all())
        assert torch.equal(other.run.ended, first.run.ended)
    if t >= 0:
        rollout = other.run.rollout
        assert bool((rollout["truncated"][t] | rollout["terminated"][t]).all())
        assert torch.equal(rollout["reward"][t], first.run.rollout["reward"][t])
    train_(other, 4, Silent())
    assert other.progress.round == 4


def test_rewards_that_are_others_are_seen(build_small: Built, train_small: Trained) -> None:
    """The observations are those of before, as with a reward that depends on what was played earlier."""
    trainer, _ = train_small(1)
    other = build_small()
    restore_(other.run, leaf_copies(trainer.run))
    other.run.episodes.returns.add_(1)
    assert re.search("rewards .* environment 0, ", resume_episodes_(other))


def test_one_seed_gives_one_run_and_another_seed_another(train_small: Trained) -> None:
    nobodys = torch.get_rng_state()
    first, numbers = train_small(3)
    assert torch.equal(torch.get_rng_state(), nobodys), "the global generator is left alone"
    second, again = train_small(3)
    assert digest(first.run) == digest(second.run)
    assert repr(numbers) == repr(again)
    third, _ = train_small(1, {"seed": 1})
    assert not torch.equal(third.run.learner.block, first.run.learner.block)


def test_no_tensor_ever_moves(build_small: Built) -> None:
    trainer = build_small()

    home, plan = pointers(trainer.run), nbytes(trainer.run)
    train_(trainer, 4, Silent())
    assert pointers(trainer.run) == home
    assert nbytes(trainer.run) == plan


@FORMS
def test_what_is_planned_is_what_is_held(form: str, build_small: Built) -> None:
    held = build_small(form=form)
    meta = torch.device("meta")
    spaces = held.setup.spaces, held.setup.held_out
    planned = build_blocks(BlocksSetup(held.setup.config, meta, *spaces))
    assert nbytes(planned) == nbytes(held.run)


def collect(trainer: BlocksTrainer) -> Any:
    for t in range(trainer.setup.config.block):
        trainer.collector.step_(t)
    return trainer.run.rollout


@pytest.mark.parametrize("lead", [0.0, 0.5, 1.0])
def test_the_executed_action_is_stored_with_its_own_probability(lead: float, build_small: Built) -> None:
    trainer = build_small({"learner": {"lead": {"first": lead, "last": lead}}})
    rollout, run = collect(trainer), trainer.run
    assert torch.equal(rollout["led"], run.led.expand_as(rollout["led"])), "for a whole block"
    assert (rollout["led"].float().mean() == lead) or lead == 0.5
    assert torch.equal(rollout["action"][rollout["led"]], rollout["taught"][rollout["led"]])
    assert torch.equal(rollout["reward"] > 0, rollout["alive"] & (rollout["action"] == rollout["taught"]))
    network = trainer.setup.network
    weights = {name: w[0] for name, w in views(run.learner.block, network.layout).items()}
    seen = network(weights, rollout["obs"], torch.zeros_like(run.memory), rollout["starts"])
    wanted = seen.logits.log_softmax(-1).gather(-1, rollout["action"].unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(rollout["log_prob"], wanted, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(rollout["value"], seen.value, atol=1e-5, rtol=1e-5)


def test_what_followed_a_step_is_valued_before_the_next_episode_begins(build_small: Built) -> None:
    """Rows of one environment that ended by time: the value of its last observation, not of the next one's first."""
    trainer = build_small({"block": 6, "learner": {"minibatches": 1}})
    rollout, run, network = collect(trainer), trainer.run, trainer.setup.network
    weights = {name: w[0] for name, w in views(run.learner.block, network.layout).items()}
    episode, world = run.episodes, CueWorld(4)
    ended = (rollout["truncated"] | rollout["terminated"]).view(6, 4, 2).all(2)
    assert ended.any()
    assert episode.steps.max() <= 6
    follows = torch.where(rollout["starts"][1:], torch.nan, rollout["value"][1:])
    over = rollout["truncated"][:-1] | rollout["terminated"][:-1]
    kept = ~over & ~follows.isnan()
    assert torch.equal(rollout["next_value"][:-1][kept], follows[kept])
    t, env = (int(x) for x in (rollout["truncated"].view(6, 4, 2)[..., 0]).nonzero()[0])
    memory = torch.zeros(2, 8, network.config.memory)
    start = int(rollout["starts"].view(6, 4, 2)[: t + 1, env, 0].nonzero()[-1])
    shown = rollout["obs"][start : t + 1]
    final = rollout["obs"][t].clone()
    seen = np.empty((4, 2, 3, 3), np.uint8)
    world.seeds[:], world.age[:] = 0, t + 1 - start
    world.seeds[env] = seed_of(env, shown)
    world._show(env, seen)
    final.view(4, 2, 3, 3)[env] = torch.from_numpy(seen[env])
    starts = torch.zeros(t + 2 - start, 8, dtype=torch.bool)
    outlook = network(weights, torch.cat([shown, final[None]]), memory, starts)
    torch.testing.assert_close(rollout["next_value"][t, 2 * env], outlook.value[-1, 2 * env], atol=1e-5, rtol=1e-5)


def seed_of(env: int, shown: torch.Tensor) -> int:
    """Any seed with the cue that was shown first, of an episode in which nobody is over early."""
    cue = int(shown[0].view(4, 2, 3, 3)[env, 0, 0, 2])
    return next(seed for seed in range(1, 100) if seed // 7 % 2 == cue and seed % 3)


def test_advantages_are_those_of_gae_over_the_students_own_steps(train_small: Trained) -> None:
    trainer, _ = train_small(1, {"learner": {"lead": {"first": 0.5, "last": 0.5}}})
    rollout, config = trainer.run.rollout, trainer.setup.config.learner
    wanted = gae(
        reward=rollout["reward"],
        discount=config.gamma * (~rollout["terminated"]).float(),
        value=rollout["value"],
        next_value=rollout["next_value"],
        continues=~(rollout["terminated"] | rollout["truncated"]),
        lam=config.lam,
    )
    torch.testing.assert_close(rollout["returns"], wanted + rollout["value"])
    own = rollout["alive"] & ~rollout["led"]
    assert abs(float(rollout["advantage"][own].mean())) < 1e-5
    assert float(rollout["advantage"][own].std(correction=0)) == pytest.approx(1, abs=1e-4)


def test_a_slot_that_the_teacher_leaves_is_found() -> None:
    class Lazy:
        def begin_(self, which: Array) -> None: ...

        def step_batch(self, obs: Array, actions_out: Array) -> None:  # noqa: ARG002  (it does not look)
            actions_out[0] = 1

    with pytest.raises(RunError, match=r"2 of 4 actions .* environment 1, agent 0"):
        ask_teacher_(Lazy(), np.zeros((2, 2, 3)), torch.zeros(2, 2, dtype=torch.int64))


@pytest.mark.long
def test_the_student_learns_the_cue_and_remembers_it(train_small: Trained) -> None:
    """Random answers pay a third; the teacher always pays; remembering is needed from the second step on."""
    trainer, numbers = train_small(
        20,
        {
            "envs": 16,
            "block": 8,
            "policy": {"rows": 256, "width": 16, "hidden": 16, "memory": 16},
            "learner": {"unroll": 8, "minibatches": 2, "epochs": 3, "lead": {"first": 0.5, "last": 0.0, "ends": 4000}},
            "evaluation": {"envs": 16, "every": 20},
        },
    )
    last = numbers[-1]
    assert last["evaluation/student"] > 0.95 * last["evaluation/teacher"] > 2 * last["evaluation/random"]
    assert trainer.run.agent_steps == 20 * 8 * 32


@pytest.mark.slow
def test_ppo_takes_over_and_learns_without_a_teacher(train_small: Trained) -> None:
    changes = {
        "envs": 16,
        "block": 8,
        "learner": {
            "unroll": 8,
            "minibatches": 2,
            "epochs": 4,
            "lead": {"first": 0.0, "last": 0.0},
            "supervision": {"first": 0.0, "last": 0.0},
            "reinforcement": {"first": 1.0, "last": 1.0},
        },
        "evaluation": {"envs": 16, "every": 80},
    }
    _, numbers = train_small(80, changes)
    assert numbers[0]["train/agreement"] < 0.6
    assert numbers[-1]["evaluation/student"] > 1.6 * numbers[-1]["evaluation/random"]


def test_held_out_seeds_are_never_trained_on(build_small: Built) -> None:
    trainer = build_small()
    for _ in range(20):
        collect(trainer)
    assert int(trainer.run.episodes.seeds.max()) < HELD_OUT
    trainer.evaluator.play_("random", 0)
    assert trainer.run.held_out.episodes.seeds.tolist() == [HELD_OUT, HELD_OUT + 1, HELD_OUT + 2]


def test_no_environment_is_stepped_once_all_held_out_episodes_have_ended(build_small: Built) -> None:
    trainer = build_small({"envs": 2})
    world, lengths = trainer.evaluator.world, [3 + (HELD_OUT + env) % 4 for env in range(3)]
    stepped = 0
    step_ = world.step_

    def count_(*arguments: Any) -> None:
        nonlocal stepped
        stepped += 1
        step_(*arguments)

    world.step_ = count_  # type: ignore[method-assign]
    for name in ("random", "teacher", "student"):
        stepped = 0
        for number in range(trainer.evaluator.steps):
            trainer.evaluator.play_(name, number)
        assert stepped == max(lengths) < trainer.evaluator.steps


def test_all_play_the_same_held_out_episodes_whatever_was_trained(train_small: Trained) -> None:
    trainer, numbers = train_small(4)
    for name in ("evaluation/teacher", "evaluation/random"):
        assert len({row[name] for row in numbers}) == 1
    assert [("evaluation/student" in row) for row in numbers] == [False, True, False, True]
    teacher = trainer.run.held_out.scores["teacher"]
    lengths = [3 + (HELD_OUT + env) % 4 for env in range(3)]
    full = [2.0 if agent and (HELD_OUT + env) % 3 == 0 else float(lengths[env]) for env in range(3) for agent in (0, 1)]
    assert teacher.tolist() == full


def test_each_token_finds_a_row_and_padding_its_own() -> None:
    tokens = torch.tensor([[[0, 1, 2], [0, 1, 3], [255, 1, 2]], [[0, 1, 2], [9, 1, 2], [255, 0, 0]]], dtype=torch.uint8)
    rows = token_rows(tokens, 1024, PADDING)
    assert rows[0, 0] == rows[1, 0]
    assert rows[:, 2].tolist() == [1024, 1024]
    assert len(rows.unique()) == 4
    everything = torch.cartesian_prod(torch.arange(121), torch.arange(8), torch.arange(16)).to(torch.uint8)
    spread = token_rows(everything, 16_384, PADDING).bincount(minlength=16_384)
    assert int(spread.max()) <= 4, "15,488 words in 16,384 rows: by chance it would be six or seven"


def test_a_ramp_is_straight_between_its_ends() -> None:
    ramp = Ramp(first=1.0, last=0.5, begins=100, ends=200)
    assert [ramp.scheduled_value(step) for step in (0, 100, 150, 200, 999)] == [1.0, 1.0, 0.75, 0.5, 0.5]
    assert Ramp(first=0.3, last=0.7).scheduled_value(0) == 0.7
    with pytest.raises(ConfigError, match="begins"):
        Ramp(first=0.0, last=1.0, begins=5, ends=4)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"block": 5}, r"block = 5: .*learner\.unroll"),
        ({"envs": 0}, "envs = 0"),
        ({"policy": {"rows": 100}}, "policy.rows = 100"),
        ({"learner": {"lead": {"first": 1.5, "last": 0.0}}}, "learner.lead.first = 1.5"),
        ({"evaluation": {"every": 0}}, "evaluation.every = 0"),
    ],
)
def test_settings_that_cannot_be_are_named(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        from_mapping(TeachRunConfig, settings, "a test")


def test_what_waits_to_be_played_again_does_nothing_illegal() -> None:
    """Environments in episodes of different lengths; the world refuses what its masks forbid."""
    rng, envs = torch.Generator().manual_seed(0), 5
    world, episodes = DoorWorld(envs), build_episodes(DoorWorld(envs).spaces, torch.device("cpu"))
    obs, legal, outcome = np.zeros((envs, 1, 3), np.float32), np.ones((envs, 1, 3), np.bool_), build_outcome(envs, 1)
    ended = np.ones(envs, np.bool_)
    for step in range(40):
        if ended.any():
            begin_(world, episodes, ended, np.arange(envs) + 7 * step, obs, legal=legal)
        other = DoorWorld(envs)
        replay_episodes_(other, None, episodes, obs)
        assert (other.mask() == legal).all()
        actions = np.zeros((envs, 1), np.int64)
        RandomTeacher(world, rng).step_batch(obs, actions, legal)  # type: ignore[arg-type]
        ended = step_(world, view_episodes(episodes), actions, obs, outcome, legal=legal)  # type: ignore[arg-type]


def test_in_bf16_it_learns_other_numbers_and_goes_on_bit_for_bit(build_small: Built, train_small: Trained) -> None:
    lowered = {"learner": {"autocast": "bf16"}}
    exact, _ = train_small(2)
    whole, told = train_small(2, lowered)
    assert differing(leaf_copies(whole.run), leaf_copies(exact.run)) != []
    assert whole.run.learner.block.dtype == whole.run.rollout["log_prob"].dtype == torch.float32
    assert whole.run.learner.block.isfinite().all()
    assert told[0]["train/skipped"] == 0
    stopped, other = build_small(lowered), build_small(lowered)
    assert not train_(stopped, 2, Silent(17))
    restore_(other.run, leaf_copies(stopped.run))
    resume_episodes_(other)
    train_(other, 2, Silent())
    assert differing(leaf_copies(other.run), leaf_copies(whole.run)) == []


def test_in_bf16_probabilities_are_those_that_were_acted_on(build_small: Built) -> None:
    """Before the first update every ratio is 1: acting and learning round alike."""
    trainer = build_small({"learner": {"autocast": "bf16", "lead": {"first": 0.0, "last": 0.0}}})
    rollout, run, network = collect(trainer), trainer.run, trainer.setup.network
    weights = {name: w[0] for name, w in views(run.learner.block, network.layout).items()}

    def furthest(of: ActorCritic) -> float:
        seen = of(weights, rollout["obs"], torch.zeros_like(run.memory), rollout["starts"])
        now = seen.logits.log_softmax(-1).gather(-1, rollout["action"].unsqueeze(-1)).squeeze(-1)
        return float((now - rollout["log_prob"]).abs().max())

    assert furthest(network) < furthest(replace(network, autocast_bfloat16=False)) / 10


def test_the_page_and_the_profile_show_each_part_of_a_step() -> None:
    assert tuple(sections.PART_COLOURS) == PARTS
