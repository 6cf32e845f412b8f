"""Executors of a generation's tiles (members that are computed at once): here, or by workers with equal results."""

from typing import Protocol

from flatwater_trading.training.learn import PopulationLearning, make_learning
from flatwater_trading.training.setup import ErlSetup
from flatwater_trading.training.state import ErlState
from flatwater_trading.training.tile import TileTraining, TileValidation, train_tile, validate_tile


class TileExecutor(Protocol):
    """An executor of tiles, by number. All executors give the same results, bit for bit.

    While members learn, their newest weights may be in other processes, until `gather_` fetches them.
    """

    def learn_(self) -> None:
        """Update every member once: the next update of the generation."""

    def train(self, tile: int) -> TileTraining:
        """Let the tile's members play the training slices."""

    def validate(self, tile: int) -> TileValidation:
        """Let the tile's members, and the champion, play the validation slices."""

    def mark_members_changed_(self) -> None:
        """Note that the run's members have changed: copies of their weights are stale."""


class LocalTileExecutor:
    """This process computes all tiles, one after the other."""

    def __init__(self, setup: ErlSetup, run: ErlState) -> None:
        self._setup, self._run = setup, run
        self._learning: PopulationLearning = make_learning(setup, run)

    def learn_(self) -> None:
        """Update all members once, and then the priorities of the transitions that they drew."""
        self._learning.update_priorities_(self._learning.update_())

    def train(self, tile: int) -> TileTraining:
        """Play the training slices in the run's own simulator."""
        setup, run = self._setup, self._run
        return train_tile(setup, run, setup.tiles[tile], run.progress.round)

    def validate(self, tile: int) -> TileValidation:
        """Play the validation slices in the run's own simulator."""
        setup, run = self._setup, self._run
        return validate_tile(setup, run, setup.tiles[tile], run.progress.round)

    def mark_members_changed_(self) -> None:
        """Do nothing: there are no copies of the members' weights."""
