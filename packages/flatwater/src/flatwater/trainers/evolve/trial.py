"""The players of episodes without noise: all members, whoever is judged, and random actions."""

import torch

from flatwater.envs.random_teacher import RandomTeacher
from flatwater.envs.split_seeds import HELD_OUT
from flatwater.envs.world import Array, World
from flatwater.nets.stack import Params, views
from flatwater.trainers.evaluator import EpisodeEvaluator, Player
from flatwater.trainers.evolve.play import ActionScale
from flatwater.trainers.evolve.state import EvolveSetup, Population

MEMBERS, CHAMPION, RANDOM = ("members", "champion", "random")
"""Players: each member, and the champion if there is one, in its share of the environments; the champion or the single
agent in all of them; any action."""


def build_evaluator(setup: EvolveSetup, run: Population, world: World) -> EpisodeEvaluator:
    """Return the evaluator of a run, whose world writes into the state tree; nothing is begun."""
    trial, actor, population = run.trial, setup.nets.actor, setup.config.population
    weights, scale = views(run.learner.actor, actor.layout), ActionScale(setup.spaces)
    champion = {name: weight[-1:] for name, weight in weights.items()}

    def act(params: Params) -> Array:
        """Return executed actions [E, 1, *action] of one row of weights or more, each with an equal share of E."""
        rows = len(next(iter(params.values())))
        with torch.no_grad():
            action = actor(params, trial.obs.to(setup.device).view(rows, -1, *setup.trial.obs))
        return scale(action.flatten(0, 1))[:, None]

    def draw_seeds() -> Array:
        """Return the seeds of a generation, the same for every player."""
        seeds = torch.randint(HELD_OUT, (setup.config.evaluation.episodes,), generator=run.generators["trial seeds"])
        return seeds.repeat(population.players).numpy()

    players = {
        MEMBERS: Player(trial.paid, lambda _: act(weights)),
        CHAMPION: Player(trial.paid, lambda _: act(champion)),
        RANDOM: Player(trial.paid, teacher=RandomTeacher(world, run.generators["random"])),
    }
    return EpisodeEvaluator(world, trial, players, draw_seeds, ends_early=True)
