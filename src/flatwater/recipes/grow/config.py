"""The configuration of a run of growing networks: what is trained, and what all runs are given."""

from typing import Literal

from flatwater.config.bounds import Number
from flatwater.config.declare import config
from flatwater.runs.config import RunConfig, check_run
from flatwater.trainers.grow.config import GrowConfig


@config
class GrowRunConfig(RunConfig, GrowConfig):
    """Networks that grow, and a policy that learns when and where they should."""

    trainer: Literal["grow"] = "grow"
    """The recipe, by which `flatwater resume` knows the run."""
    rounds: Number = 60
    """Batches in all, each of one episode of every environment; `flatwater resume RUN --rounds N` goes on to N."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        GrowConfig.__post_init__(self)
        check_run(self)

    @property
    def first_measured(self) -> int:
        """The first round with an evaluation."""
        return self.evaluation.every
