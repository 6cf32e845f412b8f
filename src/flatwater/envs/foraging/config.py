"""What a foraging game is: how many play it, on what map, how long, and what they see."""

from flatwater.config.declare import config
from flatwater.errors import require

WIDEST = 15
"""Cells of a window's side, at most: a token packs row and column into four bits each."""


@config
class ForagingConfig:
    """Agents carry ore, one piece at a time, from mines to depots, and are paid for each that they deliver.

    Mines never run out. Where mines, depots, walls and agents stand is drawn anew for each episode, from its seed.
    """

    agents: int = 4
    """Agents in each."""
    size: int = 20
    """Cells of the map's side, with the wall around it."""
    mines: int = 6
    """Cells where an agent without ore gets a piece by moving against them."""
    depots: int = 3
    """Cells where an agent with ore delivers it by moving against them."""
    walls: int = 24
    """Cells inside the map that nobody passes."""
    steps: int = 256
    """Steps of an episode, which is then truncated."""
    window: int = 11
    """Cells of the side of the square that an agent sees, itself in the middle; odd."""
    tokens: int = 64
    """Tokens of an observation. What is nearest comes first; what does not fit is not seen."""
    price: float = 1.0
    """Paid for a delivery."""

    def __post_init__(self) -> None:
        require(1 <= self.agents <= WIDEST**2, "foraging.agents", self.agents, f"1 to {WIDEST**2}")
        for name in ("mines", "depots"):
            require(getattr(self, name) >= 1, f"foraging.{name}", getattr(self, name), "1 or more")
        require(self.walls >= 0, "foraging.walls", self.walls, "0 or more")
        inside = max(self.size - 2, 0) ** 2
        placed = self.mines + self.depots + self.walls + self.agents
        wanted = f"large enough for {placed} mines, depots, walls and agents inside: {inside} cells are there"
        require(placed <= inside, "foraging.size", self.size, wanted)
        require(self.size <= 2**8, "foraging.size", self.size, f"at most {2**8}")
        require(self.steps >= 1, "foraging.steps", self.steps, "1 or more")
        fits = self.window % 2 == 1 and 3 <= self.window <= WIDEST  # noqa: PLR2004
        require(fits, "foraging.window", self.window, f"odd, 3 to {WIDEST}")
        require(self.tokens >= 16, "foraging.tokens", self.tokens, "16 or more: an agent's own take up to 10")  # noqa: PLR2004
        require(self.price > 0, "foraging.price", self.price, "positive")
