"""Environments that processes step are those of one process, bit for bit; a process that ends is told."""

import os
import signal
from collections.abc import Iterator
from multiprocessing import active_children
from typing import Any

import numpy as np
import pytest
import torch
from brought import Boat

from flatwater.envs.foraging.config import ForagingConfig
from flatwater.envs.makers import hand_over_env, name_object
from flatwater.envs.open_envs import close_open_envs
from flatwater.envs.worlds import build_teacher, build_world
from flatwater.envs.wrapped.config import WrappedConfig
from flatwater.trainers.episodes import Episodes, begin_, build_episodes, save_world_state_, step_, view_episodes
from flatwater_watch.errors import ConfigError, RunError, UserCodeError

ENVS, STEPS = 5, 30
WORLDS = {
    "CartPole at once": ("CartPole-v1", ()),
    "masks": ("Taxi-v4", ()),
    "a mean that is kept": ("brought:Boat", ("NormalizeObservation",)),
    "several agents": ("pettingzoo:mpe2.simple_spread_v3", ()),
    "tokens": ("MiniGrid-Empty-5x5-v0", ()),
}
built: list[Any] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while built:
        built.pop().close()


def build(name: str, workers: int, wrappers: tuple[str, ...] = ()) -> Any:
    wrapped = WrappedConfig(steps=12, wrappers=wrappers)
    world = build_world(name, envs=ENVS, foraging=ForagingConfig(), wrapped=wrapped, workers=workers)
    built.append(world)
    return world


def play(world: Any, steps: int = STEPS) -> tuple[list[Any], Episodes]:
    """Everything that a world shows in some steps of random legal actions, and its running episodes."""
    spaces = world.spaces
    shape = (ENVS, spaces.agents)
    obs = np.zeros((*shape, *spaces.obs), spaces.obs_type)
    legal = np.ones((*shape, spaces.legal), np.bool_) if spaces.masked else None
    outcome = (np.zeros(shape, np.float32), np.zeros(shape, np.bool_), np.zeros(shape, np.bool_))
    episodes, seeds = build_episodes(spaces, torch.device("cpu")), np.arange(ENVS, dtype=np.int64)
    actions = np.zeros((*shape, *spaces.action_shape), np.int64 if spaces.bounds is None else np.float32)
    teacher = build_teacher("random", world, torch.Generator().manual_seed(0))
    begin_(world, episodes, np.ones(ENVS, np.bool_), seeds, obs, legal=legal)
    shown: list[Any] = []
    for _ in range(steps):
        teacher.step_batch(obs, actions, *([] if legal is None else [legal]))
        ended = step_(world, view_episodes(episodes), actions, obs, outcome, legal=legal)
        seeds += ENVS
        if ended.any():
            begin_(world, episodes, ended, seeds, obs, legal=legal)
        shown += [obs.tolist(), [part.tolist() for part in outcome], None if legal is None else legal.tolist()]
    return shown, episodes


@pytest.mark.parametrize("kind", WORLDS)
def test_any_number_of_processes_gives_the_same_bits(kind: str) -> None:
    name, wrappers = WORLDS[kind]
    one, two = build(name, 0, wrappers), build(name, 2, wrappers)
    assert two.spaces == one.spaces
    (shown, episodes), (shown_by_two, episodes_of_two) = play(one), play(two)
    assert shown_by_two == shown
    for world, kept in ((one, episodes), (two, episodes_of_two)):
        assert save_world_state_(world, kept) == ""
    assert {k: v.tolist() for k, v in episodes.kept.items()} == {k: v.tolist() for k, v in episodes_of_two.kept.items()}


def test_more_processes_than_environments_are_not_started() -> None:
    assert len(build("CartPole-v1", 64)._pool.processes) == ENVS


def test_an_object_goes_to_the_processes_as_it_is() -> None:
    boat = Boat(0.7)
    with hand_over_env(boat):
        worlds = [build(name_object(boat), workers) for workers in (0, 2)]
    assert play(worlds[1])[0] == play(worlds[0])[0]


class Breaks(Boat):
    """It fails in the third step."""

    def step(self, action: Any) -> Any:
        if self.steps == 2:
            raise ValueError("aground")
        return super().step(action)


def test_an_error_of_an_environment_is_told_as_in_one_process() -> None:
    with hand_over_env(Breaks), pytest.raises(UserCodeError) as here:
        play(build(name_object(Breaks), 0))
    with hand_over_env(Breaks), pytest.raises(UserCodeError) as there:
        play(build(name_object(Breaks), 2))
    assert str(there.value) == str(here.value)
    assert "step() raised ValueError: aground" in str(there.value)


class Tells(Boat):
    """Its infos hold what no process can send."""

    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], {"hear": lambda: None}


def test_an_info_that_cannot_be_sent_is_refused_and_the_process_goes_on() -> None:
    with hand_over_env(Tells):
        world = build(name_object(Tells), 2)
        play(world)
        with pytest.raises(RunError, match=r"info: .*cannot be sent.*lambda.*--env-workers 0"):
            world.infos[ENVS - 1]
        play(world)


def test_a_wrong_name_is_refused_by_the_processes() -> None:
    with close_open_envs(), pytest.raises(ConfigError, match='Did you mean "CartPole-v1"'):
        build("CartPol-v1", 2)
    assert not active_children()


def test_a_process_that_was_killed_is_told() -> None:
    world = build("CartPole-v1", 2)
    os.kill(world._pool.processes[1].pid, signal.SIGKILL)
    with pytest.raises(RunError, match=r"process that steps environments has ended.*--env-workers"):
        play(world)


def test_a_teacher_needs_the_environments_in_its_own_process() -> None:
    with pytest.raises(ConfigError, match="env_workers: expected 0"):
        build_teacher("babyai", build("MiniGrid-Empty-5x5-v0", 1), torch.Generator())
