"""A crew computes the tiles of a generation: this process, or workers that do exactly the same."""

from typing import Protocol

from flatwater.trainers import executor
from flatwater_trading.training.learn import PopulationLearning, make_learning
from flatwater_trading.training.setup import ErlSetup
from flatwater_trading.training.state import ErlState
from flatwater_trading.training.tile import TileTraining, TileValidation, judge_tile, train_tile


class TileExecutor(executor.Executor, Protocol):
    """Computes tiles, by number. Every crew comes to the same numbers.

    It may keep newer rows of members elsewhere during a phase of learning, until it is asked for them.
    """

    def learn_(self) -> None:
        """Every member learns once: the next update of the generation."""

    def train(self, tile: int) -> TileTraining:
        """The tile's members play the training slices."""

    def judge(self, tile: int) -> TileValidation:
        """The tile's members, and the champion, play the validation slices."""

    def mark_members_changed_(self) -> None:
        """The run's members are others now."""


class LocalTileExecutor(executor.LocalExecutor):
    """This process computes all tiles, one after the other."""

    def __init__(self, setup: ErlSetup, run: ErlState) -> None:
        """Bind the run's state."""
        self._setup, self._run = setup, run
        self._learning: PopulationLearning = make_learning(setup, run)

    def learn_(self) -> None:
        """In place."""
        self._learning.update_priorities_(self._learning.update_())

    def train(self, tile: int) -> TileTraining:
        """In the run's own simulator."""
        setup, run = self._setup, self._run
        return train_tile(setup, run, setup.tiles[tile], run.progress.round)

    def judge(self, tile: int) -> TileValidation:
        """In the run's own simulator."""
        setup, run = self._setup, self._run
        return judge_tile(setup, run, setup.tiles[tile], run.progress.round)

    def mark_members_changed_(self) -> None:
        """The state tree has the only rows."""
