"""Self-play: whose opponents are whose, when a policy is kept and replaced, and that a run goes on bit for bit."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from trees import differing, leaf_copies, pointers, restore_
from turns import Nim
from watchers import Silent

from flatwater.config.mappings import from_mapping
from flatwater.envs.random_teacher import RandomTeacher
from flatwater.envs.split_seeds import HELD_OUT
from flatwater.envs.wrapped.config import WrappedConfig
from flatwater.envs.wrapped.turns_world import TurnsWorld, learner_sides, opponent_numbers, replace_opponents
from flatwater.recipes.ppo.config import PpoRunConfig
from flatwater.state.tree import nbytes
from flatwater.trainers.blocks.opponents import EARLIER, EarlierPolicies, deal_opponents, take_policy_
from flatwater.trainers.blocks.round import BlocksTrainer, build_trainer
from flatwater.trainers.blocks.state import RANDOM, BlocksSetup, build_blocks
from flatwater.trainers.loop import train_
from flatwater.trainers.resume_worlds import resume_episodes_
from flatwater.trainers.world_trainer import Worlds

CPU = torch.device("cpu")
TINY: dict[str, Any] = {
    "envs": 4,
    "block": 6,
    "policy": {"layers": (8,)},
    "learner": {"epochs": 2, "minibatches": 2, "lr": 0.01},
    "evaluation": {"envs": 3, "every": 2},
    "opponents": {"policies": 2, "every": 1},
}
WITH_MEMORY = {"policy": {"memory": 4, "hidden": 8}, "learner": {"unroll": 2}}


def build_small(changes: Mapping[str, Any] | None = None) -> BlocksTrainer:
    """A run that has not begun, of long games, so that many are running when a policy is due."""
    settings = {name: dict(value) if isinstance(value, dict) else value for name, value in TINY.items()}
    for name, value in (changes or {}).items():
        settings[name] = {**settings[name], **value} if isinstance(value, Mapping) else value
    config = from_mapping(PpoRunConfig, settings, "a test")
    worlds = Worlds(
        *(
            TurnsWorld(lambda: Nim(stones=25), "turns:Nim", WrappedConfig(steps=20), envs)
            for envs in (config.envs, config.evaluation.envs)
        )
    )
    spaces = worlds.training.spaces, worlds.held_out.spaces
    setup = BlocksSetup(config, CPU, *spaces, opponents=config.opponents)
    run = build_blocks(setup)
    return build_trainer(setup, run, worlds, None, {RANDOM: RandomTeacher(worlds.held_out, run.generators["random"])})


def earlier_of(trainer: BlocksTrainer) -> EarlierPolicies:
    return trainer.run.opponents[EARLIER]


@pytest.mark.parametrize(
    "changes", [pytest.param({}, id="layers"), pytest.param(WITH_MEMORY, id="memory", marks=pytest.mark.long)]
)
def test_a_run_that_was_stopped_at_any_step_goes_on_bit_for_bit(changes: Mapping[str, Any]) -> None:
    whole = build_small(changes)
    train_(whole, 4, Silent())
    wanted, played = leaf_copies(whole.run), set[int]()
    assert earlier_of(whole).taken_count > 2, "a policy was replaced"
    steps = 1
    while True:
        first, other = build_small(changes), build_small(changes)
        if train_(first, 4, Silent(steps)):
            break
        played |= {*opponent_numbers(first.run.episodes.seeds.numpy()).tolist()}
        restore_(other.run, leaf_copies(first.run))
        assert resume_episodes_(other) == "", f"stopped after {steps} steps"
        train_(other, 4, Silent())
        assert differing(leaf_copies(other.run), wanted) == [], f"stopped after {steps} steps"
        steps += 19
    assert played == {0, 1, 2}


def test_a_fork_takes_policies_as_often_as_its_own_settings_say() -> None:
    """The interval is of the settings: leaves of a checkpoint do not bring back that of the parent."""
    parent, fork = build_small(), build_small({"opponents": {"every": 7}})
    train_(parent, 1, Silent())
    restore_(fork.run, leaf_copies(parent.run))
    assert earlier_of(fork).every == 7


def test_no_tensor_moves_and_what_is_planned_is_held() -> None:
    trainer = build_small()
    home, plan = pointers(trainer.run), nbytes(trainer.run)
    setup = trainer.setup
    meta = BlocksSetup(setup.config, torch.device("meta"), setup.spaces, setup.held_out, opponents=setup.opponents)
    assert nbytes(build_blocks(meta)) == plan
    train_(trainer, 5, Silent())
    assert pointers(trainer.run) == home
    assert nbytes(trainer.run) == plan
    held = sum(size for path, size in plan.items() if path.startswith("opponents."))
    assert held >= 2 * trainer.run.learner.block.nbytes, "two policies"


def test_the_first_policy_stays_and_the_others_give_way_to_newer_ones() -> None:
    trainer = build_small({"opponents": {"policies": 3, "every": 2}})
    earlier, learner, nobody = earlier_of(trainer), trainer.run.learner, np.zeros(4, np.int64)
    kept = []
    for round_ in range(15):
        learner.block.fill_(round_)
        take_policy_(earlier, learner, round_, nobody)
        kept.append(earlier.blocks[:, 0].tolist())
    assert earlier.taken_count == 7
    assert kept[1] == [0, 0, 0]
    assert kept[-1] == [2, 12, 14]
    assert kept[9] == [2, 8, 6]


def test_a_policy_that_is_played_against_is_not_replaced_and_gets_no_new_episodes() -> None:
    trainer = build_small({"opponents": {"policies": 2, "every": 1}})
    earlier, learner = earlier_of(trainer), trainer.run.learner
    nobody = np.zeros(4, np.int64)
    for round_ in (1, 2):
        learner.block.fill_(round_)
        take_policy_(earlier, learner, round_, nobody)
    seeds = np.arange(1000) * 7919 % HELD_OUT
    deal = {"sides": 2}
    assert set(opponent_numbers(deal_opponents(earlier, seeds, seeds, round_=2, **deal))) == {0, 1, 2}
    running = replace_opponents(nobody, np.array([0, 2, 1, 0]))
    learner.block.fill_(3)
    take_policy_(earlier, learner, 3, running)
    assert earlier.blocks[:, 0].tolist() == [1, 2], "an episode against it is running"
    assert set(opponent_numbers(deal_opponents(earlier, seeds, seeds, round_=3, **deal))) == {0, 1}
    take_policy_(earlier, learner, 4, nobody)
    assert earlier.blocks[:, 0].tolist() == [1, 3]
    assert set(opponent_numbers(deal_opponents(earlier, seeds, seeds, round_=4, **deal))) == {0, 1, 2}


@pytest.mark.parametrize("sides", [2, 3])
def test_sides_take_turns_and_seeds_stay_apart_from_those_held_out(sides: int) -> None:
    earlier = earlier_of(build_small())
    rng, last = np.random.default_rng(0), np.zeros(64, np.int64)
    for _ in range(9):
        seeds = deal_opponents(earlier, rng.integers(HELD_OUT, size=64), last, sides=sides, round_=0)
        assert np.array_equal(learner_sides(seeds, sides), (learner_sides(last, sides) + 1) % sides)
        assert set(opponent_numbers(seeds)) == {0}, "no policy is known yet"
        assert (seeds < HELD_OUT).all()
        last = seeds
