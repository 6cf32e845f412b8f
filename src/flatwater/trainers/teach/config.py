"""What a run of teaching is made of, apart from its world and its machine."""

from dataclasses import field
from typing import Annotated

from flatwater.config.bounds import Bounds, Count, Number, Seed
from flatwater.config.declare import config
from flatwater.envs.foraging.config import ForagingConfig
from flatwater.envs.wrapped.config import WrappedConfig
from flatwater.errors import require
from flatwater.learners.teaching_config import TeachingConfig
from flatwater.nets.student_config import StudentConfig


@config(table="evaluation")
class ComparisonConfig:
    """Episodes on seeds that are never trained on: the same ones for the student, the teacher and random actions."""

    envs: Annotated[int, Bounds(1, 1 << 16)] = 8
    """Environments of the world that they are played in, one episode of each."""
    every: Number = 10
    """The student is evaluated in every n-th round."""


@config
class TeachConfig:
    """A student and a critic that learn from a teacher, then by themselves."""

    seed: Seed = 0
    """Every random number of the run follows from it."""
    world: str = "forage"
    """forage, gymnasium:ID (gymnasium:BabyAI-GoToRedBall-v0) or pettingzoo:MODULE
    (pettingzoo:mpe2.simple_spread_v3)."""
    teacher: str = "search"
    """search (for forage), babyai (for gymnasium:BabyAI-...), random, package.module:Class, or run:FOLDER for the
    student of another run of teaching."""
    envs: Annotated[int, Bounds(1, 1 << 16)] = 32
    """Environments that are stepped side by side."""
    block: Count = 64
    """Steps of every environment in a round; the student learns from them. A multiple of `learner.unroll`."""
    foraging: ForagingConfig = field(default_factory=ForagingConfig)
    wrapped: WrappedConfig = field(default_factory=WrappedConfig)
    student: StudentConfig = field(default_factory=StudentConfig)
    learner: TeachingConfig = field(default_factory=TeachingConfig)
    evaluation: ComparisonConfig = field(default_factory=ComparisonConfig)

    def __post_init__(self) -> None:
        """Check what must fit together."""
        unroll = self.learner.unroll
        require(self.block % unroll == 0, "block", self.block, f"a multiple of learner.unroll ({unroll})")
