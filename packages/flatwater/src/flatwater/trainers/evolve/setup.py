"""The constants of a population in an environment: its configuration, spaces, algorithm and networks."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.algorithms.api import Algorithm, Networks, choose_algorithm
from flatwater.envs.world import Array, Spaces
from flatwater.nets.actions import bound_tensors, scale_to_bounds
from flatwater.nets.image_values import image_values
from flatwater.nets.mlp import MLPActor, MLPCritic, MLPValues
from flatwater.trainers.evolve.config import EvolveConfig
from flatwater_watch.errors import require


@dataclass(frozen=True)
class EvolveSetup:
    """Constants of a run, which are not state: configuration, networks as functions, spaces."""

    config: EvolveConfig
    device: torch.device
    spaces: Spaces
    """Spaces of the world to learn in: population.size x population.envs environments."""
    trial: Spaces
    """Spaces of the world of the episodes without noise."""
    reported: bool = False
    """Whether numbers of finished episodes are wanted."""

    @cached_property
    def algorithm(self) -> Algorithm:
        """The algorithm of all members.

        Raises:
            ConfigError: the algorithm does not learn from played episodes.
        """
        learner = self.config.learner
        # Traders' algorithms that learn from computed outcomes have no transitions to replay.
        expected = "an algorithm that learns from played episodes"
        require(learner.own.replays, "learner.algorithm", learner.algorithm, expected)
        return choose_algorithm(learner, chooses=self.spaces.bounds is None)

    @cached_property
    def _bounds(self) -> tuple[Tensor, Tensor]:
        """Lowest and highest value of each number of an action, on the CPU, where worlds are."""
        return bound_tensors(self.spaces.bounds, torch.device("cpu"))

    def world_actions(self, action: Float[Tensor, "*any A"]) -> Array:
        """Return a network's actions as the world takes them, on the CPU.

        Numbers in [-1, 1] are scaled to the world's bounds; choices stay as they are.
        """
        world_action = action.cpu()
        if not self.algorithm.chooses:
            world_action = scale_to_bounds(world_action, *self._bounds)
        return np.asarray(world_action.numpy())

    @cached_property
    def nets(self) -> Networks:
        """Actor and critic of a member, for the world's spaces."""
        spaces, net, draws_actions = self.spaces, self.config.net, self.algorithm.gaussian
        action_size, hidden_sizes = len(spaces.actions), (net.hidden,) * net.layers
        if self.algorithm.chooses:
            values = _build_values(self.config, spaces, hidden_sizes)
            # Actor and critic have the same form: a number for each choice.
            return Networks(replace(values, drawn=draws_actions), values)
        # Observations are vectors here: the recipe has refused all others.
        (obs_size,) = spaces.obs
        return Networks(
            MLPActor(obs_size, action_size, hidden_sizes, drawn=draws_actions),
            MLPCritic(obs_size, action_size, hidden_sizes),
        )


def _build_values(config: EvolveConfig, spaces: Spaces, hidden_sizes: tuple[int, ...]) -> MLPValues:
    """Return the network that gives a number for each choice, for observations that are vectors or have images."""
    switches = {"duelling": config.learner.own.duels, "masked": spaces.masked}
    if spaces.form != "image":
        (obs_size,) = spaces.obs
        return MLPValues(obs_size, len(spaces.actions), hidden_sizes, **switches)
    # As in PPO: a compiled run of a module, resumed, had other last bits than an uninterrupted run.
    expected = "off with images, whose compiled run would not be resumed bit for bit"
    require(not config.learner.compile, "learner.compile", config.learner.compile, expected)
    return image_values(spaces.parts, config.net.network, len(spaces.actions), hidden_sizes, **switches)
