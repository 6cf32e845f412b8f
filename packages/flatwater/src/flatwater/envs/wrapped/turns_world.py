"""Copies of a PettingZoo game in turns (AEC) as a world with one learner in each, whose opponents play the other sides.

A step goes from a turn of the learner to its next one, or to its end; what others do in between is a part of it. Who
the learner is, and who plays the other sides, stand in the seed of the episode. So an episode follows from its seed and
the learner's actions, as in every world, as long as its opponents stay as they are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from flatwater.border import Border
from flatwater.envs.kept_state import EpisodeStarts
from flatwater.envs.random_teacher import RandomTeacher
from flatwater.envs.world import Array, Spaces, check_legal
from flatwater.envs.wrapped.checks import (
    CONVERSION_ERRORS,
    check_flag,
    check_info,
    check_reward,
    interface_error,
    not_finite_error,
)
from flatwater.envs.wrapped.config import WrappedConfig
from flatwater.envs.wrapped.native import native_spaces
from flatwater.envs.wrapped.pettingzoo_copies import PettingZooCopies
from flatwater.envs.wrapped.spaces import MASK_KEY, make_action_spec, write_mask
from flatwater.envs.wrapped.step_limit import MAXIMUM_STEPS, StepLimit
from flatwater_watch.errors import RunError

OPPONENT_BIT = 40
"""Lowest bit of the opponents' number in the seed of an episode. Below it is a seed as in other worlds."""
AT_RANDOM = 0
"""Number of opponents that act at random."""
OBSERVATION_KEY = "observation"
"""Key of what is seen, where an observation is a Dict of it and of the mask, as in the games of PettingZoo."""
MAXIMUM_TURNS = 100_000
"""Turns of others in a row after which a game is taken to have forgotten the learner."""


def opponents_of(seeds: Array) -> Array:
    """Return the number of each episode's opponents."""
    return seeds >> OPPONENT_BIT


def sides_of(seeds: Array, sides: int) -> Array:
    """Return each episode's side of the learner, as a position in `possible_agents`."""
    return (seeds & (1 << OPPONENT_BIT) - 1) % sides


def seeds_against(seeds: Array, opponents: Array | int) -> Array:
    """Return the seeds of episodes like these against opponents of other numbers."""
    return (seeds & (1 << OPPONENT_BIT) - 1) + (np.asarray(opponents, np.int64) << OPPONENT_BIT)


def split_mask(observation: Any, info: dict[str, Any]) -> tuple[Any, Any]:  # noqa: ANN401  (whatever the space holds)
    """Return what is seen, and the mask of legal actions, which stands next to it or in the info; None without one."""
    if isinstance(observation, dict) and observation.keys() == {OBSERVATION_KEY, MASK_KEY}:
        return observation[OBSERVATION_KEY], observation[MASK_KEY]
    return observation, info.get(MASK_KEY)


@dataclass(frozen=True)
class OpponentTurns:
    """Turns of opponents, a row for each copy; which of them are read, a call says."""

    opponents: Array
    """Number of the opponents, int64 [E]."""
    sides: Array
    """Side that is to move, int64 [E]."""
    obs: Array
    """[E, *obs]."""
    legal: Array
    """Masks of legal actions, bool [E, R]; R is 0 where every action is legal."""
    generators: Sequence[torch.Generator]
    """Generator of each copy's episode, from which its opponents draw."""


class Opponents(Protocol):
    """Policies that play the sides of the others, each under a number above `AT_RANDOM`."""

    def begin_(self, which: Array) -> None:
        """Forget the copies of `which`, bool [E]: episodes begin there."""

    def choose_(self, which: Array, turns: OpponentTurns, actions: Array) -> None:
        """Write the actions of the copies of `which`, bool [E], into `actions`, [E, *action]."""


class _Turn(NamedTuple):
    """What an environment's `last` gives of the agent that is to act."""

    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]

    @property
    def is_over(self) -> bool:
        """Whether the agent acts no more."""
        return self.terminated or self.truncated


GONE = _Turn(None, 0.0, True, False, {})  # noqa: FBT003  (as the environment gives it)
"""Turn of a learner that the environment has left out of its agents."""


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
            config: settings of the copies; their `steps` are those of the learner.
            envs: number of copies, E, stepped one after another.
            allow_nan: whether NaN and infinities are passed on; else they end the run.

        Raises:
            ConfigError: the environment has no agents, or agents of different spaces.
        """
        super().__init__(make, title, envs)
        self._allow_nan, first_copy = allow_nan, self._copies[0]
        self._looking = Border(f"environment {title}", self._own, "last")
        self.opponents: Opponents | None = None
        """Who plays the other sides; None where all act at random."""
        self._actions = make_action_spec(self._action_space, first_copy.unwrapped, title)
        with self._resetting:
            first_copy.reset(seed=0)
        first_turn = self._last(first_copy)
        has_masks = self._actions.bounds is None and split_mask(first_turn.observation, first_turn.info)[1] is not None
        is_split = isinstance(first_turn.observation, dict) and {*first_turn.observation} == {OBSERVATION_KEY, MASK_KEY}
        obs_space = self._observation_space[OBSERVATION_KEY] if is_split else self._observation_space
        self.native = native_spaces(obs_space, self._action_space, config.form, title)
        """Spaces of each agent; without the mask, where that stands next to an observation."""
        reader, self.beginnings = self.native.reader, EpisodeStarts(self._copies, make)
        steps = config.steps or MAXIMUM_STEPS
        self._reader, kept = reader, self.beginnings.state_bytes
        first_six = envs, 1, reader.form, reader.shape, self._actions.names, steps
        further = self._actions.bounds, self._actions.choices, has_masks, reader.measures
        self._spaces = Spaces(*first_six, *further, kept=kept, parts=reader.parts)
        self._limit, self.infos = StepLimit(envs, steps), [dict[str, Any]() for _ in range(envs)]
        self._checks_observations = not allow_nan and bool(reader.measures)
        self._allocate_(envs)

    def _allocate_(self, envs: int) -> None:
        """Allocate what is known of each copy's episode."""
        spaces = self._spaces
        self._learners = np.zeros(envs, np.int64)  # sides
        self._over = np.zeros((2, envs), np.bool_)  # learners that have terminated, and those that were truncated
        self._owed = np.zeros(envs, np.float32)  # rewards that no step has given yet
        self._reached: list[_Turn] = [GONE] * envs  # each learner's present turn
        self._turns = OpponentTurns(
            opponents=np.zeros(envs, np.int64),
            sides=np.zeros(envs, np.int64),
            obs=np.zeros((envs, *spaces.obs), spaces.obs_type),
            legal=np.ones((envs, spaces.legal), np.bool_),
            generators=[torch.Generator() for _ in range(envs)],
        )
        self._chance = [RandomTeacher(self, generator) for generator in self._turns.generators]
        dtype = np.int64 if spaces.bounds is None else np.float32
        self._choices = np.zeros((envs, *spaces.action_shape), dtype)

    @property
    def spaces(self) -> Spaces:
        """Observations and actions of the learners."""
        return self._spaces

    @property
    def sides(self) -> int:
        """Number of sides of a game."""
        return len(self._agents)

    def begin_(self, which: Array, seeds: Array, obs: Array, legal: Array | None = None) -> None:
        """Reset copies with seeds, up to the first turn of the learner.

        The arguments are those of `World` and `MaskedWorld`.

        Raises:
            UserCodeError: a copy's `reset`, `last` or `step` failed, or its result is not as the interface says.
            RunError: there is no mask of the length that is expected.
        """
        self.beginnings.record_starts_(which)
        self._learners[which] = sides_of(seeds, self.sides)[which]
        self._turns.opponents[which] = opponents_of(seeds)[which] if self.opponents is not None else AT_RANDOM
        self._over[:, which], self._owed[which] = False, 0
        for env in np.flatnonzero(which).tolist():
            with self._resetting:
                self._copies[env].reset(seed=int(seeds[env]) % 2**32)
            self._turns.generators[env].manual_seed(int(seeds[env]) % 2**32)
        if self.opponents is not None:
            self.opponents.begin_(which)
        self._limit.begin_(which, seeds)
        self._reach_learners_(which.copy())
        self._show_(which, obs, legal)

    def step_(  # noqa: PLR0917  (those of a world with masks)
        self,
        actions: Array,
        obs: Array,
        reward: Array,
        terminated: Array,
        truncated: Array,
        legal: Array | None = None,
    ) -> None:
        """Step every copy: the learner acts, and then the others, until it is the learner's turn again.

        The arguments are those of `World` and `MaskedWorld`; `legal` is None without masks.

        Raises:
            UserCodeError: a copy's `last` or `step` failed, or its result is not as the interface says.
            RunError: there is no mask of the length that is expected.
        """
        moves = self._actions.to_env_actions(actions[:, 0])
        goes_on = np.logical_not(self._over.any(0))
        for env in np.flatnonzero(goes_on).tolist():
            with self._stepping:
                self._copies[env].step(moves[env])
        self._reach_learners_(goes_on)
        self._show_(np.ones_like(goes_on), obs, legal)
        reward[:, 0] = self._owed
        self._owed[:] = 0
        terminated[:, 0], truncated[:, 0] = self._over
        self._limit.truncate_(terminated, truncated)

    def _reach_learners_(self, waits: Array) -> None:
        """Have the opponents move in the copies of `waits`, until their learners are to move or are over.

        Args:
            waits: bool [E], overwritten.

        Raises:
            RunError: it is never a learner's turn.
        """
        for _ in range(MAXIMUM_TURNS):
            for env in np.flatnonzero(waits).tolist():
                waits[env] = self._is_opponents_turn_(env)
            if not waits.any():
                return
            self._choose_(waits)
            moves = self._actions.to_env_actions(self._choices)
            for env in np.flatnonzero(waits).tolist():
                with self._stepping:
                    self._copies[env].step(moves[env])
        raise RunError(
            f"{self._name}: {MAXIMUM_TURNS:,} turns in a row were not the learner's: expected its turn or its end"
        )

    def _is_opponents_turn_(self, env: int) -> bool:
        """Take the next turn of a copy: keep it if it is the learner's, show it to the opponents if it is theirs."""
        copy, learner = self._copies[env], self._agents[self._learners[env]]
        turn = GONE
        while copy.agents:
            agent, turn = copy.agent_selection, self._last(copy)
            if agent == learner:
                break
            if not turn.is_over:
                self._turns.sides[env] = self._agents.index(agent)
                self._write_(env, turn, self._turns.obs[env], self._turns.legal[env])
                return True
            with self._stepping:
                copy.step(None)  # an agent that is over is left out by it
        else:
            turn = GONE._replace(reward=float(copy.rewards.get(learner, 0.0)))
        self._reached[env], self.infos[env] = turn, turn.info
        self._owed[env] += turn.reward
        self._over[:, env] = turn.terminated, turn.truncated and not turn.terminated
        return False

    def _choose_(self, which: Array) -> None:
        """Write the actions of the opponents in the copies of `which`."""
        turns, spaces = self._turns, self._spaces
        if spaces.masked:
            turns.legal[~which] = True
            check_legal(spaces, turns.legal[:, None])
        by_chance = which & (turns.opponents == AT_RANDOM)
        for env in np.flatnonzero(by_chance).tolist():
            row = slice(env, env + 1)
            mask = (turns.legal[row, None],) if spaces.masked else ()
            self._chance[env].step_batch(turns.obs[row, None], self._choices[row, None], *mask)
        if self.opponents is not None and (by_policies := which & ~by_chance).any():
            self.opponents.choose_(by_policies, turns, self._choices)

    def _last(self, copy: Any) -> _Turn:  # noqa: ANN401  (an AECEnv)
        """Return the turn of the agent that is to move.

        Raises:
            UserCodeError: `last` raised, or its result is not as the interface says.
        """
        with self._looking:
            answer = copy.last()
        try:
            observation, reward, terminated, truncated, info = answer
            return _Turn(
                observation,
                check_reward(reward, allow_nan=self._allow_nan),
                check_flag("terminated", terminated),
                check_flag("truncated", truncated),
                check_info(info),
            )
        except CONVERSION_ERRORS as error:
            raise interface_error(self._own, "last", error) from error

    def _show_(self, which: Array, obs: Array, legal: Array | None) -> None:
        """Write the learners' turns in the copies of `which`: observations [E, 1, *obs], and masks [E, 1, R]."""
        for env in np.flatnonzero(which).tolist():
            turn = self._reached[env]
            if turn.observation is None:
                obs[env] = self._reader.padding
            else:
                self._write_(env, turn, obs[env, 0], None if legal is None or turn.is_over else legal[env, 0])
            if legal is not None and turn.is_over:
                legal[env] = True

    def _write_(self, env: int, turn: _Turn, row: Array, legal: Array | None) -> None:
        """Write an observation into its row, and the mask, where there are masks.

        Raises:
            UserCodeError: the observation is not of its space, or has a number that is not finite.
            RunError: there is no mask of the length that is expected.
        """
        seen, mask = split_mask(turn.observation, turn.info)
        try:
            self._reader.write(seen, row)
            numbers = self._reader.numbers(row)
            if self._checks_observations and not np.isfinite(numbers).all():
                number = int(np.flatnonzero(~np.isfinite(numbers))[0])
                raise not_finite_error(self._reader.part_name(number), numbers[number])
        except CONVERSION_ERRORS as error:
            raise interface_error(self._own, "last", error, self._limit.place(env, "step")) from error
        if legal is not None and self._spaces.masked:
            write_mask({MASK_KEY: mask}, legal, self._name)
