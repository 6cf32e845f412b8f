"""Settings of a study, besides those that its runs share."""

from typing import Annotated

from flatwater_watch.errors import ConfigError, require
from flatwater_watch.options.bounds import Bounds
from flatwater_watch.options.declare import config
from flatwater_watch.sanitize import short_repr

DEFAULT_FOLDS = 5
"""Number of folds if none is given and the panel has days enough."""
MAXIMUM_FOLDS = 1000
MAXIMUM_SEEDS = 1000
MAXIMUM_TRIALS = 1 << 20
MAXIMUM_SEED_DIGITS = 12
"""Most digits of a seed."""


@config(table="study")
class StudyConfig:
    """A walk-forward over a panel."""

    folds: Annotated[int, Bounds(1, MAXIMUM_FOLDS)] = DEFAULT_FOLDS
    """Folds; each trains on everything before its test days."""
    seeds: Annotated[tuple[int, ...], Bounds(0, 1 << 40)] = (0, 1, 2)
    """Seeds; each fold is trained once with each of them."""
    days: Annotated[int, Bounds(1, 1 << 20)]
    """Days of the panel."""
    data: str
    """Fingerprint of the panel's contents."""
    trials: Annotated[int, Bounds(0, MAXIMUM_TRIALS)] = 0
    """Trials of the search for settings in each fold; 0 without a search."""
    trials_at_once: Annotated[int, Bounds(1, 1024)] = 1
    """Trials that train at the same time, on which their settings depend."""

    def __post_init__(self) -> None:
        check_seeds(self.seeds)


def check_seeds(seeds: tuple[int, ...]) -> None:
    """Check that there are seeds, not too many, none below 0, and each of them once."""
    are_different = len(set(seeds)) == len(seeds)
    is_valid = 1 <= len(seeds) <= MAXIMUM_SEEDS and are_different and min(seeds) >= 0
    require(is_valid, "seeds", seeds, f"1 to {MAXIMUM_SEEDS} whole numbers from 0 on, each once")


def read_seeds(text: str, first_seed: int) -> tuple[int, ...]:
    """Read the seeds of `--seeds`: `3` for three from `first_seed` on, `0,5,9` for these three, `7,` for one.

    Raises:
        ConfigError: `text` has another form.
    """
    fields = [field.strip() for field in text.split(",")]
    filled_fields = [field for field in fields if field]  # without the empty one after the comma of `7,`
    if not filled_fields or not all(field.isdecimal() and len(field) <= MAXIMUM_SEED_DIGITS for field in filled_fields):
        raise ConfigError(
            f"--seeds {short_repr(text)}: expected a number of seeds, such as 3, or a list of seeds, such as 0,5,9"
        )
    numbers = tuple(map(int, filled_fields))
    if len(fields) == 1:
        # Without a comma the number is how many seeds there are.
        require(1 <= numbers[0] <= MAXIMUM_SEEDS, "--seeds", numbers[0], f"1 to {MAXIMUM_SEEDS} seeds")
        numbers = tuple(range(first_seed, first_seed + numbers[0]))
    check_seeds(numbers)
    return numbers
