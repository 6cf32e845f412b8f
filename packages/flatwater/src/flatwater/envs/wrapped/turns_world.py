"""Copies of a PettingZoo game in turns (AEC) as a world with one learner in each, whose opponents play the other sides.

A step goes from a turn of the learner to its next turn, or to its end, with all turns of others in between. The seed of
an episode contains the learner's side and the number of its opponents. So an episode follows from its seed and the
learner's actions, as in every world, as long as the opponents' policies stay as they are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from flatwater.envs.kept_state import EpisodeStarts
from flatwater.envs.random_teacher import RandomTeacher
from flatwater.envs.world import Array, check_legal
from flatwater.envs.wrapped.actions import make_action_spec, world_spaces
from flatwater.envs.wrapped.checks import (
    CONVERSION_ERRORS,
    check_flag,
    check_info,
    check_reward,
    find_not_finite,
    interface_error,
    not_finite_error,
)
from flatwater.envs.wrapped.config import WrappedConfig
from flatwater.envs.wrapped.masks import find_mask, refuse_late_mask, write_mask
from flatwater.envs.wrapped.native_spaces import native_spaces
from flatwater.envs.wrapped.pettingzoo_copies import PettingZooCopies
from flatwater.envs.wrapped.step_limit import MAXIMUM_STEPS, StepLimit
from flatwater.user_code import CallGuard
from flatwater_watch.errors import ConfigError, RunError

OPPONENT_BIT = 40
"""Lowest bit of the opponents' number in the seed of an episode. The bits below it are a seed as in other worlds."""
_EPISODE_BITS = (1 << OPPONENT_BIT) - 1
"""Mask of the bits below."""
AT_RANDOM = 0
"""Opponents' number that stands for random actions."""
MAXIMUM_TURNS = 100_000
"""Turns of opponents in a row after which the run ends with an error: the game gives the learner no turn."""


def opponent_numbers(seeds: Array) -> Array:
    """Return the number of the opponents of each episode, which its seed contains in the bits from 40 on."""
    return seeds >> OPPONENT_BIT


def learner_sides(seeds: Array, sides: int) -> Array:
    """Return the learner's side in each episode, which its seed contains: a position in `possible_agents`."""
    return (seeds & _EPISODE_BITS) % sides


def replace_opponents(seeds: Array, opponents: Array | int) -> Array:
    """Return the seeds of the same episodes, but against opponents of these numbers."""
    return (seeds & _EPISODE_BITS) + (np.asarray(opponents, np.int64) << OPPONENT_BIT)


@dataclass(frozen=True)
class OpponentTurns:
    """The present turns of opponents, a row for each copy; rows of copies where no opponent is to move are stale."""

    opponents: Array
    """Number of the opponents, int64 [E]."""
    sides: Array
    """Side that is to move, int64 [E]."""
    obs: Array
    """Observation of that side, [E, *obs]."""
    legal: Array
    """Masks of legal actions, bool [E, R]; R is 0 where every action is legal."""
    generators: Sequence[torch.Generator]
    """Generator of each copy's episode, from which its opponents draw."""


class Opponents(Protocol):
    """Policies that play the sides other than the learner's, each under a number above `AT_RANDOM`."""

    def begin_(self, env_mask: Array) -> None:
        """Reset the memory of the copies of `env_mask`, bool [E], in which episodes begin."""

    def choose_(self, env_mask: Array, turns: OpponentTurns, actions: Array) -> None:
        """Write the actions of the copies of `env_mask`, bool [E], into `actions`, [E, *action]."""


class _Turn(NamedTuple):
    """Result of an environment's `last`, about the agent that is to act."""

    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]

    @property
    def is_over(self) -> bool:
        """Whether the agent's episode is over."""
        return self.terminated or self.truncated


GONE = _Turn(None, 0.0, True, False, {})  # noqa: FBT003  (as the environment gives it)
"""Turn of a learner that the environment has removed from its agents."""


class TurnsWorld(PettingZooCopies):
    """A `World` of E copies of one game, with one agent in each: the learner.

    Its opponents act at random until others are set.
    """

    def __init__(
        self, make: Callable[[], Any], title: str, config: WrappedConfig, envs: int, *, allow_nan: bool = False
    ) -> None:
        """Build the copies.

        Args:
            make: returns a new copy.
            title: name of the environment, for messages.
            config: settings of the copies.
            envs: number of copies, E.
            allow_nan: whether NaN and infinities are passed on; else they end the run.

        Raises:
            ConfigError: the environment has no agents, or agents of different spaces.
        """
        super().__init__(make, title, envs)
        observation_space, action_space = self._common_spaces()
        self._allow_nan = allow_nan
        first_copy = self.copies[0]
        self._last_guard = CallGuard(self._subject, self._user_layer, "last")
        self.opponents: Opponents | None = None
        """Policies of the other sides; None if all of them act at random."""
        self._actions = make_action_spec(action_space, first_copy.unwrapped, title)
        # The first turn of an episode shows whether there are masks, next to the observation or in the info.
        with self._reset_guard:
            first_copy.reset(seed=0)
        first_turn = self._read_turn(first_copy)
        has_masks = self._actions.bounds is None and find_mask(first_turn.observation, first_turn.info) is not None
        self.native = native_spaces(observation_space, action_space, config.form, title)
        """Spaces of each agent."""
        self._reader = self.native.env_reader
        self.episode_starts = EpisodeStarts(self.copies, make)
        steps = config.steps or MAXIMUM_STEPS
        self._spaces = world_spaces(
            self._reader, self._actions, envs=envs, steps=steps, masked=has_masks, kept=self.episode_starts.state_bytes
        )
        self._limit, self.infos = StepLimit(envs, steps), [dict[str, Any]() for _ in range(envs)]
        # Only measurements, numbers of a Box of floats, can be NaN or infinite.
        self._checks_observations = not allow_nan and bool(self._reader.measures)
        self._allocate_episodes_(envs)

    def _common_spaces(self) -> tuple[Any, Any]:
        """Return the observation space and the action space that all agents have.

        Raises:
            ConfigError: the agents have different spaces.
        """
        first_agent, *others = self._agents
        for agent in others:
            for noun, first, other in zip(
                ("observations", "actions"), self._agent_spaces[first_agent], self._agent_spaces[agent], strict=True
            ):
                if first != other:
                    raise ConfigError(
                        f"{self._name}: {noun}: expected one space for all sides of a game in turns, as one policy "
                        f"plays all of them, got {first} of {first_agent} and {other} of {agent}. Pad them, "
                        "--wrapped.wrappers supersuit:pad_observations_v0 supersuit:pad_action_space_v0"
                    )
        return self._agent_spaces[first_agent]

    def _allocate_episodes_(self, envs: int) -> None:
        """Allocate the state of each copy's episode."""
        spaces = self._spaces
        self._learner_sides = np.zeros(envs, np.int64)
        # Whether each learner has terminated, and whether it was truncated.
        self._is_over = np.zeros((2, envs), np.bool_)
        # Rewards of learners that no step has returned yet: a learner may have one before its first action.
        self._pending_rewards = np.zeros(envs, np.float32)
        self._learner_turns: list[_Turn] = [GONE] * envs
        self._opponent_turns = OpponentTurns(
            opponents=np.zeros(envs, np.int64),
            sides=np.zeros(envs, np.int64),
            obs=np.zeros((envs, *spaces.obs), spaces.obs_type),
            legal=np.ones((envs, spaces.legal), np.bool_),
            generators=[torch.Generator() for _ in range(envs)],
        )
        # A `RandomTeacher` draws legal actions: here for opponents without a policy.
        self._random_players = [RandomTeacher(self, generator) for generator in self._opponent_turns.generators]
        self._opponent_actions = np.zeros((envs, *spaces.action_shape), spaces.action_type)

    @property
    def sides(self) -> int:
        """Number of sides of a game."""
        return len(self._agents)

    def begin_(self, env_mask: Array, seeds: Array, obs: Array, legal: Array | None = None) -> None:
        """Reset the copies of `env_mask` with their seeds, and let opponents play up to the learner's first turn.

        Args:
            env_mask: bool [E], copies in which an episode begins.
            seeds: int64 [E]; a seed also contains the learner's side and the number of its opponents.
            obs: [E, 1, *obs], rows of `env_mask` overwritten.
            legal: bool [E, 1, R], rows of `env_mask` overwritten; None in a world without masks.

        Raises:
            UserCodeError: a copy's `reset`, `last` or `step` failed, or its result is not as the interface says.
            RunError: there is no mask of the length that is expected.
        """
        self.episode_starts.record_starts_(env_mask)
        self._learner_sides[env_mask] = learner_sides(seeds, self.sides)[env_mask]
        self._opponent_turns.opponents[env_mask] = (
            opponent_numbers(seeds)[env_mask] if self.opponents is not None else AT_RANDOM
        )
        self._is_over[:, env_mask] = False
        self._pending_rewards[env_mask] = 0
        for env in np.flatnonzero(env_mask).tolist():
            # 32 bits of the seed, as NumPy's older generators take no more.
            with self._reset_guard:
                self.copies[env].reset(seed=int(seeds[env]) % 2**32)
            self._opponent_turns.generators[env].manual_seed(int(seeds[env]) % 2**32)
        if self.opponents is not None:
            self.opponents.begin_(env_mask)
        self._limit.begin_(env_mask, seeds)
        self._play_opponents_(pending=env_mask.copy())
        self._write_learner_turns_(env_mask, obs, legal)

    def step_(  # noqa: PLR0917  (those of a world with masks)
        self,
        actions: Array,
        obs: Array,
        reward: Array,
        terminated: Array,
        truncated: Array,
        legal: Array | None = None,
    ) -> None:
        """Step every copy: the learner acts, and then its opponents, until it is the learner's turn again or its end.

        All arrays after `actions` are written; `legal` is None in a world without masks.

        Raises:
            UserCodeError: a copy's `last` or `step` failed, or its result is not as the interface says.
            RunError: there is no mask of the length that is expected.
        """
        moves = self._actions.to_env_actions(actions[:, 0])
        is_playing = np.logical_not(self._is_over.any(0))
        for env in np.flatnonzero(is_playing).tolist():
            with self._step_guard:
                self.copies[env].step(moves[env])
        self._play_opponents_(pending=is_playing)
        self._write_learner_turns_(np.ones_like(is_playing), obs, legal)
        reward[:, 0] = self._pending_rewards
        self._pending_rewards[:] = 0
        terminated[:, 0], truncated[:, 0] = self._is_over
        self._limit.truncate_(terminated, truncated)

    def _play_opponents_(self, *, pending: Array) -> None:
        """Let the opponents move until each learner is to move, or its episode is over.

        Args:
            pending: bool [E], the copies to play in; overwritten, as copies drop out.

        Raises:
            RunError: it is never a learner's turn.
        """
        for _ in range(MAXIMUM_TURNS):
            # A copy drops out when its learner is to move, or when the learner's episode is over.
            for env in np.flatnonzero(pending).tolist():
                pending[env] = self._take_turn_(env)
            if not pending.any():
                return
            # Opponents of all copies choose together, so that a policy is called once for many.
            self._choose_opponent_actions_(pending)
            moves = self._actions.to_env_actions(self._opponent_actions)
            for env in np.flatnonzero(pending).tolist():
                with self._step_guard:
                    self.copies[env].step(moves[env])
        raise RunError(
            f"{self._name}: {MAXIMUM_TURNS:,} turns in a row were not the learner's: expected its turn or its end"
        )

    def _take_turn_(self, env: int) -> bool:
        """Find the agent of a copy that acts next, past opponents that are over; return whether it is an opponent.

        An opponent's turn is written into `_opponent_turns`. Else the learner's turn, or its end, is kept, and the
        learner's reward is added to those that no step has returned yet.
        """
        copy, learner = self.copies[env], self._agents[self._learner_sides[env]]
        turn = GONE
        while copy.agents:
            agent, turn = copy.agent_selection, self._read_turn(copy)
            if agent == learner:
                break
            if not turn.is_over:
                self._opponent_turns.sides[env] = self._agents.index(agent)
                self._write_turn_(env, turn, self._opponent_turns.obs[env], self._opponent_turns.legal[env])
                return True
            with self._step_guard:
                copy.step(None)  # PettingZoo's way to remove an agent that is over
        else:  # no agent is left: the learner was removed before its turn
            turn = GONE._replace(reward=float(copy.rewards.get(learner, 0.0)))
        self._learner_turns[env], self.infos[env] = turn, turn.info
        self._pending_rewards[env] += turn.reward
        # An end that is both counts as terminated: nothing follows.
        self._is_over[:, env] = turn.terminated, turn.truncated and not turn.terminated
        return False

    def _choose_opponent_actions_(self, awaits_opponent: Array) -> None:
        """Write the opponents' actions into `_opponent_actions` for the copies where an opponent is to move, bool [E].

        They are random for opponents of the number `AT_RANDOM`, and those of `self.opponents` for all others.
        """
        turns, spaces = self._opponent_turns, self._spaces
        if spaces.masked:
            turns.legal[~awaits_opponent] = True  # stale masks of other copies are not checked
            check_legal(spaces, turns.legal[:, None])
        acts_at_random = awaits_opponent & (turns.opponents == AT_RANDOM)
        for env in np.flatnonzero(acts_at_random).tolist():
            row = slice(env, env + 1)  # a slice keeps the axis of copies, which a player expects
            # None inserts the axis of agents.
            mask = (turns.legal[row, None],) if spaces.masked else ()
            self._random_players[env].step_batch(turns.obs[row, None], self._opponent_actions[row, None], *mask)
        has_policy = awaits_opponent & ~acts_at_random
        if self.opponents is not None and has_policy.any():
            self.opponents.choose_(has_policy, turns, self._opponent_actions)

    def _read_turn(self, copy: Any) -> _Turn:  # noqa: ANN401  (an AECEnv)
        """Return the present turn of a copy, which is of the agent that is to move.

        Raises:
            UserCodeError: `last` raised, or its result is not as the interface says.
        """
        with self._last_guard:
            answer = copy.last()
        try:
            observation, reward, terminated, truncated, info = answer
            return _Turn(
                observation=observation,
                reward=check_reward(reward, allow_nan=self._allow_nan),
                terminated=check_flag("terminated", terminated),
                truncated=check_flag("truncated", truncated),
                info=check_info(info),
            )
        except CONVERSION_ERRORS as error:
            raise interface_error(self._user_layer, "last", error) from error

    def _write_learner_turns_(self, env_mask: Array, obs: Array, legal: Array | None) -> None:
        """Write the learners' observations [E, 1, *obs], and masks [E, 1, R] if any, in the copies of `env_mask`."""
        for env in np.flatnonzero(env_mask).tolist():
            turn = self._learner_turns[env]
            if turn.observation is None:  # the environment has removed the learner
                obs[env] = self._reader.padding
            else:
                own_legal = None if legal is None or turn.is_over else legal[env, 0]
                self._write_turn_(env, turn, obs[env, 0], own_legal)
            if legal is not None and turn.is_over:
                legal[env] = True  # every action is, after the end of the episode

    def _write_turn_(self, env: int, turn: _Turn, row: Array, legal: Array | None) -> None:
        """Write the turn of a side in environment `env`: its observation into `row`, and its mask into `legal`.

        `legal` is None where no mask is wanted, as after the end of an episode.

        Raises:
            UserCodeError: the observation is not of its space, or has a number that is not finite.
            RunError: there is no mask of the length that is expected.
        """
        try:
            self._reader.write(turn.observation, row)
            numbers = self._reader.numbers(row)
            if self._checks_observations:
                index = find_not_finite(numbers)
                if index is not None:
                    raise not_finite_error(self._reader.part_name(*index), numbers[index])
        except CONVERSION_ERRORS as error:
            raise interface_error(self._user_layer, "last", error, self._limit.place(env, "step")) from error
        if legal is not None and self._spaces.masked:
            write_mask(turn.observation, turn.info, legal, self._name)
        elif not self._spaces.masked and self._actions.bounds is None:
            refuse_late_mask(turn.info, self._name)
