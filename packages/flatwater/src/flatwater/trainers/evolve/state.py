"""The state that a population in an environment keeps between steps, and how it is built."""

from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from flatwater.algorithms.api import Members, Setting, build_members
from flatwater.evolution.generation import Lineage, MutationSchedule, build_schedule, first_generation
from flatwater.replay.ring import Ring, build_ring
from flatwater.state.allocation import filled_tensor
from flatwater.state.random import generator
from flatwater.state.tree import state
from flatwater.trainers.episodes import Episodes, build_episodes
from flatwater.trainers.evaluator import EvaluationEpisodes
from flatwater.trainers.evolve.setup import EvolveSetup
from flatwater.trainers.logged_numbers import OWN, LoggedNumbers, build_logged_numbers
from flatwater.trainers.loop import Progress

CPU = torch.device("cpu")
TRAINING, TRIAL = "training", "trial"
"""Keys of `Population.legal`."""
EPISODES, RETURNS = range(2)
"""Indices of `Population.ended`."""
WORLD_GENERATORS = ("world seeds", "trial seeds", "random")
"""Consumers of random numbers on the CPU, where worlds are."""
DEVICE_GENERATORS = ("exploration", "warmup", "replay", "evolution")
"""Consumers of random numbers on the networks' device."""


class VectorSpace(NamedTuple):
    """Shape and type of an observation or an action, as the replay stores it."""

    shape: tuple[int, ...]
    dtype: Any = np.float32


@state
class TrialEpisodes(EvaluationEpisodes):
    """Evaluation episodes without noise, in a world of their own: H of each member, then H of the champion, if any."""

    paid: Float[Tensor, "N"]
    """Sum of the rewards of each of these episodes so far."""


@state
class GenerationScores:
    """Returns of this generation's members."""

    values: Float[Tensor, "P+x"]
    """Mean return of each member without noise and, last, of the champion on the same episodes, if there is one."""
    crowned: bool
    """Whether this generation brought a new champion."""
    plateau: bool
    """Whether the best return is on a plateau."""


@state
class Population:
    """The root of the state tree."""

    progress: Progress
    learner: Members
    ring: Ring
    """Transitions of all members, a stream for each environment."""
    coming: Tensor
    """Present observations, member by member, [N, *obs]: float32, or bytes where there are images."""
    legal: dict[str, Bool[Tensor, "N A"]]
    """Masks of legal actions, by `TRAINING` and `TRIAL`; empty in worlds without masks. The replay has them in the rows
    of observations."""
    episodes: Episodes
    trial: TrialEpisodes
    schedule: MutationSchedule
    lineage: Lineage
    scores: GenerationScores
    ended: Float[Tensor, "2"]
    """Sums since the last reading, float64: number of `EPISODES` that ended, and their `RETURNS`."""
    generators: dict[str, torch.Generator]
    logged: dict[str, LoggedNumbers]
    """Numbers of the user's own; no entry where none are wanted."""
    transitions: int = 0
    """Transitions since the run began."""


def build_population(setup: EvolveSetup) -> Population:
    """Return the state of a new run. On the meta device it has shapes alone, for a memory plan.

    Tensors that worlds write lie on the CPU; networks, moments and replay on the device.
    """
    config, device, population = setup.config, setup.device, setup.config.population
    champions = population.players - population.size  # 0 for a single agent
    host = device if device.type == "meta" else CPU
    zeros = partial(filled_tensor, 0, device=host)
    obs_type = torch.float32 if setup.spaces.form == "vector" else torch.uint8
    # In a world with masks the replay stores observation and mask as one row of numbers.
    row_shape = (prod(setup.spaces.obs) + setup.spaces.legal,) if setup.spaces.masked else setup.spaces.obs
    unknown_scores = filled_tensor(torch.nan, population.players, device=host)
    return Population(
        progress=Progress(),
        learner=build_members(
            setup.algorithm,
            config.learner,
            setup.nets,
            Setting(members=population.size, seed=config.seed, device=device, extra=champions),
        ),
        ring=build_ring(
            config.replay,
            VectorSpace(row_shape, setup.spaces.obs_type),
            VectorSpace(setup.spaces.action_shape, np.int64 if setup.algorithm.chooses else np.float32),
            envs=setup.spaces.envs,
            device=device,
        ),
        coming=zeros(setup.spaces.envs, *setup.spaces.obs, dtype=obs_type),
        legal={
            name: zeros(spaces.envs, spaces.legal, dtype=torch.bool)
            for name, spaces in ((TRAINING, setup.spaces), (TRIAL, setup.trial))
            if spaces.masked
        },
        episodes=build_episodes(setup.spaces, host),
        trial=TrialEpisodes(
            episodes=build_episodes(setup.trial, host),
            obs=zeros(setup.trial.envs, *setup.trial.obs, dtype=obs_type),
            done=zeros(setup.trial.envs, dtype=torch.bool),
            paid=zeros(setup.trial.envs),
        ),
        schedule=build_schedule(config.evolution),
        lineage=first_generation(population.size, device),
        scores=GenerationScores(values=unknown_scores, crowned=False, plateau=False),
        ended=zeros(2, dtype=torch.float64),  # EPISODES, RETURNS
        # A generator for each consumer: none shifts another's draws.
        generators={name: generator(config.seed, name, host) for name in WORLD_GENERATORS}
        | {name: generator(config.seed, name, device) for name in DEVICE_GENERATORS},
        logged={OWN: build_logged_numbers(host)} if setup.reported else {},
    )
