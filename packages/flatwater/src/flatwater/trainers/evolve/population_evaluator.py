"""The evaluator of a population: episodes without noise of all members, of the champion, or of random actions."""

import torch

from flatwater.envs.random_teacher import RandomTeacher
from flatwater.envs.split_seeds import HELD_OUT
from flatwater.envs.world import Array, World
from flatwater.nets.mlp import add_mask
from flatwater.nets.stack import Params, views
from flatwater.trainers.evaluator import EpisodeEvaluator, Player
from flatwater.trainers.evolve.setup import EvolveSetup
from flatwater.trainers.evolve.state import TRIAL, Population

MEMBERS, CHAMPION, RANDOM = ("members", "champion", "random")
"""Players: all members and the champion, each in its share of the environments; the champion, or the single agent, in
all of them; random actions."""


def build_evaluator(setup: EvolveSetup, run: Population, world: World) -> EpisodeEvaluator:
    """Return the evaluator that plays all members, the champion or random actions; no episode begins yet."""
    trial, actor, population = run.trial, setup.nets.actor, setup.config.population
    weights = views(run.learner.actor, actor.layout)
    # The champion is a copy of the best member so far, in the last row of weights; a single agent has the only row.
    champion = {name: weight[-1:] for name, weight in weights.items()}
    legal = run.legal.get(TRIAL)

    def act(params: Params) -> Array:
        """Return the world's actions [E, 1, *action]; each row of weights acts in an equal share of E environments."""
        policies = len(next(iter(params.values())))  # rows of any of the weights
        rows = add_mask(trial.obs, legal).to(setup.device)  # networks read the mask after the observation
        with torch.no_grad():
            action = actor(params, rows.view(policies, -1, *rows.shape[1:]))
        return setup.world_actions(action.flatten(0, 1))[:, None]  # with an axis of one agent

    def draw_seeds() -> Array:
        """Return new seeds of a generation's episodes, [E]: the same seeds for every policy."""
        seeds = torch.randint(HELD_OUT, (setup.config.evaluation.episodes,), generator=run.generators["trial seeds"])
        return seeds.repeat(population.players).numpy()

    players = {
        # Without a memory a policy need not know whether a step is the first.
        MEMBERS: Player(trial.paid, act=lambda _is_first: act(weights)),
        CHAMPION: Player(trial.paid, act=lambda _is_first: act(champion)),
        RANDOM: Player(trial.paid, teacher=RandomTeacher(world, run.generators["random"])),
    }
    return EpisodeEvaluator(world, trial, players, draw_seeds, legal=legal)
