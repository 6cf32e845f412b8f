"""Games in turns: an episode follows from its seed and the learner's actions, and both sides play by the rules."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces as gym
from turns import MAXIMUM_STONES, InfoNim, Nim, OneStone, three

from flatwater.envs.conformance import check_env_conformance
from flatwater.envs.foraging.config import ForagingConfig
from flatwater.envs.open_envs import close_open_envs
from flatwater.envs.world import Array
from flatwater.envs.worlds import build_world
from flatwater.envs.wrapped.config import WrappedConfig
from flatwater.envs.wrapped.turns_world import (
    OpponentTurns,
    TurnsWorld,
    learner_sides,
    opponent_numbers,
    replace_opponents,
)
from flatwater_watch.errors import ConfigError


def build(make: Any = Nim, envs: int = 3, steps: int = 50) -> TurnsWorld:
    return TurnsWorld(make, "turns:Nim", WrappedConfig(steps=steps), envs)


class Game:
    """A world's arrays, and actions drawn from those that are legal."""

    def __init__(self, world: TurnsWorld, seed: int = 0) -> None:
        shape = (world.spaces.envs, 1)
        self.world, self.rng = world, np.random.default_rng(seed)
        self.obs = np.full((*shape, *world.spaces.obs), np.nan, np.float32)
        self.legal = np.zeros((*shape, world.spaces.legal), np.bool_)
        self.outcome = np.zeros(shape, np.float32), np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)

    def begin(self, seeds: list[int], which: Array | None = None) -> "Game":
        every = np.ones(len(seeds), np.bool_)
        self.world.begin_(every if which is None else which, np.array(seeds), self.obs, self.legal)
        return self

    def step(self) -> None:
        actions = (self.rng.random(self.legal.shape) * self.legal).argmax(-1)
        self.world.step_(actions, self.obs, *self.outcome, self.legal)

    def play(self, steps: int) -> list[list[bytes]]:
        found = []
        for _ in range(steps):
            self.step()
            found.append([array.tobytes() for array in (self.obs, *self.outcome, self.legal)])
        return found


SEEDS = [3, 2, 7]


@pytest.mark.parametrize("make", [Nim, InfoNim, three])
def test_an_episode_follows_from_its_seed_and_the_learners_actions(make: Any) -> None:
    whole = Game(build(make)).begin(SEEDS).play(2)
    other = Game(build(make)).begin([8, 9, 10])
    other.play(3)
    other.rng = np.random.default_rng(0)
    assert other.begin(SEEDS).play(2) == whole
    assert Game(build(make)).begin([4, 2, 7]).play(2) != whole


def test_the_seed_names_the_side_and_the_opponents() -> None:
    seeds = np.array([10, 11, 12])
    against = replace_opponents(replace_opponents(seeds, 3), np.array([1, 2, 0]))
    assert opponent_numbers(against).tolist() == [1, 2, 0]
    assert learner_sides(against, 2).tolist() == learner_sides(seeds, 2).tolist() == [0, 1, 0]
    world = build()
    Game(world).begin(against.tolist())
    assert [copy.agent_selection for copy in world.copies] == ["player_0", "player_1", "player_0"]
    assert [len(copy.moves) for copy in world.copies] == [0, 1, 0], "the other side has moved"


@pytest.mark.parametrize("make", [Nim, InfoNim, three])
def test_a_learner_is_paid_for_the_end_whoever_makes_it(make: Any) -> None:
    """The game itself refuses a move that takes more stones than there are, of either side."""
    world = build(make, envs=8)
    game, paid = Game(world).begin(list(range(8))), np.zeros(8)
    for _ in range(9):
        over = (game.outcome[1] | game.outcome[2])[:, 0]
        assert game.legal[over].all()
        game.step()
        assert (game.outcome[0][over] == 0).all(), "an episode that is over pays nothing"
        paid += game.outcome[0][:, 0]
    assert game.outcome[1].all()
    learners = [f"player_{side}" for side in learner_sides(np.arange(8), world.sides)]
    won = [copy.moves[-1][0] == learner for copy, learner in zip(world.copies, learners, strict=True)]
    assert paid.tolist() == np.where(won, 1.0, -1.0).tolist()
    assert {*won} == {True, False}


def test_a_game_that_is_over_before_the_learner_moves_ends_with_the_first_step() -> None:
    game = Game(build(OneStone, envs=2)).begin([0, 1])
    assert game.legal[1].all(), "of the second player, who has lost already"
    game.world.step_(np.zeros((2, 1), np.int64), game.obs, *game.outcome, game.legal)
    assert game.outcome[0][:, 0].tolist() == [1.0, -1.0]
    assert game.outcome[1].all()


def test_an_episode_is_truncated_after_the_learners_steps() -> None:
    game = Game(build(lambda: Nim(stones=60), envs=2, steps=3)).begin([0, 1])
    game.play(2)
    assert not game.outcome[2].any()
    game.step()
    assert game.outcome[2].all()
    assert not game.outcome[1].any()


def test_an_episode_that_begins_leaves_the_others_alone() -> None:
    alone, other = (Game(build(lambda: Nim(stones=60))).begin(SEEDS) for _ in range(2))
    for game in (alone, other):
        game.play(2)
    rows = other.obs.copy(), other.legal.copy()
    other.begin([0, 50, 0], np.array([False, True, False]))
    assert np.array_equal(other.obs[[0, 2]], rows[0][[0, 2]])
    assert np.array_equal(other.legal[[0, 2]], rows[1][[0, 2]])
    for game in (alone, other):
        game.world.step_(np.zeros((3, 1), np.int64), game.obs, *game.outcome, game.legal)
    assert np.array_equal(alone.obs[[0, 2]], other.obs[[0, 2]])


class Takers:
    """Opponents that take as many stones as their number says."""

    def __init__(self) -> None:
        self.begun = 0

    def begin_(self, which: Array) -> None:
        self.begun += int(which.sum())

    def choose_(self, which: Array, turns: OpponentTurns, actions: Array) -> None:
        most = turns.legal.sum(-1)
        actions[which] = np.minimum(turns.opponents, most)[which] - 1


def test_the_opponents_of_a_number_play_its_episodes() -> None:
    world = build(envs=3)
    world.opponents = takers = Takers()
    game = Game(world).begin(replace_opponents(np.array([1, 1, 1]), np.array([1, 2, 3])).tolist())
    assert takers.begun == 3
    game.play(6)
    for number, copy in enumerate(world.copies, 1):
        theirs = [stones for mover, stones in copy.moves if mover == "player_0"]
        assert theirs[:-1] == [number] * (len(theirs) - 1)


def test_games_are_found_by_name_and_by_id() -> None:
    for name in ("turns:Nim", "pettingzoo:turns"):
        world = build_world(name, envs=1, foraging=ForagingConfig(), wrapped=WrappedConfig())
        assert isinstance(world, TurnsWorld)
    with pytest.raises(ConfigError, match="classic/tictactoe-v3"):
        build_world("pettingzoo:classic/tictacto_v3", envs=1, foraging=ForagingConfig(), wrapped=WrappedConfig())


@pytest.mark.parametrize("name", ["classic/tictactoe_v3", "classic/connect_four_v3"])
def test_games_of_pettingzoo_are_played_as_they_come(name: str) -> None:
    pytest.importorskip("pygame", reason="PettingZoo's games draw with pygame")
    world = build_world(f"pettingzoo:{name}", envs=4, foraging=ForagingConfig(), wrapped=WrappedConfig())
    assert isinstance(world, TurnsWorld)
    assert world.spaces.masked
    game = Game(world).begin([0, 1, 2, 3])
    game.play(21)
    assert game.outcome[1].all()


def test_processes_of_their_own_do_not_play_against_policies_of_the_run() -> None:
    with close_open_envs(), pytest.raises(ConfigError, match="env_workers: expected 0"):
        build_world("turns:Nim", envs=2, foraging=ForagingConfig(), wrapped=WrappedConfig(), workers=1)


def test_a_game_conforms_and_a_wrong_one_is_told() -> None:
    class Wrong(Nim):
        def draw_stones(self, _: int | None) -> int:
            return super().draw_stones(None)

    assert check_env_conformance(Nim) == []
    # One of three numbers is drawn each time: in one check of 27 all draws that are compared agree.
    assert any("differ" in finding for _ in range(8) for finding in check_env_conformance(Wrong))


def test_numbers_are_drawn_within_their_bounds() -> None:
    class Push(Nim):
        """The action is a number, and the share of the stones that it takes."""

        masks_in_info = True

        def action_space(self, _: str) -> gym.Space[Any]:
            return gym.Box(0, 1, (1,), np.float32)

        def step(self, action: Any) -> None:
            assert action is None or self.action_space("").contains(action)
            super().step(None if action is None else min(int(action[0] * MAXIMUM_STONES), self.left - 1, 2))

    world = build(Push, envs=2)
    assert world.spaces.bounds == ((0.0, 1.0),)
    assert not world.spaces.masked
    obs, outcome = np.zeros((2, 1, *world.spaces.obs), np.float32), Game(world).outcome
    world.begin_(np.ones(2, np.bool_), np.array([0, 1]), obs)
    for _ in range(9):
        world.step_(np.full((2, 1, 1), 0.5, np.float32), obs, *outcome)
    assert outcome[1].all()
    assert torch.isfinite(torch.from_numpy(obs)).all()
