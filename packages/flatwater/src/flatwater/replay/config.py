"""Settings of replays: how many transitions are kept, and how they are drawn."""

from flatwater_watch.errors import require
from flatwater_watch.options.bounds import Number, Share
from flatwater_watch.options.declare import config


@config(table="replay")
class DrawConfig:
    """Draws of experience from a replay."""

    warmup: Number = 1_000
    """Transitions held before the first update."""
    prioritised: bool = False
    """Draw transitions with large TD errors more often (Schaul et al. 2016) instead of all alike."""
    alpha: Share = 0.6
    """Prioritised: a transition is drawn in proportion to |TD error| ** alpha. 0 draws all alike."""
    beta: Share = 0.4
    """Prioritised: how much of the draw's bias the importance weights take back, 0 (none) to 1 (all)."""


@config(table="replay")
class ReplayConfig(DrawConfig):
    """One replay shared by the whole population."""

    capacity: Number = 50_000
    """Transitions kept. Allocated once; the oldest is overwritten."""

    def __post_init__(self) -> None:
        """Refuse a warm-up of more transitions than are kept."""
        capacity = self.capacity
        require(self.warmup <= capacity, "replay.warmup", self.warmup, f"1 to replay.capacity ({capacity})")


REMOVED = {
    "windows": "A transition names its row of the panel, as with `rows`, since November 2026. Remove the line; "
    "benchmarks/flatwater/stored_windows.py does what `stored` did."
}
"""Settings of earlier versions of the replay of rows, with advice."""


@config(table="replay", removed=REMOVED)
class RowReplayConfig(DrawConfig):
    """One replay of panel rows shared by the whole population."""

    generations: Number = 4
    """Generations of transitions kept, however many members play them. Allocated once; the oldest are overwritten."""
