"""How much experience is kept, and how it is drawn."""

from typing import Literal

from flatwater.config.declare import config
from flatwater.errors import require


@config
class ReplayConfig:
    """One replay shared by the whole population."""

    capacity: int = 50_000
    """Transitions kept. Allocated once; the oldest is overwritten."""
    warmup: int = 1_000
    """Transitions held before the first update."""
    windows: Literal["rows", "stored"] = "rows"
    """rows: a transition names the panel row of its day, and its windows are gathered when it is drawn. stored: copy
    both windows of every transition, as many programs do; the same numbers in a thousand times the memory."""
    prioritised: bool = False
    """Draw transitions with large TD errors more often (Schaul et al. 2016) instead of all alike."""
    alpha: float = 0.6
    """Prioritised: a transition is drawn in proportion to |TD error| ** alpha. 0 draws all alike."""
    beta: float = 0.4
    """Prioritised: how much of the draw's bias the importance weights take back, 0 (none) to 1 (all)."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        require(self.capacity >= 1, "replay.capacity", self.capacity, "1 or more")
        capacity = self.capacity
        require(1 <= self.warmup <= capacity, "replay.warmup", self.warmup, f"1 to replay.capacity ({capacity})")
        require(0 <= self.alpha <= 1, "replay.alpha", self.alpha, "0 to 1")
        require(0 <= self.beta <= 1, "replay.beta", self.beta, "0 to 1")
