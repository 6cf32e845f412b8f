"""A generation of members in an environment: resumed at any step, buffers that stay, what the replay is given."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from trees import differing, leaf_copies, pointers, restore_
from watchers import Silent

from flatwater.config.mappings import from_mapping
from flatwater.envs.world import Array, Spaces
from flatwater.evolution.generation import crown_best_
from flatwater.recipes.evolve.config import EvolveRunConfig
from flatwater.replay.ring import gather
from flatwater.trainers.evolve.round import EvolveTrainer, build_trainer
from flatwater.trainers.evolve.setup import EvolveSetup
from flatwater.trainers.evolve.state import build_population
from flatwater.trainers.loop import train_
from flatwater.trainers.resume_worlds import resume_episodes_
from flatwater.trainers.world_trainer import Worlds

CPU = torch.device("cpu")
FALL, LIMIT = 1.5, 5


class Fall:
    """A number that actions are added to: beyond `FALL` the episode terminates, after `LIMIT` steps it is truncated."""

    def __init__(self, envs: int) -> None:
        self.spaces = Spaces(envs, 1, "vector", (1,), ("push",), LIMIT, ((-1.0, 3.0),))
        self.at, self.age = np.zeros(envs, np.float32), np.zeros(envs, np.int64)

    def begin_(self, which: Array, seeds: Array, obs: Array) -> None:
        self.at[which] = (seeds[which] % 201) / 100 - 1
        self.age[which] = 0
        obs[which, 0, 0] = self.at[which]

    def step_(self, actions: Array, obs: Array, reward: Array, terminated: Array, truncated: Array) -> None:
        self.at, self.age = (self.at + actions[:, 0, 0]).astype(np.float32), self.age + 1
        obs[:, 0, 0], reward[:, 0] = self.at, -abs(self.at)
        terminated[:, 0] = abs(self.at) > FALL
        truncated[:, 0] = (self.age >= LIMIT) & ~terminated[:, 0]

    def close(self) -> None:
        """Nothing is held."""


class Steps(Fall):
    """The same, where an action is one of three pushes."""

    def __init__(self, envs: int) -> None:
        super().__init__(envs)
        self.spaces = Spaces(envs, 1, "vector", (1,), ("left", "stay", "right"), LIMIT)

    def step_(self, actions: Array, obs: Array, reward: Array, terminated: Array, truncated: Array) -> None:
        super().step_((actions[..., None] - 1).astype(np.float32), obs, reward, terminated, truncated)


DQN = {"double": True, "duelling": True, "n_steps": 3, "epsilon": {"first": 1.0, "last": 0.1, "ends": 9}}


def build_small(algorithm: str = "td3", envs: int = 2, size: int = 3) -> EvolveTrainer:
    small = {
        "steps": 7,
        "population": {"size": size, "envs": envs},
        "evaluation": {"episodes": 2},
        "net": {"hidden": 6},
        "learner": {"algorithm": algorithm, algorithm: {"batch_size": 4, **(DQN if algorithm == "dqn" else {})}},
        "replay": {"capacity": 60, "warmup": 12},
    }
    config = from_mapping(EvolveRunConfig, small, "test")
    world = Steps if algorithm == "dqn" else Fall
    worlds = Worlds(world(size * envs), world(config.population.players * 2))
    setup = EvolveSetup(config, CPU, worlds.training.spaces, worlds.held_out.spaces)
    return build_trainer(setup, build_population(setup), worlds)


@pytest.mark.long
@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("algorithm", "size"), [("ddpg", 3), ("td3", 3), ("sac", 3), ("sac", 1), ("dqn", 3), ("dqn", 1)]
)
def test_a_run_that_was_stopped_at_any_step_goes_on_bit_for_bit(algorithm: str, size: int) -> None:
    """A new build has the leaves alone: its worlds play their episodes again."""
    whole = build_small(algorithm, size=size)
    train_(whole, 3, Silent())
    wanted, phases = leaf_copies(whole.run), set()
    for steps in range(1, 3 * (7 + LIMIT + (size > 1)), 2):
        first, other = build_small(algorithm, size=size), build_small(algorithm, size=size)
        assert not train_(first, 3, Silent(steps))
        phases.add(first.progress.phase)
        restore_(other.run, leaf_copies(first.run))
        resume_episodes_(other)
        train_(other, 3, Silent())
        assert differing(leaf_copies(other.run), wanted) == [], f"stopped after {steps} steps"
    assert phases == ({0, 1, 2} if size > 1 else {0, 1})


def test_no_buffer_moves() -> None:
    trainer = build_small()
    before = pointers(trainer.run)
    train_(trainer, 3, Silent())
    assert pointers(trainer.run) == before


def test_a_truncated_episode_goes_on_from_its_last_observation_and_a_terminated_one_does_not() -> None:
    trainer = build_small(envs=1)
    for step in range(12):
        trainer.collector.step_(step)
    ring = trainer.run.ring
    index = (ring.priorities.mass > 0).nonzero().squeeze(1)
    batch = gather(ring, index[None])
    push = torch.from_numpy(trainer.setup.world_actions(batch.action[0]))
    assert torch.allclose(batch.next_obs[0], batch.obs[0] + push, atol=1e-6), "each is the true successor"
    fallen = batch.next_obs[0, :, 0].abs() > FALL
    assert fallen.any()
    assert not fallen.all()
    assert torch.equal(batch.discount[0], (~fallen).float())


def test_members_play_the_same_episodes_and_their_fitness_is_the_mean_return() -> None:
    trainer = build_small()
    train_(trainer, 1, Silent(7 + LIMIT))
    trial = trainer.run.trial
    assert bool(trial.done.all())
    seeds = trial.episodes.seeds.view(4, 2)
    assert torch.equal(seeds, seeds[:1].expand(4, 2))
    values = trial.paid.view(4, 2).mean(1)
    trainer.phases[2].step_(0)
    best = int(values[:3].argmax())
    assert trainer.run.scores.values.tolist() == [*values[:3].tolist(), values[best].item()]
    assert trainer.run.scores.crowned


def test_a_champion_is_beaten_by_a_better_member_and_not_by_one_that_is_no_number() -> None:
    trainer = build_small()
    run = trainer.run
    assert crown_best_(run.learner, run.lineage, torch.tensor([1.0, 3.0, torch.nan, 9.0])) == 1, "there was none before"
    assert int(run.lineage.ids[-1]) == 1
    for rows in run.learner.inherited:
        assert torch.equal(rows[-1], rows[1])
    assert crown_best_(run.learner, run.lineage, torch.tensor([1.0, 3.0, 2.0, 3.0])) == -1
    assert crown_best_(run.learner, run.lineage, torch.tensor([1.0, 3.0, 4.0, torch.nan])) == 2


def test_actions_reach_both_bounds() -> None:
    setup = build_small().setup
    spaces = replace(setup.spaces, bounds=((-1.0, 3.0), (0.0, 0.1)), actions=("push", "pull"))
    scaled = replace(setup, spaces=spaces).world_actions(torch.tensor([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]]))
    assert np.allclose(scaled, [[-1, 0], [1, 0.05], [3, 0.1]])
    assert scaled.dtype == np.float32
