"""MiniGrid's bot solves levels, also where others act, and a bot that fails is replaced."""

import numpy as np
import pytest
import torch
from poisoned import begun, every, row_of

from flatwater.envs.foraging.config import ForagingConfig
from flatwater.envs.worlds import build_teacher, build_world
from flatwater.envs.wrapped.babyai import BabyAITeacher
from flatwater.envs.wrapped.config import WrappedConfig
from flatwater.envs.wrapped.gymnasium_world import GymnasiumWorld


def level(name: str = "BabyAI-GoToRedBall-v0", envs: int = 4) -> tuple[GymnasiumWorld, BabyAITeacher]:
    wrapped = WrappedConfig(steps=128)
    world = build_world(f"gymnasium:{name}", envs=envs, foraging=ForagingConfig(), wrapped=wrapped)
    teacher = build_teacher("babyai", world, torch.Generator())
    assert isinstance(world, GymnasiumWorld)
    assert isinstance(teacher, BabyAITeacher)
    return world, teacher


def solved_share(world: GymnasiumWorld, teacher: BabyAITeacher, rounds: int, by_chance: float) -> float:
    """The share of levels that end with a reward; each action is drawn with a probability instead of taught."""
    rng = np.random.default_rng(0)
    won = ended = 0
    envs, choices = world.spaces.envs, len(world.spaces.actions)
    row = begun(world, list(range(envs)))
    teacher.begin_(every(world))
    while ended < rounds:
        actions = np.full((envs, 1), -9, np.int64)
        teacher.step_batch(row.obs, actions)
        assert ((actions >= 0) & (actions < choices)).all()
        actions = np.where(rng.random((envs, 1)) < by_chance, rng.integers(0, choices, (envs, 1)), actions)
        row = row_of(world)
        world.step_(actions, *row)
        over = (row.terminated | row.truncated)[:, 0]
        won += int((row.reward[over] > 0).sum())
        ended += int(over.sum())
        world.begin_(over, np.arange(envs) + 100 * ended, row.obs)
        teacher.begin_(over)
    return won / ended


def test_the_bot_solves_every_level() -> None:
    world, teacher = level()
    assert solved_share(world, teacher, 30, by_chance=0) == 1
    assert teacher.failures == 0


def test_the_bot_solves_levels_in_which_every_third_action_is_not_its_own() -> None:
    world, teacher = level()
    assert solved_share(world, teacher, 20, by_chance=0.33) >= 0.9
    assert solved_share(world, teacher, 20, by_chance=1.0) <= 0.7


class Lost:
    """A bot that does not know what to do."""

    def __init__(self, _: object) -> None: ...

    def replan(self, _: int | None) -> int:
        raise AssertionError


def test_a_level_without_advice_gets_the_action_that_changes_nothing_and_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, teacher = level(envs=2)
    monkeypatch.setattr("flatwater.envs.wrapped.babyai.BabyAIBot", Lost)
    row = begun(world, [1, 2])
    teacher.begin_(every(world))
    actions = np.full((2, 1), -9, np.int64)
    for asked in (1, 2):
        teacher.step_batch(row.obs, actions)
        assert actions.tolist() == [[6], [6]]
        assert teacher.failures == 2 * asked
    before = world.copies[0].unwrapped.gen_obs()["image"].copy()  # type: ignore[attr-defined]
    world.step_(actions, *row)
    assert np.array_equal(world.copies[0].unwrapped.gen_obs()["image"], before)  # type: ignore[attr-defined]


def test_a_bot_that_fails_is_replaced_and_the_new_one_advises() -> None:
    world, teacher = level(envs=1)
    row = begun(world, [1])
    teacher.begin_(every(world))
    wanted, actions = np.full((1, 1), -9), np.full((1, 1), -9)
    teacher.step_batch(row.obs, wanted)
    teacher._bots[0] = Lost(None)  # type: ignore[assignment]
    teacher.step_batch(row.obs, actions)
    assert actions.tolist() == wanted.tolist()
    assert not isinstance(teacher._bots[0], Lost)
    assert teacher.failures == 0
