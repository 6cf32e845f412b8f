"""A run in a world: its exactness on resume is tested when it begins, and told wherever it is lost."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any

import numpy as np

from flatwater.envs.exact import (
    SECONDS,
    CountedTime,
    WorldPlayer,
    generators_set,
    try_exactness,
    try_whole_episode,
)
from flatwater.envs.foraging.config import ForagingConfig
from flatwater.envs.kept_state import ReplayableWorld
from flatwater.envs.makers import fewest_copies, is_object
from flatwater.envs.split_seeds import FIRST_SEEDS
from flatwater.envs.world import Array, World
from flatwater.envs.worlds import build_world
from flatwater.envs.wrapped.turns_world import TurnsWorld
from flatwater.memory.ledger import Effort
from flatwater.recipe import recipe_of_config
from flatwater.runs.config import in_one_process
from flatwater.runs.run import Run, part_efforts
from flatwater.runs.scores import episode_result, return_rows, score_players
from flatwater.trainers.episodes import Episodes, replay_episodes_, save_world_state_
from flatwater.trainers.logged import OWN, EpisodeReporter, OnEpisode, take_numbers_
from flatwater.trainers.resume_worlds import resume_episodes_, save_worlds_
from flatwater.trainers.world_trainer import WorldTrainer
from flatwater_watch.errors import ConfigError

FORAGING = ForagingConfig()
"""Settings of the world `forage`, for recipes that have none of their own."""
NEW_EPISODES = "A resumed run begins new episodes, so its numbers differ from the numbers of an uninterrupted run"
ONLY_IN_PYTHON = (
    "this environment has no name of the form package.module:Name, so the run goes on in Python alone: "
    "flatwater.resume(RUN, env=...)"
)


def build_run_world(config: Any, envs: int, foraging: ForagingConfig = FORAGING) -> World:  # noqa: ANN401  (a RunConfig of any recipe)
    """Return a world of `envs` environments, by settings of any recipe that plays episodes.

    Raises:
        ConfigError: the settings name no world, or a world that cannot be used.
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
    return world


SHARE = 0.01
"""Maximum share of the time for episodes that are played again, besides `SECONDS`."""


class EpisodeReplays:
    """Plays episodes of training again in new worlds: one after each doubling of the steps, and after each checkpoint.

    What an environment keeps may show later than the test at the beginning lasts.
    """

    def __init__(self) -> None:
        """Begin the time of which a share may be used."""
        self._due = 0.0  # steps after which the next finished episode is played again
        self._steps, self._time, self._spent, self._latest = 0, CountedTime(), 0.0, 0.0

    def await_next(self) -> None:
        """Play the next episode again that ends, unless none can be compared."""
        self._due = min(self._due, self._steps) if self._due < inf else inf

    def report_(self, run: "WorldRun", ended: Array, episodes: Episodes, observations: Array) -> None:
        """Play one of the episodes that have ended again, if that is due; a difference becomes a doubt of the run."""
        self._steps += int(episodes.steps.numpy()[ended].sum())
        seconds = SECONDS + SHARE * self._time.elapsed_seconds() - self._spent
        if self._steps < self._due or self._latest > seconds or run.doubts:
            return
        self._due = 2 * self._steps
        time = CountedTime()
        why = self._difference(run, int(np.flatnonzero(ended)[0]), episodes, observations, seconds)
        if why and _replay_all(run, episodes, observations):
            run.doubts.append(f"{run.world_name}: {why}. {NEW_EPISODES}")
        elif why:
            self._due = inf  # worlds of another number of environments compute other last bits
        self._latest = time.elapsed_seconds()
        self._spent += self._latest

    @staticmethod
    def _difference(run: "WorldRun", env: int, episodes: Episodes, observations: Array, seconds: float) -> str:
        """Return the difference of an environment's episode in a world of two; empty if there is none or no test."""
        world, state = run.trainer.collector.world, None
        if episodes.kept:
            if not isinstance(world, ReplayableWorld):  # its observations follow from an earlier state
                return ""
            state = world.beginnings.states()[env]
        actions = episodes.actions.numpy()[: int(episodes.steps[env]), env]
        return try_whole_episode(
            lambda other_seed: run.build_player(other_seed)[1],
            int(episodes.seeds[env]),
            actions if actions.dtype.kind == "f" else actions.astype(np.int64),
            {"observations": observations[env], "returns": episodes.returns.numpy()[env]},
            state=state,
            seconds=seconds,
        ).why


def _replay_all(run: "WorldRun", episodes: Episodes, observations: Array) -> str:
    """Return why all running episodes differ in a new world of as many environments, as a resume would play them."""
    save_world_state_(run.trainer.collector.world, episodes)
    with generators_set({}):
        world = run.build_world(len(observations))
        try:
            return replay_episodes_(world, None, episodes, observations)
        finally:
            world.close()


@dataclass(frozen=True)
class WorldRun(Run):
    """A run that plays in worlds, whose episodes `trainers.episodes` writes down."""

    trainer: WorldTrainer[Any, Any]
    untested: list[str] = field(default_factory=list, kw_only=True)
    """Reasons why the test at the beginning was left out."""
    replays: EpisodeReplays = field(default_factory=EpisodeReplays, kw_only=True)

    @property
    @abstractmethod
    def rows(self) -> Mapping[str, str]:
        """Players of a result: name of its row, and name that the evaluator has for it; the trained player first."""

    @abstractmethod
    def facts(self, split: str) -> dict[str, Any]:
        """Return the facts to judge a result by, besides those of every run in a world."""

    @property
    def world_name(self) -> str:
        """Name of the world, as the user gives it."""
        return str(self.config.env_name)

    def build_world(self, envs: int) -> World:
        """Return a new world of this run's kind."""
        return build_run_world(in_one_process(self.config), envs)

    def build_player(self, other_seed: int) -> tuple[World, WorldPlayer]:
        """Return a new world of two environments, and its player while the run is tested; see `WorldPlayer`."""
        world = self.build_world(fewest_copies(self.world_name, 2))
        return world, WorldPlayer(world, other_seed)

    def parts(self) -> Mapping[str, Effort]:
        """Return the effort of each part of a step of this round."""
        return part_efforts(self.trainer.profile)

    def live_envs(self) -> int:
        """Return the number of environments of both worlds."""
        return self.trainer.collector.world.spaces.envs + self.trainer.evaluator.world.spaces.envs

    def score(self, *, holdout: bool) -> dict[str, Any]:
        """Return the returns of all players on held-out or holdout episodes."""
        split = "holdout" if holdout else "held-out"
        spaces = self.trainer.evaluator.world.spaces
        facts = {self.config.place: self.world_name, "episodes": spaces.envs, "steps": spaces.steps}
        facts["seed"] = self.config.seed
        players = return_rows(score_players(self.trainer, self.rows, FIRST_SEEDS[split]))
        return episode_result(self.config, split, players, facts | self.facts(split))

    def listen_(self, on_episode: OnEpisode | None) -> None:
        """Report finished episodes where the settings ask for it, and play some of them again.

        Raises:
            ConfigError: a function is given, and the run has no space for its numbers; or keys are given, and the world
                has no infos.
        """
        super().listen_(None if OWN in self.trainer.run.logged else on_episode)
        if OWN in self.trainer.run.logged:
            logged, keys = self.trainer.run.logged[OWN], self.config.info_keys
            reporter = EpisodeReporter(self.trainer.collector.world, logged, keys, on_episode, name=self.world_name)
            self.trainer.collector.reports.append(reporter.report_)
        self.trainer.collector.reports.append(partial(self.replays.report_, self))

    def take_logged_(self) -> Mapping[str, float]:
        """Return the means of the numbers reported of episodes since the last call, and reset them."""
        logged = self.trainer.run.logged
        return take_numbers_(logged[OWN]) if OWN in logged else {}

    def about(self) -> Sequence[str]:
        """Return lines for the start, and doubts about an exact resume."""
        rounds = self.config.rounds
        steps = self.config.steps_of_round
        word = recipe_of_config(self.config).layout.rounds
        line = f"{rounds * steps:,} environment steps: {rounds:,} {word} of {steps:,}"
        lines = [line] if self.config.total_steps else []
        lines += [f"{self.world_name}: {ONLY_IN_PYTHON}"] if is_object(self.world_name) else []
        return [*super().about(), *lines, *self.untested]

    def begin_(self) -> None:
        """Test whether an episode depends on its seed and actions alone, in worlds that are closed afterwards."""
        super().begin_()
        unsaved = set[str]()

        def make(other_seed: int) -> WorldPlayer:
            """Return a new player, and note a state that its world cannot save."""
            world, player = self.build_player(other_seed)
            unsaved.update([f"; {world.beginnings.unsaved}"] if isinstance(world, ReplayableWorld) else [])
            return player

        verdict = try_exactness(make)
        if verdict.tested and verdict.why:
            self.doubts.append(f"{self.world_name}: {verdict.why}{''.join(unsaved - {'; '})}. {NEW_EPISODES}")
        elif verdict.why:
            limit = f"{verdict.why}, and the test may take {SECONDS:g} s"
            self.untested.append(f"{self.world_name}: it is not tested whether a resume is bit for bit: {limit}")

    def gather_(self) -> None:
        """Copy the state that the worlds keep over episodes into the state tree."""
        super().gather_()
        self._doubt_(save_worlds_(self.trainer), NEW_EPISODES)
        self.replays.await_next()

    def rebuild_(self) -> None:
        """Bring the worlds to where they were: their episodes are played again, or start over."""
        super().rebuild_()
        # A run that is inexact already is spared the replay.
        reason = resume_episodes_(self.trainer, exact=not self.doubts)
        restart_text = (
            f"new episodes begin in round {self.trainer.progress.round + 1}, and the numbers differ from there on"
        )
        self._doubt_(
            reason,
            f"The environment has another version, or its episodes do not follow from seed and actions: {restart_text}",
        )

    def _doubt_(self, why: str, follows: str) -> None:
        """Write down why the run is not exact any more; reasons after the first do not matter."""
        if why and not self.doubts:
            self.doubts.append(f"{self.world_name}: {why}. {follows}")
