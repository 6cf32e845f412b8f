"""Settings of a foraging game: agents, map, length of an episode, and observations."""

from typing import Annotated

from flatwater_watch.errors import require
from flatwater_watch.options.bounds import Bounds, Number
from flatwater_watch.options.declare import config

MAXIMUM_SIDE = 15
"""Cells of a window's side, at most: a token packs row and column into four bits each."""


@config(table="foraging")
class ForagingConfig:
    """Agents carry ore, one piece at a time, from mines to depots, and are paid for each that they deliver.

    Mines never run out. Where mines, depots, walls and agents stand is drawn for each episode, from its seed.
    """

    agents: Annotated[int, Bounds(1, MAXIMUM_SIDE**2)] = 4
    """Agents in each environment."""
    size: Annotated[int, Bounds(3, 1 << 8)] = 20
    """Cells of the map's side, with the wall around it."""
    mines: Annotated[int, Bounds(1, 1 << 16)] = 6
    """Cells where an agent without ore gets a piece by moving against them."""
    depots: Annotated[int, Bounds(1, 1 << 16)] = 3
    """Cells where an agent with ore delivers it by moving against them."""
    walls: Annotated[int, Bounds(0, 1 << 16)] = 24
    """Number of wall cells inside the map."""
    steps: Number = 256
    """Steps of an episode, which is then truncated."""
    window: Annotated[int, Bounds(3, MAXIMUM_SIDE)] = 11
    """Cells of the side of the square that an agent sees, itself in the middle; odd."""
    tokens: Annotated[int, Bounds(16, 1 << 12)] = 64
    """Tokens of an observation, the nearest first; tokens beyond this number are left out."""
    price: Annotated[float, Bounds(0, 1e6, above=True)] = 1.0
    """Reward for a delivery."""

    def __post_init__(self) -> None:
        """Check that the map has space for all objects inside its wall, and that the view has a middle."""
        cells = (self.size - 2) ** 2
        objects = self.mines + self.depots + self.walls + self.agents
        expected = f"a side large enough for {objects} mines, depots, walls and agents: the map has {cells} cells"
        require(objects <= cells, "foraging.size", self.size, expected)
        require(self.window % 2 == 1, "foraging.window", self.window, f"an odd number from 3 to {MAXIMUM_SIDE}")
