"""Settings of a run of teaching: those of the learner, and those of all runs."""

from typing import Annotated, ClassVar, Literal

from flatwater.algorithms.on_policy_config import TeachingConfig
from flatwater.config.code import Code, EnvName
from flatwater.recipes.ppo.config import BlocksRunConfig
from flatwater_watch.options.bounds import Bounds, Count, Number
from flatwater_watch.options.declare import config


@config
class TeachRunConfig(BlocksRunConfig):
    """A teacher, and a student that learns from it until it learns by itself."""

    place: ClassVar[str] = "world"
    trainer: Literal["teach"] = "teach"
    """The recipe, by which `flatwater resume` knows the run."""
    rounds: Number = 61
    """Blocks in all; `flatwater resume RUN --rounds N` goes on to N."""
    world: EnvName = "BabyAI-GoToRedBall-v0"
    """An ID of Gymnasium, forage (Python 3.11 and 3.12 alone), pettingzoo:MODULE (pettingzoo:mpe2.simple_spread_v3), or
    package.module:Name of a class or function that makes an environment or a world of yours."""
    teacher: Annotated[str, Code(kinds=("run",))] = "babyai"
    """babyai (for BabyAI-...), search (for forage), random, package.module:Class, or run:FOLDER for the
    student of another run of teaching."""
    envs: Annotated[int, Bounds(1, 1 << 16)] = 32
    block: Count = 64
    learner: TeachingConfig = TeachingConfig()
