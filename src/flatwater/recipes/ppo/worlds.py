"""The worlds of a run: one to learn in, one for held-out episodes, each with teachers of its own."""

from dataclasses import dataclass

from flatwater.envs.world import World
from flatwater.envs.worlds import build_world
from flatwater.errors import ConfigError, require
from flatwater.recipes.ppo.config import BlocksRunConfig


@dataclass(frozen=True)
class Worlds:
    """What a run steps."""

    training: World
    held_out: World


def build_worlds(config: BlocksRunConfig) -> Worlds:
    """Both worlds, of the same kind; nothing is begun in them."""
    training, held_out = (_build(config, envs) for envs in (config.envs, config.evaluation.envs))
    agents, parts = training.spaces.envs * training.spaces.agents, config.learner.minibatches
    sequences = agents * config.block // config.learner.unroll
    dealt = f"a divisor of {sequences}: {agents} agents have {config.block // config.learner.unroll} sequences each"
    require(sequences % parts == 0, "learner.minibatches", parts, dealt)
    return Worlds(training, held_out)


def _build(config: BlocksRunConfig, envs: int) -> World:
    name = config.env_name
    try:
        return build_world(name, envs=envs, foraging=config.foraging, wrapped=config.wrapped)
    except ConfigError as wrong:
        raise ConfigError(f"{config.place} = {name!r}: {wrong}") from wrong
