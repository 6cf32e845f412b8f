"""The worlds of a run: one to learn in, one for episodes without noise."""

from dataclasses import dataclass

from flatwater.envs.foraging.config import ForagingConfig
from flatwater.envs.world import Spaces, World, described
from flatwater.envs.worlds import build_world
from flatwater.errors import ConfigError
from flatwater.recipes.evolve.config import EvolveRunConfig


@dataclass(frozen=True)
class Worlds:
    """What a run steps."""

    training: World
    trial: World


def build_worlds(config: EvolveRunConfig) -> Worlds:
    """Both worlds, of the same kind; nothing is begun in them."""
    members = config.population.size
    training = _build(config, members * config.population.envs)
    return Worlds(training, _build(config, (members + 1) * config.evaluation.episodes))


def _build(config: EvolveRunConfig, envs: int) -> World:
    try:
        world = build_world(config.env, envs=envs, foraging=ForagingConfig(), wrapped=config.wrapped)
        _check(world.spaces)
    except ConfigError as wrong:
        raise ConfigError(f"env = {config.env!r}: {wrong}") from wrong
    return world


def _check(spaces: Spaces) -> None:
    if spaces.bounds is None:
        raise ConfigError(
            f"actions are choices ({described(spaces)}): wanted are numbers within bounds, which members "
            "are trained to give. Use `flatwater train ppo` for this environment"
        )
    if spaces.agents != 1:
        raise ConfigError(
            f"there are {spaces.agents} agents in an environment: wanted is one, a member of the population. Use "
            "`flatwater train ppo` for this environment"
        )
    if spaces.form != "vector" or len(spaces.obs) != 1:
        raise ConfigError(f"observations are {spaces.form} of the shape {list(spaces.obs)}: wanted is a vector [N]")
