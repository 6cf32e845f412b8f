"""The configuration of a run of teaching: what is learned, and what all runs are given."""

from typing import Literal

from flatwater.config.bounds import Number
from flatwater.config.declare import config
from flatwater.runs.config import RunConfig, check_run
from flatwater.trainers.teach.config import TeachConfig


@config
class TeachRunConfig(RunConfig, TeachConfig):
    """A teacher, and a student that learns from it until it learns by itself."""

    trainer: Literal["teach"] = "teach"
    """What the run trains, so that `flatwater resume` knows."""
    rounds: Number = 61
    """Blocks in all; `flatwater resume RUN --rounds N` goes on to N."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        TeachConfig.__post_init__(self)
        check_run(self)

    @property
    def first_measured(self) -> int:
        """The first round with an evaluation."""
        return self.evaluation.every
