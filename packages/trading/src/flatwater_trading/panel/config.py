"""Settings of the panel. Imports nothing heavy: the command line reads them at every start."""

from typing import Annotated, Literal, get_args

from flatwater_watch.errors import require
from flatwater_watch.options.bounds import Bounds, Count, Share
from flatwater_watch.options.declare import config

DEFAULT_OBSERVATION_FEATURES = (
    "return",
    "rsi",
    "macd_signal_pct",
    "trix",
    "sma20_distance_pct",
    "return_60",
    "return_120",
)
"""The features that an agent sees by default, in the order of the observation's last axis."""

MAXIMUM_CELLS = 1 << 25
"""Most days x instruments of a synthetic market, which is generated in memory: 1.1 GiB of values."""


@config(table="splits")
class SplitConfig:
    """Splits of the panel's days, cut from the end backwards: holdout, validation, training."""

    holdout_days: Count = 251
    """Last days of the panel, looked at only by `flatwater evaluate --holdout`. More days, a surer final verdict."""
    validation_days: Count = 252
    """Days before the holdout, on which the champion is chosen. The days before them are for training."""
    days: Count | None = None
    """Days of the panel that are used, from its first on; nothing after them is looked at. Left out: all."""


Law = Literal["trend", "reversal", "lead", "regimes", "interaction", "none"]
"""The laws of synthetic markets (`panel/laws.py`)."""


@config(table="synthetic")
class SyntheticConfig:
    """An artificial market with a planted, learnable signal of known size (`panel/synthetic.py` has the model)."""

    instruments: Annotated[int, Bounds(1, 1 << 16)] = 60
    """Columns of the panel, context columns included."""
    days: Annotated[int, Bounds(2, 1 << 16)] = 1500
    """Rows of the panel, one for each weekday from 2000-01-03."""
    context_instruments: Annotated[int, Bounds(0, 1 << 16)] = 0
    """Number of the last columns that can be watched, but not traded."""
    law: Law = "trend"
    """Law that moves prices besides noise. trend: a hidden drift. reversal: past shocks are taken back. lead: the first
    context column leads. regimes: now trends pay, now reversals. interaction: the same, and the first context column
    says which. none: nothing."""
    signal: Annotated[float, Bounds(0, 1, below=True)] = 0.5
    """Share of the variance of 20-day log returns that the law explains at their start; 0 is a random walk."""
    signal_days: Count = 50
    """Mean life of a drift in days. A short life bounds `signal`, because the drift may change under way."""
    late_listings: Share = 0.2
    """Share of the columns that begin after the first day (between 5 % and 60 % of the way)."""
    delistings: Share = 0.1
    """Share of the columns that end before the last day (between 60 % and 95 % of the way)."""
    halts: Share = 0.002
    """Chance that a halt of 1 to 5 days begins on a given day and column; prices are missing while it lasts."""
    seed: Annotated[int, Bounds(0, 1 << 40)] = 0
    """The same configuration always gives the same panel."""

    def __post_init__(self) -> None:
        """Check the fields together, beyond the bounds of each."""
        require(self.law in get_args(Law), "synthetic.law", self.law, f"one of {', '.join(get_args(Law))}")
        require(
            self.context_instruments < self.instruments,
            "synthetic.context_instruments",
            self.context_instruments,
            f"at least 0 and less than instruments ({self.instruments}), so that something can be traded",
        )
        # The bounds of the two fields would still allow 4 billion cells together.
        most_days = MAXIMUM_CELLS // self.instruments
        require(
            self.days <= most_days, "synthetic.days", self.days, f"2 to {most_days} with {self.instruments} instruments"
        )
