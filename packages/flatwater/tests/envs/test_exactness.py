"""The test at the start of a run: an episode depends on its seed and its actions alone, or the difference is named."""

import random
import time
from typing import Any

import numpy as np
import pytest
import stateful
import torch

from flatwater.envs import exactness
from flatwater.envs.exactness import WorldPlayer, try_exactness
from flatwater.envs.foraging.config import ForagingConfig
from flatwater.envs.world import Array, Spaces
from flatwater.envs.worlds import build_world
from flatwater.envs.wrapped.config import WrappedConfig
from flatwater.envs.wrapped.gymnasium_world import GymnasiumWorld


def player_of(kind: Any, beside: int = 0) -> WorldPlayer:
    return WorldPlayer(GymnasiumWorld(kind, kind.__name__, WrappedConfig(), 2), beside)


@pytest.mark.parametrize("name", [*stateful.EXACT, *stateful.SAVED])
def test_what_can_be_played_again_is_exact(name: str) -> None:
    verdict = try_exactness(lambda beside: player_of(vars(stateful)[name], beside))
    assert (verdict.tested, verdict.why) == (True, "")


@pytest.mark.parametrize("name", [name for name in stateful.KINDS if name != "SavesObjects"])
def test_what_cannot_be_is_told_with_what_differs_and_why(name: str) -> None:
    verdict = try_exactness(lambda beside: player_of(vars(stateful)[name], beside))
    assert stateful.KINDS[name] in verdict.why
    assert ": at step " in verdict.why


@pytest.mark.parametrize("name", ["gymnasium:CartPole-v1", "gymnasium:Pendulum-v1", "forage"])
def test_what_ships_is_exact(name: str) -> None:
    if name == "forage":
        pytest.importorskip("mettagrid")

    def player(beside: int) -> WorldPlayer:
        world = build_world(name, envs=2, foraging=ForagingConfig(), wrapped=WrappedConfig())
        return WorldPlayer(world, beside)

    player(0).close()  # what is imported with the first is not of the test
    verdict = try_exactness(player)
    assert (verdict.tested, verdict.why) == (True, "")


@pytest.mark.parametrize("name", ["Line", "OfPython", "OfNumpy", "OfTorch", "Reseeds"])
def test_the_global_generators_are_left_where_they_were(name: str) -> None:
    def state() -> list[str]:
        return [repr(random.getstate()), repr(np.random.get_state()), repr(torch.get_rng_state().tolist())]  # noqa: NPY002

    before = state()
    try_exactness(lambda beside: player_of(vars(stateful)[name], beside))
    assert state() == before


def test_it_ends_within_its_time() -> None:
    """Slow steps or slow building: what does not fit is not begun, and no step is taken in vain."""
    steps = []

    class Slow(stateful.Line):
        def step(self, action: Any) -> stateful.Step:
            steps.append(1)
            until = time.process_time() + 0.02
            while time.process_time() < until:
                pass
            return super().step(action)

    verdict = try_exactness(lambda beside: player_of(Slow, beside), seconds=0.1)
    assert not verdict.tested
    assert "a step takes" in verdict.why
    assert len(steps) == 2, "one of each environment"
    assert try_exactness(lambda beside: player_of(Slow, beside), seconds=1.0).tested


@pytest.mark.parametrize("queued", [False, True])
def test_time_in_which_it_waits_for_a_core_does_not_count(monkeypatch: pytest.MonkeyPatch, *, queued: bool) -> None:
    """On a busy machine a step that took 0.4 s of the clock left the test undone."""
    waited = [0.0]
    monkeypatch.setattr(exactness, "queued_seconds", lambda: waited[0])
    began, counted = time.monotonic(), exactness.CountedTime()
    time.sleep(0.4)
    waited[0] += (time.monotonic() - began) * queued
    assert (counted.elapsed_seconds() < 0.1) == queued


@pytest.mark.parametrize("fault", [RuntimeError("broken"), SystemExit(0), BrokenPipeError()])
def test_an_error_of_the_environment_is_left_to_the_run(fault: BaseException) -> None:
    """It says whose fault it is, with a folder and a checkpoint."""

    class Faulty(stateful.Line):
        def step(self, _: Any) -> stateful.Step:
            raise fault

    verdict = try_exactness(lambda beside: player_of(Faulty, beside))
    assert (verdict.tested, verdict.why) == (False, "")


def test_ctrl_c_ends_it() -> None:
    class Interrupted(stateful.Line):
        def step(self, _: Any) -> stateful.Step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        try_exactness(lambda beside: player_of(Interrupted, beside))


class Counting:
    """A teacher that shows another action in each episode, and does not forget which."""

    def __init__(self, forgets: bool) -> None:  # noqa: FBT001
        self.forgets, self.episodes = forgets, np.zeros(2, np.int64)

    def begin_(self, which: Array) -> None:
        self.episodes[which] = 0 if self.forgets else self.episodes[which] + 1

    def step_batch(self, _: Array, actions: Array) -> None:
        actions[...] = self.episodes[:, None] % 3


@pytest.mark.parametrize("forgets", [True, False])
def test_a_teacher_that_keeps_something_is_found(forgets: bool) -> None:  # noqa: FBT001
    def player(beside: int) -> WorldPlayer:
        return WorldPlayer(GymnasiumWorld(stateful.Turns, "Turns", WrappedConfig(), 2), beside, Counting(forgets))

    why = try_exactness(player).why
    assert why.startswith("actions of the teacher of the same episode differ") or (forgets and not why)


class Coupled:
    """A world of the user's whose environments draw from one generator, seeded by whoever began last."""

    def __init__(self, envs: int) -> None:
        self.spaces = Spaces(envs, 1, "vector", (1,), ("a", "b"), 9)
        self.draws = np.random.default_rng(0)

    def begin_(self, which: Array, seeds: Array, obs: Array) -> None:
        self.draws = np.random.default_rng(seeds[which][-1])
        obs[which] = 0

    def step_(self, actions: Array, obs: Array, reward: Array, terminated: Array, truncated: Array) -> None:
        obs[...] = self.draws.random(obs.shape)
        reward[...] = actions
        terminated[...] = truncated[...] = False

    def close(self) -> None:
        """Nothing to close."""


def test_environments_that_draw_from_one_generator_are_found() -> None:
    """An episode alone follows from its seed: it is what is played beside it that matters."""
    assert "beside it" in try_exactness(lambda beside: WorldPlayer(Coupled(2), beside)).why
