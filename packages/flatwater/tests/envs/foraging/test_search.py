"""The teacher takes the shortest way, delivers far more than chance, and knows nothing of other episodes."""

from collections import deque

import numpy as np
import pytest
from poisoned import begun, every, play, random_actor

from flatwater.envs.foraging.config import ForagingConfig
from flatwater.envs.foraging.search import SearchTeacher, first_reached_cell, reachable_cells
from flatwater.envs.foraging.world import ForagingWorld
from flatwater.envs.world import Array

SIDE = 9
MIDDLE = SIDE * SIDE // 2
BESIDE = MIDDLE + np.array([-SIDE, SIDE, -1, 1])


def distances(targets: Array, free: Array) -> dict[int, int]:
    """Steps from the nearest target to each cell, by a queue."""
    queue = deque((int(cell), 0) for cell in np.flatnonzero(targets))
    steps = dict(queue)
    while queue:
        cell, so_far = queue.popleft()
        for beside in (cell - SIDE, cell + SIDE, cell - 1, cell + 1):
            if free[beside] and beside not in steps:
                steps[beside] = so_far + 1
                queue.append((beside, so_far + 1))
    return steps


def random_windows(count: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(5)
    inside = np.zeros((SIDE, SIDE), np.bool_)
    inside[1:-1, 1:-1] = True
    inside[SIDE // 2, SIDE // 2] = False
    targets = rng.random((count, SIDE**2)) < 0.03
    free = (rng.random((count, SIDE**2)) < 0.6) & ~targets
    return targets & inside.ravel(), free & inside.ravel()


def test_a_wave_comes_first_to_the_side_that_a_queue_finds_nearest() -> None:
    targets, free = random_windows(400)
    prefers = np.random.default_rng(6).permuted(np.tile((1, 2, 3, 4), (400, 1)), axis=1)
    found = first_reached_cell(targets, free, BESIDE, prefers, SIDE)
    wanted = []
    for at in range(400):
        steps = distances(targets[at], free[at])
        sides = [(steps[cell], -prefers[at, side], side) for side, cell in enumerate(BESIDE.tolist()) if cell in steps]
        wanted.append(min(sides)[2] if sides else -1)
    assert found.tolist() == wanted
    assert len(set(wanted)) == 5


def test_the_cells_within_reach_are_those_that_a_queue_comes_to() -> None:
    _, free = random_windows(100)
    found = reachable_cells(free, MIDDLE, SIDE)
    for at in range(100):
        start = np.arange(SIDE**2) == MIDDLE
        assert set(np.flatnonzero(found[at]).tolist()) == set(distances(start, free[at])) - {MIDDLE}


def test_a_window_without_targets_is_reached_from_no_side() -> None:
    nothing = np.zeros((3, SIDE**2), np.bool_)
    assert first_reached_cell(nothing, ~nothing, BESIDE, np.ones((3, 4), np.int64), SIDE).tolist() == [-1, -1, -1]


def deliveries(*, teach: bool, episodes: int) -> float:
    world = ForagingWorld(ForagingConfig(), envs=8)
    teacher = SearchTeacher(world)
    chance, delivered = random_actor(world, 3), 0
    for episode in range(episodes):
        row = begun(world, list(range(episode * 100, episode * 100 + 8)))
        teacher.begin_(every(world))
        rows = play(world, row, world.spaces.steps, teacher.step_batch if teach else chance)
        delivered += sum(int((row.reward > 0).sum()) for row in rows)
    return delivered / (episodes * 8 * world.spaces.agents)


def test_the_teacher_delivers_at_least_28_and_twenty_times_as_much_as_chance() -> None:
    taught, drawn_at_random = deliveries(teach=True, episodes=2), deliveries(teach=False, episodes=2)
    assert taught >= 28
    assert drawn_at_random > 0
    assert taught >= 20 * drawn_at_random


@pytest.mark.parametrize("shape", [{"agents": 1}, {"agents": 7, "window": 15}, {"window": 3}])
def test_every_slot_is_written_with_a_move(shape: dict[str, int]) -> None:
    world = ForagingWorld(ForagingConfig(**shape), envs=3)
    teacher = SearchTeacher(world)
    moves = {world.spaces.actions.index(f"move_{side}") for side in ("north", "south", "west", "east")}

    def act(obs: Array, actions: Array) -> None:
        teacher.step_batch(obs, actions)
        assert set(actions.ravel().tolist()) <= moves

    teacher.begin_(every(world))
    play(world, begun(world, list(range(world.spaces.envs))), 60, act)


def taught(seeds: list[int], before: int, executed_by_chance: float = 0.0) -> list[list[list[int]]]:
    """The actions of 80 steps in each environment, after some steps in other episodes."""
    world = ForagingWorld(envs=len(seeds), config=ForagingConfig(steps=100))
    teacher = SearchTeacher(world)
    if before:
        teacher.begin_(every(world))
        play(world, begun(world, [seed + 50 for seed in seeds]), before, teacher.step_batch)
    told = []
    rng = np.random.default_rng(0)

    def act(obs: Array, actions: Array) -> None:
        teacher.step_batch(obs, actions)
        told.append(actions.copy())
        if rng.random() < executed_by_chance:
            actions[:] = rng.integers(0, len(world.spaces.actions), actions.shape)

    teacher.begin_(every(world))
    play(world, begun(world, seeds), 80, act)
    return np.stack(told, 1).tolist()


@pytest.mark.parametrize("executed_by_chance", [0.0, 0.5])
def test_begin_forgets_what_was_seen_before(executed_by_chance: float) -> None:
    assert taught([1, 2], 90, executed_by_chance) == taught([1, 2], 0, executed_by_chance)


def test_an_environment_does_not_notice_that_another_begins() -> None:
    told = []
    for begins in (False, True):
        world = ForagingWorld(envs=2, config=ForagingConfig())
        teacher = SearchTeacher(world)
        teacher.begin_(every(world))
        row = play(world, begun(world, [1, 2]), 50, teacher.step_batch)[-1]
        which = np.array([begins, False])
        world.begin_(which, np.array([3, 4]), row.obs)
        teacher.begin_(which)
        told.append(np.stack([after.obs for after in play(world, row, 60, teacher.step_batch)], 1))
    assert np.array_equal(told[0][1], told[1][1])
    assert not np.array_equal(told[0][0], told[1][0])


def test_an_environment_is_taught_the_same_whatever_the_others_are() -> None:
    assert taught([1, 2, 3], 0)[1] == taught([7, 2, 9], 0)[1]
    assert taught([1, 2, 3], 0)[0] != taught([7, 2, 9], 0)[0]


def test_the_same_episode_is_taught_the_same_in_every_environment() -> None:
    first, *others = taught([5, 5, 5], 0)
    assert all(other == first for other in others)


def test_an_agent_goes_straight_back_to_what_it_has_seen() -> None:
    """Mine and depot are out of each other's sight, but who knows both explores no more: all trips are as long."""
    world = ForagingWorld(
        envs=12, config=ForagingConfig(agents=1, size=14, window=7, mines=1, depots=1, walls=0, steps=999)
    )
    teacher = SearchTeacher(world)
    teacher.begin_(every(world))
    rows = play(world, begun(world, list(range(12))), 400, teacher.step_batch)
    paid = np.stack([row.reward[:, 0] for row in rows], 1)
    trips = [np.diff(np.flatnonzero(one)) for one in paid]
    far = [trip for trip in trips if len(trip) > 1 and trip.min() > 2 * 4]
    assert len(far) >= 5
    assert max(int(np.ptp(trip)) for trip in far) <= 2  # by the side from which it comes


def test_what_an_agent_explores_stays_where_it_is_while_the_agent_moves() -> None:
    world = ForagingWorld(envs=1, config=ForagingConfig(agents=1, size=40, mines=1, depots=1, walls=0))
    teacher = SearchTeacher(world)
    teacher.begin_(every(world))
    moved = []

    def act(obs: Array, actions: Array) -> None:
        goal, dice = teacher._exploration_goal.copy(), teacher._random_state.copy()
        teacher.step_batch(obs, actions)
        if (teacher._random_state == dice).all():
            shift = teacher._token_reader.read_tokens(obs.reshape(1, *world.spaces.obs)).shift
            moved.append(bool(shift.any()))
            assert np.array_equal(teacher._exploration_goal, goal - shift)

    play(world, begun(world, [1]), 40, act)
    assert sum(moved) >= 20
