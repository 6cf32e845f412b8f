"""Playing and learning: one step of every environment, then updates of every member from the steps of all."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.algorithms.api import Draw, check_made, perturb
from flatwater.envs.split_seeds import HELD_OUT
from flatwater.envs.world import Array, Spaces, Teacher, World
from flatwater.nets.stack import views
from flatwater.replay.batch import Batch
from flatwater.replay.ring import Drawn, append_, draw, gather, set_priorities_, start_
from flatwater.trainers.episodes import ReportEnded, begin_, build_outcome, step_, view_episodes
from flatwater.trainers.evolve.state import EvolveSetup, Population
from flatwater.trainers.profile import Profile

PARTS = ("actor", "env", "store", "update")
"""Parts of a step, in the order in which the profile shows them."""


class ActionScale:
    """The map from actions in [-1, 1] to those of a world; choices stay as they are."""

    def __init__(self, spaces: Spaces) -> None:
        self._chooses = spaces.bounds is None
        low, high = np.array(spaces.bounds or [(-1, 1)], np.float32).T
        self._low, self._high = low, high
        self._middle, self._half = (low + high) / 2, (high - low) / 2

    def __call__(self, action: Float[Tensor, "*any A"]) -> Array:
        """Return actions within the bounds, also where rounding would leave them."""
        if self._chooses:
            return np.asarray(action.cpu().numpy())
        scaled: Array = np.clip(action.cpu().numpy() * self._half + self._middle, self._low, self._high)
        return scaled


class PopulationCollector:
    """The world that a population learns in, with the arrays that it writes into, bound once."""

    def __init__(self, setup: EvolveSetup, run: Population, world: World, profile: Profile) -> None:
        """Bind views; begin no episode.

        A run that has steps already is within episodes: the world must be brought to the same place before the next
        step, by `resume_episodes_`.

        Args:
            setup: constants of the run.
            run: state tree; the world writes its observations into it.
            world: the world that the population learns in.
            profile: takes the time of each part of a step.
        """
        self._setup, self._run, self._profile = setup, run, profile
        self.world = world
        self.teacher: Teacher | None = None
        """Nobody teaches here."""
        self.reports: list[ReportEnded] = []
        """Each is called with the episodes that have ended."""
        # A view with an axis of one agent: the world writes its observations into the state tree.
        self.seen_now: Array = run.coming.numpy()[:, None]
        self._outcome, self._episodes = build_outcome(setup.spaces.envs, 1), view_episodes(run.episodes)
        self._actors = views(run.learner.actor[: setup.config.population.size], setup.nets.actor.layout)
        self._scale = ActionScale(setup.spaces)
        self._learn_ = bind_learning(setup, run)

    @property
    def has_begun(self) -> bool:
        """Whether any step was ever taken."""
        return self._run.transitions > 0

    def step_(self, number: int) -> None:
        """Take step `number` of the generation."""
        run, config, profile = self._run, self._setup.config, self._profile
        if number == 0:
            profile.clear_()
        profile.begin_()
        if run.transitions == 0:
            self._begin_(np.ones(len(run.coming), np.bool_))
        action = self._act()
        profile.end_part_("actor")
        ended = step_(self.world, self._episodes, self._scale(action)[:, None], self.seen_now, self._outcome)
        profile.end_part_("env")
        reward, terminated, truncated = (torch.from_numpy(column[:, 0]) for column in self._outcome)
        # `coming` holds the next observation already: `seen_now`, which the world has just written, is the same memory.
        append_(run.ring, action=action, reward=reward, terminated=terminated, truncated=truncated, next_obs=run.coming)
        run.transitions += len(action)
        if ended.any():
            for report_ in self.reports:
                report_(ended, run.episodes, self.seen_now)
            which = torch.from_numpy(ended)
            run.ended[0].add_(int(ended.sum()))
            run.ended[1].add_(run.episodes.returns[which].double().sum())
            # After the append: a new episode's first observation overwrites the old episode's last.
            self._begin_(ended)
        profile.steps += len(action)
        profile.end_part_("store")
        is_due = run.transitions // len(action) % config.learner.train_every == 0
        if is_due and run.transitions >= config.replay.warmup:
            for _ in range(config.learner.own.updates):
                self._learn_()
        profile.end_part_("update")

    def _act(self) -> Tensor:
        """Return the members' exploring actions; random actions before the first update."""
        setup, run = self._setup, self._run
        config, device = setup.config, setup.device
        if run.transitions < config.replay.warmup:
            # A generator of its own: a longer warm-up does not move the draws of exploration.
            rng, shape = run.generators["warmup"], (len(run.coming), *setup.spaces.action_shape)
            if setup.algorithm.chooses:
                return torch.randint(len(setup.spaces.actions), shape, generator=rng, device=device)
            return torch.rand(shape, generator=rng, device=device).mul_(2).sub_(1)
        obs = run.coming.to(device).view(config.population.size, config.population.envs, -1)
        # Anew for each step: the deviation of its noise follows from the count of updates.
        explore = setup.algorithm.explorer(config.learner, run.learner, perturb)
        with torch.no_grad():
            action = explore(setup.nets.actor, self._actors, obs, run.generators["exploration"])
        check_made(config.learner, "explorer", action, (*obs.shape[:2], *setup.spaces.action_shape))
        return action.flatten(0, 1)

    def restart_episodes_(self) -> None:
        """Begin new episodes everywhere, because the world cannot come back: running episodes are cut there."""
        self._begin_(np.ones(len(self._run.coming), np.bool_))

    def _begin_(self, which: Array) -> None:
        """Begin episodes of random training seeds in these environments, and streams of transitions in the replay."""
        run = self._run
        # A seed for every environment, ended or not: the generator moves alike.
        seeds = torch.randint(HELD_OUT, (len(which),), generator=run.generators["world seeds"]).numpy()
        begin_(self.world, run.episodes, which, seeds, self.seen_now)
        envs = torch.from_numpy(which).nonzero().squeeze(1)
        start_(run.ring, envs.to(self._setup.device), run.coming[envs])


def bind_learning(setup: EvolveSetup, run: Population) -> Callable[[], None]:
    """Return a function that updates every member once; each has rows of its own in one draw from all transitions."""
    config = setup.config
    update_ = setup.algorithm.make_update(config.learner, setup.nets, run.learner, [(0, config.population.size)])
    own = config.learner.own
    shape = (config.population.size, config.learner.micro_batches, own.batch_size)
    steps, gamma = own.reward_steps

    def bind_micro_batch(drawn: Drawn, g: int) -> Draw:
        """Return a function that gathers micro-batch `g` of a draw for members `low` to `high`."""

        def gather_rows(low: int, high: int) -> Batch:
            weight = None if drawn.weight is None else drawn.weight[low:high, g]
            return gather(run.ring, drawn.index[low:high, g], weight, steps=steps, gamma=gamma)

        return gather_rows

    def learn_() -> None:
        """Update all members once from one draw of the replay, and set the priorities by the new errors."""
        # One draw for all members and micro-batches: each member's rows are its own.
        drawn_rows = draw(run.ring, shape, run.generators["replay"])
        td_error = update_([bind_micro_batch(drawn_rows, g) for g in range(shape[1])])
        if config.replay.prioritised and td_error is not None:
            check_made(config.learner, "update", td_error, shape)
            set_priorities_(run.ring, drawn_rows.index, td_error)

    return learn_
