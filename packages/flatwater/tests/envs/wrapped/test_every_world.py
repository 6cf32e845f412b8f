"""What holds for all worlds: an episode follows from its seed and its actions, and all that is asked for is written."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from poisoned import POISON, Row, begun, every, play, random_actor, row_of

from flatwater.envs.foraging.config import ForagingConfig
from flatwater.envs.world import PADDING, World
from flatwater.envs.worlds import build_teacher, build_world
from flatwater.envs.wrapped.config import WrappedConfig

STEPS = 12
WORLDS = {
    "the foraging game": "forage",
    "an image and numbers": "gymnasium:MiniGrid-DoorKey-5x5-v0",
    "a level of BabyAI": "gymnasium:BabyAI-GoToRedBall-v0",
    "floats": "gymnasium:CartPole-v1",
    "chance in every step": "gymnasium:FrozenLake-v1",
    "several agents": "pettingzoo:mpe2.simple_spread_v3",
    "agents that leave": "pettingzoo:parting",
}


def build_kind(kind: str) -> World:
    return build_world(
        WORLDS[kind],
        envs=3,
        foraging=ForagingConfig(agents=2, steps=STEPS),
        wrapped=WrappedConfig(steps=STEPS),
    )


@pytest.fixture(params=list(WORLDS))
def kind(request: pytest.FixtureRequest) -> str:
    if WORLDS[request.param] == "forage":
        pytest.importorskip("mettagrid", reason="mettagrid has wheels for Python 3.11 and 3.12 alone")
    return str(request.param)


@pytest.fixture
def world(kind: str) -> Iterator[World]:
    one = build_kind(kind)
    yield one
    one.close()


def episodes(world: World, seeds: list[int], actions: int) -> list[Row]:
    """Rows of one episode of every environment, from its start until one is over in any."""
    row = begun(world, seeds)
    act, rows = random_actor(world, actions), [row]
    while not over(row).any():
        row = play(world, row, 1, act)[0]
        rows.append(row)
    return rows


def over(row: Row) -> np.ndarray:
    return (row.terminated | row.truncated).all(1)


def bits(rows: list[Row]) -> list[list[bytes]]:
    return [[array.tobytes() for array in row] for row in rows]


def test_an_episode_follows_from_its_seed_and_actions_in_a_fresh_world(world: World, kind: str) -> None:
    other = build_kind(kind)
    assert bits(episodes(world, [3, 1, 2], 7)) == bits(episodes(other, [3, 1, 2], 7))
    other.close()


def test_an_episode_follows_from_its_seed_whatever_came_before(world: World, kind: str) -> None:
    fresh = bits(episodes(build_kind(kind), [3, 1, 2], 7))
    episodes(world, [8, 9, 10], 5)
    play(world, begun(world, [5, 6, 7]), 2, random_actor(world, 4))  # left early
    assert bits(episodes(world, [3, 1, 2], 7)) == fresh


def test_other_seeds_or_other_actions_are_other_episodes(world: World) -> None:
    told = [
        bits(episodes(world, seeds, actions)) for seeds, actions in (([3, 1, 2], 7), ([4, 5, 6], 7), ([3, 1, 2], 8))
    ]
    assert told[0] != told[1]
    assert told[0] != told[2]


def test_environments_of_one_seed_and_the_same_actions_are_the_same(world: World) -> None:
    row = begun(world, [6, 6, 6])
    rng = np.random.default_rng(2)
    while not over(row).any():
        assert all((array == array[:1]).all() for array in row)
        actions = np.repeat(rng.integers(0, len(world.spaces.actions), (1, world.spaces.agents)), 3, axis=0)
        row = row_of(world)
        world.step_(actions, *row)


def test_an_environment_that_begins_leaves_the_others_and_their_rows_alone(world: World, kind: str) -> None:
    other = build_kind(kind)
    told = []
    for each, begins in ((world, False), (other, True)):
        row = play(each, begun(each, [3, 1, 2]), 4, random_actor(each, 7))[-1]
        assert not over(row).any()
        before = row.obs.copy()
        if begins:
            each.begin_(np.array([False, True, False]), np.array([-1, 50, -1]), row.obs)
            assert np.array_equal(row.obs[[0, 2]], before[[0, 2]])
        row = play(each, row, 1, random_actor(each, 9))[-1]
        told.append([array[[0, 2]].tobytes() for array in row])
    other.close()
    assert told[0] == told[1]


def test_all_that_is_asked_for_is_written_in_its_shape_and_type(world: World) -> None:
    spaces = world.spaces
    for row in episodes(world, [3, 1, 2], 7)[1:]:
        assert row.obs.shape == (3, spaces.agents, *spaces.obs)
        assert row.obs.dtype == (np.uint8 if spaces.form == "tokens" else np.float32)
        assert not (row.reward == POISON[row.reward.dtype]).any()
        if spaces.form == "vector":
            assert np.isfinite(row.obs).all()
            assert not (row.obs == POISON[row.obs.dtype]).any()
        else:
            assert not (row.obs == POISON[row.obs.dtype]).all(-1).any()


def test_flags_are_written_over_whatever_stood_there(world: World) -> None:
    row = begun(world, [3, 1, 2])
    for flags in (row.terminated, row.truncated):
        flags[:] = True
    world.step_(np.zeros((3, world.spaces.agents), np.int64), *row)
    assert not row.terminated.any()
    assert not row.truncated.any()


def test_a_token_that_is_none_is_padding_throughout(world: World) -> None:
    if world.spaces.form != "tokens":
        return
    for row in episodes(world, [3, 1, 2], 7):
        is_none = row.obs[..., 0] == PADDING
        assert (row.obs[is_none] == PADDING).all()


def test_an_episode_is_truncated_at_its_last_step_at_the_latest(world: World) -> None:
    assert world.spaces.steps == STEPS
    assert 2 <= len(episodes(world, [3, 1, 2], 7)) <= STEPS + 1


def test_an_agent_is_not_terminated_and_truncated_at_once(world: World) -> None:
    for row in episodes(world, [3, 1, 2], 7):
        assert not (row.terminated & row.truncated).any()


def test_a_chance_teacher_writes_every_slot_with_an_action_from_its_own_generator(world: World) -> None:
    rngs = [torch.Generator().manual_seed(4) for _ in range(2)]
    told = []
    for rng in rngs:
        teacher = build_teacher("random", world, rng)
        teacher.begin_(every(world))
        actions = np.full((3, world.spaces.agents), -9)
        for _ in range(40):
            teacher.step_batch(row_of(world).obs, actions)
            told.append(actions.copy())
    drawn_ = np.stack(told)
    assert np.array_equal(drawn_[:40], drawn_[40:])
    assert set(drawn_.ravel().tolist()) == set(range(len(world.spaces.actions)))
