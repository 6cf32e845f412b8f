"""Training, validation and holdout days, by position from the end of the panel.

Observations may reach back over a boundary (yesterday is known today), trades may not. The first training day is the
first day with a full context: on day t the observation is rows t - context + 1 to t.
"""

from dataclasses import dataclass

from flatwater_trading.panel.config import SplitConfig
from flatwater_watch.errors import ConfigError, require


@dataclass(frozen=True)
class Days:
    """Rows [first, stop) of the panel on which trading is allowed."""

    first: int
    """The first tradable row."""
    stop: int
    """The row after the last tradable row."""

    def __len__(self) -> int:
        return self.stop - self.first


@dataclass(frozen=True)
class Splits:
    """Three ranges of days without a gap between them."""

    train: Days
    """Days before the validation that have a full context."""
    validation: Days
    """Validation days, on which the champion is chosen."""
    holdout: Days
    """The last days, for the final verdict."""


def split_days(n_days: int, *, context: int, config: SplitConfig, context_name: str = "env.episode.context") -> Splits:
    """Split the tradable days of a panel.

    Args:
        n_days: rows of the panel.
        context: days that the agent sees.
        config: lengths of the splits.
        context_name: the setting of `context`, for messages.

    Raises:
        ConfigError: no training day is left; says how many days there are, how many are needed and what to change.
    """
    require(context >= 1, "context", context, "1 day or more")
    if config.days is not None:
        require(config.days <= n_days, "splits.days", config.days, f"at most the {n_days} rows of the panel")
    # Rows after `splits.days` are neither split nor looked at.
    used_days = n_days if config.days is None else config.days
    holdout_start = used_days - config.holdout_days
    validation_start = holdout_start - config.validation_days
    # Row context - 1 is the first with a full context, and at least one training day must remain.
    if validation_start <= context - 1:
        minimum = context + config.validation_days + config.holdout_days
        if config.days is None:
            rows, remedy = f"the panel has {n_days} rows", "Use a longer panel"
        else:
            rows, remedy = f"splits.days = {used_days}", "Use more days"
        raise ConfigError(
            f"{rows}, but {minimum} or more are needed: {context} of context (the last of them is the first training "
            f"day), {config.validation_days} of validation and {config.holdout_days} of holdout. {remedy}, or lower "
            f"{context_name}, splits.validation_days or splits.holdout_days."
        )
    return Splits(
        train=Days(first=context - 1, stop=validation_start),
        validation=Days(first=validation_start, stop=holdout_start),
        holdout=Days(first=holdout_start, stop=used_days),
    )


def check_episode(splits: Splits, episode_days: int) -> None:
    """Check that every split is long enough for an episode of `episode_days` (trading and settlement together).

    Raises:
        ConfigError: a split is too short; says how many days it has, how many are needed and what to change.
    """
    for name, days, remedy in (
        ("training", splits.train, "use a longer panel, lower env.episode.context or the other splits"),
        ("validation", splits.validation, f"raise splits.validation_days to {episode_days} or more"),
        ("holdout", splits.holdout, f"raise splits.holdout_days to {episode_days} or more"),
    ):
        if len(days) < episode_days:
            raise ConfigError(
                f"the {name} split has {len(days)} rows, but an episode needs {episode_days} "
                f"(env.episode.trading_days + settlement_days). Lower those, or {remedy}."
            )
