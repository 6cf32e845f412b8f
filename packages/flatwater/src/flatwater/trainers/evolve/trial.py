"""Episodes without noise: one in each environment of a world of its own."""

import numpy as np
import torch

from flatwater.algorithms.api import Actor
from flatwater.envs.split_seeds import HELD_OUT
from flatwater.envs.world import Array, Teacher, World
from flatwater.nets.stack import Params, views
from flatwater.trainers.episodes import begin_, build_outcome, step_counted_
from flatwater.trainers.evolve.play import ActionScale
from flatwater.trainers.evolve.state import EvolveSetup, Population


class MemberEvaluator:
    """The world of the episodes without noise, and its players."""

    def __init__(self, setup: EvolveSetup, run: Population, world: World) -> None:
        """Bind views of the state tree, which the world writes into; nothing is begun."""
        self._setup, self._run = setup, run
        self.world = world
        # A view with an axis of one agent: the world writes its observations into the state tree.
        self.seen: Array = run.trial.obs.numpy()[:, None]
        self._outcome = build_outcome(setup.trial.envs, 1)
        self._actors = views(run.learner.actor, setup.nets.actor.layout)
        self._scale = ActionScale(setup.spaces)
        kind = np.int64 if setup.algorithm.chooses else np.float32
        self._random = np.zeros((setup.trial.envs, 1, *setup.trial.action_shape), kind)

    def fitness_step_(self, number: int) -> None:
        """Take step `number` of every member's episodes, and the champion's if there is one, all on the same seeds."""
        run, episodes = self._run, self._setup.config.evaluation.episodes
        if number == 0:
            seeds = torch.randint(HELD_OUT, (episodes,), generator=run.generators["trial seeds"])
            self.begin_(seeds.repeat(self._setup.config.population.players).numpy())
        self._play_(self._act(self._setup.nets.actor, self._actors))

    def champion_step_(self) -> None:
        """Take one step of the champion in all environments."""
        self._play_(self._act(self._setup.nets.actor, {name: weight[-1:] for name, weight in self._actors.items()}))

    def random_step_(self, teacher: Teacher) -> None:
        """Take one step of any action in all environments."""
        teacher.step_batch(self.seen, self._random)
        self._play_(self._random)

    def begin_(self, seeds: Array) -> None:
        """Begin an episode of its seed in every environment."""
        trial = self._run.trial
        trial.done.zero_()
        trial.paid.zero_()
        begin_(self.world, trial.episodes, np.ones(len(seeds), np.bool_), seeds, self.seen)

    def _act(self, actor: Actor, params: Params) -> Array:
        """Return executed actions [E, 1, *action] of one row of weights or more, each with an equal share of E."""
        trial, setup = self._run.trial, self._setup
        rows = len(next(iter(params.values())))
        with torch.no_grad():
            action = actor(params, trial.obs.to(setup.device).view(rows, -1, *setup.trial.obs))
        return self._scale(action.flatten(0, 1))[:, None]

    def _play_(self, action: Array) -> None:
        """Take one step; do nothing where all episodes have ended. A single ended episode plays on uncounted."""
        trial = self._run.trial
        if bool(trial.done.all()):
            return
        ended = step_counted_(
            self.world, trial.episodes, action, self.seen, self._outcome, done=trial.done, paid=trial.paid
        )
        if ended.any() and not bool(trial.done.all()):
            # A copy: `begin_` writes the seeds into the very array that they come from.
            begin_(self.world, trial.episodes, ended, trial.episodes.seeds.numpy().copy(), self.seen)
