"""The configuration of a run that learns target weights: learner, data, and the settings that all runs share."""

from typing import Annotated, ClassVar, Literal

from flatwater.runs.config import RunConfig
from flatwater_trading.training.weights.config import WeightsConfig
from flatwater_watch.errors import require
from flatwater_watch.options.bounds import Bounds, Number
from flatwater_watch.options.declare import config

# The reason in the message that refuses `from_run`.
NO_ELDER_RUN = (
    "this recipe begins with random weights: members learn in seconds, and equal weights are where they begin"
)


@config
class WeightsRunConfig(RunConfig, WeightsConfig):
    """Target weights, learned on a panel."""

    changeable_settings: ClassVar = RunConfig.changeable_settings | {"benchmark"}

    trainer: Literal["weights"] = "weights"
    """The recipe, by which `flatwater resume` knows the run."""
    rounds: Number = 6
    """Rounds in all; `flatwater resume RUN --rounds N` goes on to N."""
    threads: Annotated[int, Bounds(0, 1024)] = 1
    """Torch threads. Members are small: more threads help on panels of hundreds of instruments. 0 takes the cores that
    are free at the start; the number is kept for resuming, because sums in another order differ in their last bit."""
    panel: str | None = None
    """A stored panel, a Parquet, CSV or Excel file, or `synthetic:60x1500`. Left out: the panel that comes with
    Flatwater."""

    def __post_init__(self) -> None:
        """Check the fields together, beyond the bounds of each."""
        RunConfig.__post_init__(self)
        require(self.from_run is None, "from_run", self.from_run, f"none, as {NO_ELDER_RUN}")
