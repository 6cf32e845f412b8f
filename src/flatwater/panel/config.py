"""What a user can set about the panel. Imports nothing heavy: the command line reads this at every start."""

from flatwater.config.declare import config
from flatwater.errors import require

DEFAULT_OBSERVATION_FEATURES = ("close", "rsi", "macd_signal", "trix", "sma20_distance")
"""The features that an agent sees unless it is told otherwise, in the order of the observation's last axis."""


@config
class SplitConfig:
    """How the panel's days are shared out, from the end backwards: holdout, validation, training."""

    holdout_days: int = 251
    """Last days of the panel, looked at only by `flatwater evaluate --holdout`. More days, a surer final verdict."""
    validation_days: int = 252
    """Days before the holdout, on which the champion is chosen (walk-forward). Training gets what is left."""

    def __post_init__(self) -> None:
        require(self.holdout_days > 0, "splits.holdout_days", self.holdout_days, "a positive number of days")
        require(self.validation_days > 0, "splits.validation_days", self.validation_days, "a positive number of days")


@config
class SyntheticConfig:
    """An artificial market with a planted, learnable signal of known size (`panel/synthetic.py` has the model)."""

    instruments: int = 60
    """Columns of the panel, context columns included."""
    days: int = 1500
    """Rows of the panel, one for each weekday from 2000-01-03."""
    context_instruments: int = 0
    """The last so many columns can be watched, but not traded."""
    signal: float = 0.5
    """Share of the variance of 20-day log returns that the hidden drift at their start explains; 0 is a random walk."""
    signal_days: int = 50
    """Mean life of a drift regime in days. A short life bounds `signal`, because the drift may change under way."""
    late_listings: float = 0.2
    """Share of the columns that begin after the first day (between 5 % and 60 % of the way)."""
    delistings: float = 0.1
    """Share of the columns that end before the last day (between 60 % and 95 % of the way)."""
    halts: float = 0.002
    """Chance that a halt of 1 to 5 days begins on a given day and column; prices are missing while it lasts."""
    seed: int = 0
    """The same configuration always gives the same panel."""

    def __post_init__(self) -> None:
        require(self.days >= 2, "synthetic.days", self.days, "2 or more")  # noqa: PLR2004
        require(self.instruments >= 1, "synthetic.instruments", self.instruments, "1 or more")
        require(
            0 <= self.context_instruments < self.instruments,
            "synthetic.context_instruments",
            self.context_instruments,
            f"at least 0 and less than instruments ({self.instruments}), so that something can be traded",
        )
        require(0 <= self.signal < 1, "synthetic.signal", self.signal, "at least 0 and less than 1")
        require(self.signal_days >= 1, "synthetic.signal_days", self.signal_days, "1 day or more")
        for name in ("late_listings", "delistings", "halts"):
            share = {"late_listings": self.late_listings, "delistings": self.delistings, "halts": self.halts}[name]
            require(0 <= share <= 1, f"synthetic.{name}", share, "a share between 0 and 1")
        require(self.seed >= 0, "synthetic.seed", self.seed, "0 or more")
