"""A run that plays in a world; it tests at its beginning, and by replays later, whether a resume is bit for bit."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any

import numpy as np

from flatwater.envs.exactness import (
    TEST_SECONDS,
    CountedTime,
    WorldPlayer,
    temporary_generator_seeds,
    try_exactness,
    try_whole_episode,
)
from flatwater.envs.foraging.config import ForagingConfig
from flatwater.envs.kept_state import ReplayableWorld
from flatwater.envs.makers import is_object, small_world_copies
from flatwater.envs.split_seeds import FIRST_SEEDS
from flatwater.envs.world import Array, World, describe_agent
from flatwater.envs.worlds import build_world
from flatwater.envs.wrapped.turns_world import TurnsWorld
from flatwater.memory.ledger import Effort
from flatwater.recipe import recipe_of_config
from flatwater.runs.config import settings_without_env_workers
from flatwater.runs.run import Run, part_efforts
from flatwater.runs.scores import episode_result, return_rows, score_players
from flatwater.trainers.episodes import Episodes, replay_episodes_, save_world_state_
from flatwater.trainers.logged_numbers import OWN, EpisodeReporter, OnEpisode, take_numbers_
from flatwater.trainers.resume_worlds import resume_episodes_, save_worlds_
from flatwater.trainers.world_trainer import WorldTrainer
from flatwater_watch.errors import ConfigError

FORAGING = ForagingConfig()
"""Default settings of the world `forage`, for recipes without a table of settings for it."""
NEW_EPISODES = "A resumed run begins new episodes, so its numbers differ from the numbers of an uninterrupted run"
ONLY_IN_PYTHON = (
    "this environment has no name of the form package.module:Name, so the run goes on in Python alone: "
    "flatwater.resume(RUN, env=...)"
)


def build_run_world(config: Any, envs: int, foraging: ForagingConfig = FORAGING) -> World:  # noqa: ANN401  (a RunConfig of any recipe)
    """Return a world of `envs` environments, as the settings of a recipe that plays episodes name it.

    Raises:
        ConfigError: the settings name no world, or a world that the recipe cannot use.
    """
    try:
        world = build_world(
            config.env_name,
            envs=envs,
            foraging=foraging,
            wrapped=config.wrapped,
            allow_nan=config.allow_nan,
            arguments=config.env_args,
            workers=config.env_workers,
        )
    except ConfigError as error:
        raise ConfigError(f"{config.place} = {config.env_name!r}: {error}") from error
    if isinstance(world, TurnsWorld) and not config.plays_turns:
        raise ConfigError(
            f"{config.place} = {config.env_name!r}: expected an environment whose agents act at once, got a game in "
            f"turns. Games in turns are learned by self-play: flatwater train ppo --env {config.env_name}"
        )
    if world.spaces.kinds and not config.plays_kinds:
        kinds = " and ".join(f"{kind.name} ({describe_agent(kind.spaces)})" for kind in world.spaces.kinds)
        raise ConfigError(
            f"{config.place} = {config.env_name!r}: expected agents with the same spaces, got {kinds}. Only ppo learns "
            f"a policy for each kind of agents: flatwater train ppo --env {config.env_name}"
        )
    return world


REPLAY_TIME_SHARE = 0.01
"""Largest share of the run's time for replays of episodes, in addition to `TEST_SECONDS` at the beginning."""


class EpisodeReplays:
    """Replays finished episodes in new worlds, and compares: one after each doubling of the steps and each checkpoint.

    Hidden state of an environment may show in later episodes than those of the test at the beginning.
    """

    def __init__(self) -> None:
        """Begin to count the time of which a share may go into replays."""
        self._next_replay_step = 0.0
        """Number of environment steps from which the next finished episode is replayed; inf for never."""
        self._steps = 0
        """Environment steps in the episodes that have ended."""
        self._clock = CountedTime()
        """Time since the start."""
        self._spent_seconds = 0.0
        """Seconds of all replays."""
        self._last_seconds = 0.0
        """Seconds of the last replay."""

    def replay_next_(self) -> None:
        """Have the next finished episode replayed, unless replays cannot be compared in this world."""
        if self._next_replay_step < inf:
            self._next_replay_step = min(self._next_replay_step, self._steps)  # reached already

    def report_(self, run: "WorldRun", has_ended: Array, episodes: Episodes, observations: Array) -> None:
        """Replay one of the episodes that have just ended, if that is due; a difference becomes a doubt of the run.

        Args:
            run: the run.
            has_ended: bool [envs], the environments whose episode has ended.
            episodes: seeds, actions, steps and returns of all episodes.
            observations: the last observation of each environment.
        """
        self._steps += int(episodes.steps.numpy()[has_ended].sum())
        seconds_left = TEST_SECONDS + REPLAY_TIME_SHARE * self._clock.elapsed_seconds() - self._spent_seconds
        # A replay takes about as long as the last one.
        if self._steps < self._next_replay_step or self._last_seconds > seconds_left or run.doubts:
            return
        self._next_replay_step = 2 * self._steps  # rarer and rarer, so that a long run replays few episodes
        replay_time = CountedTime()
        env = int(np.flatnonzero(has_ended)[0])  # the first of those that have ended
        reason = self._find_difference(run, env, episodes, observations, seconds_left)
        # A doubt needs both: a difference in a world of two, and one in a world of all environments, as at a resume.
        if reason and _replay_running_episodes(run, episodes, observations):
            run.doubts.append(f"{run.world_name}: {reason}. {NEW_EPISODES}")
        elif reason:
            # Only a world of two environments differs: its last bits depend on the number of environments, so that no
            # replay can be compared.
            self._next_replay_step = inf
        self._last_seconds = replay_time.elapsed_seconds()
        self._spent_seconds += self._last_seconds

    @staticmethod
    def _find_difference(run: "WorldRun", env: int, episodes: Episodes, observations: Array, seconds: float) -> str:
        """Replay the ended episode of environment `env` in a world of two environments, for at most some seconds.

        Returns how the replay differs, as a phrase; empty if it does not, or cannot be tested.
        """
        world = run.trainer.collector.world
        state = None
        if episodes.kept:  # the environment keeps state over episodes, from which this episode began
            if not isinstance(world, ReplayableWorld):
                return ""  # the state from which the episode began was not kept
            state = world.episode_starts.states()[env]
        actions = episodes.actions.numpy()[: int(episodes.steps[env]), env]

        def make_player(other_seed: int) -> WorldPlayer:
            """Return the tester of a new world."""
            _world, player = run.build_player(other_seed)
            return player

        verdict = try_whole_episode(
            make_player,
            seed=int(episodes.seeds[env]),
            # Discrete actions go to the environment as int64, whatever type they are kept in.
            actions=actions if actions.dtype.kind == "f" else actions.astype(np.int64),
            end={"observations": observations[env], "returns": episodes.returns.numpy()[env]},
            state=state,
            seconds=seconds,
        )
        return verdict.why


def _replay_running_episodes(run: "WorldRun", episodes: Episodes, observations: Array) -> str:
    """Replay all running episodes in a new world, as a resume would. Returns how they differ; empty if they do not."""
    save_world_state_(run.trainer.collector.world, episodes)
    # Restores the global generators afterwards, as the replay may draw from them; `{}`: seeds of none are set.
    with temporary_generator_seeds({}):
        world = run.build_world(len(observations))
        try:
            return replay_episodes_(world, teacher=None, episodes=episodes, saved_obs=observations)
        finally:
            world.close()


@dataclass(frozen=True)
class WorldRun(Run):
    """A run that plays in worlds; `trainers.episodes` keeps seeds and actions of its episodes for a resume."""

    trainer: WorldTrainer[Any, Any]
    omitted_tests: list[str] = field(default_factory=list, kw_only=True)
    """Reasons why the test at the beginning was left out; empty if it was not."""
    replays: EpisodeReplays = field(default_factory=EpisodeReplays, kw_only=True)

    @property
    @abstractmethod
    def rows(self) -> Mapping[str, str]:
        """Players of a result, the trained player first: from the row's name to the evaluator's name of the player."""

    @abstractmethod
    def facts(self, split: str) -> dict[str, Any]:
        """Return the recipe's facts for a result on a split, in addition to those of every run in a world."""

    @property
    def world_name(self) -> str:
        """Name of the world, as the user gives it."""
        return str(self.config.env_name)

    def build_world(self, envs: int) -> World:
        """Return a new world of this run's kind."""
        return build_run_world(settings_without_env_workers(self.config), envs)

    def build_player(self, other_seed: int) -> tuple[World, WorldPlayer]:
        """Return a new world, and the player of its first environment.

        Args:
            other_seed: seed of all other environments.
        """
        # Two environments, so that the first is tested while the second plays other episodes; a vector environment has
        # a fixed number.
        world = self.build_world(small_world_copies(self.world_name, 2))
        return world, WorldPlayer(world, other_seed)

    def parts(self) -> Mapping[str, Effort]:
        """Return the effort of each part of a step of this round."""
        return part_efforts(self.trainer.profile)

    def live_envs(self) -> int:
        """Return the number of environments in the worlds of training and of evaluation."""
        return self.trainer.collector.world.spaces.envs + self.trainer.evaluator.world.spaces.envs

    def score(self, *, holdout: bool) -> dict[str, Any]:
        """Play held-out episodes, or those of the holdout, with all players. Returns the result: returns and facts."""
        split = "holdout" if holdout else "held-out"
        spaces = self.trainer.evaluator.world.spaces
        # `config.place` is the setting's name: `env`.
        facts = {self.config.place: self.world_name, "episodes": spaces.envs, "steps": spaces.steps}
        facts["seed"] = self.config.seed
        players = return_rows(score_players(self.trainer, self.rows, FIRST_SEEDS[split]))
        return episode_result(self.config, split, players, facts | self.facts(split))

    def listen_(self, on_episode: OnEpisode | None) -> None:
        """Register the collector's reports of finished episodes: to the user's function, and to `replays`.

        Raises:
            ConfigError: a function is given, and the run has no space for its numbers; or keys are given, and the world
                has no infos.
        """
        # Whether the state has leaves for the function's numbers; without them `Run.listen_` refuses a function.
        has_leaves = OWN in self.trainer.run.logged
        super().listen_(None if has_leaves else on_episode)
        if has_leaves:
            logged_numbers, keys = self.trainer.run.logged[OWN], self.config.info_keys
            reporter = EpisodeReporter(
                self.trainer.collector.world, logged_numbers, keys, on_episode, name=self.world_name
            )
            self.trainer.collector.reports.append(reporter.report_)
        self.trainer.collector.reports.append(partial(self.replays.report_, self))

    def take_logged_(self) -> Mapping[str, float]:
        """Return the means of the numbers that episodes have reported since the last call, and reset them."""
        logged_numbers = self.trainer.run.logged
        return take_numbers_(logged_numbers[OWN]) if OWN in logged_numbers else {}

    def about(self) -> Sequence[str]:
        """Return lines to print at the start, such as the number of steps, and tests that were left out."""
        rounds = self.config.rounds
        steps = self.config.steps_per_round
        round_noun = recipe_of_config(self.config).layout.rounds
        line = f"{rounds * steps:,} environment steps: {rounds:,} {round_noun} of {steps:,}"
        # Shown because the steps that the user gave are rounded up to whole rounds.
        lines = [line] if self.config.total_steps else []
        lines += [f"{self.world_name}: {ONLY_IN_PYTHON}"] if is_object(self.world_name) else []
        return [*super().about(), *lines, *self.omitted_tests]

    def begin_(self) -> None:
        """Test whether an episode follows from its seed and actions alone, in new worlds; if not, add a doubt."""
        super().begin_()
        unsaved_names = set[str]()

        def make_player(other_seed: int) -> WorldPlayer:
            """Return a new player; add a text about state that its world cannot save to `unsaved_names`."""
            world, player = self.build_player(other_seed)
            if isinstance(world, ReplayableWorld) and (unsaved_text := world.episode_starts.unsaved):
                unsaved_names.add(f"; {unsaved_text}")
            return player

        verdict = try_exactness(make_player)
        if verdict.tested and verdict.why:  # it was found inexact
            self.doubts.append(f"{self.world_name}: {verdict.why}{''.join(unsaved_names)}. {NEW_EPISODES}")
        elif verdict.why:  # the test was left out, or ended early
            limit = f"{verdict.why}, and the test may take {TEST_SECONDS:g} s"
            self.omitted_tests.append(f"{self.world_name}: it is not tested whether a resume is bit for bit: {limit}")

    def gather_(self) -> None:
        """Copy the worlds' state over episodes into the state tree, and let the next finished episode be replayed."""
        super().gather_()
        self._add_doubt_(save_worlds_(self.trainer), NEW_EPISODES)
        self.replays.replay_next_()

    def rebuild_(self) -> None:
        """Bring the worlds to where they were, by a replay of their running episodes; if that fails, begin new ones."""
        super().rebuild_()
        # Without a replay if the run is inexact already.
        reason = resume_episodes_(self.trainer, exact=not self.doubts)
        restart_text = (
            f"new episodes begin in round {self.trainer.progress.round + 1}, and the numbers differ from there on"
        )
        self._add_doubt_(
            reason,
            f"The environment has another version, or its episodes do not follow from seed and actions: {restart_text}",
        )

    def _add_doubt_(self, reason: str, consequence: str) -> None:
        """Add the first reason why the run is not exact any more to its doubts; an empty reason adds nothing."""
        if reason and not self.doubts:
            self.doubts.append(f"{self.world_name}: {reason}. {consequence}")
