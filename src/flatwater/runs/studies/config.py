"""What makes a study, besides the settings that its runs share."""

from typing import Annotated

from flatwater.config.bounds import Bounds
from flatwater.config.declare import config
from flatwater.errors import require

MOST_FOLDS = 1000
MOST_SEEDS = 1000


@config(table="study")
class StudyConfig:
    """A walk-forward over a panel."""

    folds: Annotated[int, Bounds(1, MOST_FOLDS)] = 5
    """Folds; each trains on everything before its test days."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Each fold is trained once with each."""
    days: Annotated[int, Bounds(1, 1 << 20)]
    """Days of the panel."""
    data: str
    """What is in the panel, as a hash."""

    def __post_init__(self) -> None:
        """Check what must fit together."""
        require(
            0 < len(set(self.seeds)) == len(self.seeds) <= MOST_SEEDS,
            "seeds",
            self.seeds,
            f"1 to {MOST_SEEDS} numbers, each once",
        )
