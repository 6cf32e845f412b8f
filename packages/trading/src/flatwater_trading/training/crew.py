"""A crew computes the tiles of a generation: this process, or workers that do exactly the same."""

from typing import Protocol

from flatwater.trainers import crew
from flatwater_trading.training.learn import Learning, learning
from flatwater_trading.training.setup import Setup
from flatwater_trading.training.state import Erl
from flatwater_trading.training.tile import Judged, Trained, judge_tile, train_tile


class Crew(crew.Crew, Protocol):
    """Computes tiles, by number. Every crew comes to the same numbers.

    It may keep newer rows of members elsewhere during a phase of learning, until it is asked for them.
    """

    def learn_(self) -> None:
        """Every member learns once: the next update of the generation."""

    def train(self, tile: int) -> Trained:
        """The tile's members play the training slices."""

    def judge(self, tile: int) -> Judged:
        """The tile's members, and the champion, play the validation slices."""

    def replaced_(self) -> None:
        """The run's members are others now."""


class Here(crew.Alone):
    """This process computes all tiles, one after the other."""

    def __init__(self, setup: Setup, run: Erl) -> None:
        """Bind the run's state."""
        self._setup, self._run = setup, run
        self._learning: Learning = learning(setup, run)

    def learn_(self) -> None:
        """In place."""
        self._learning.weigh_(self._learning.update_())

    def train(self, tile: int) -> Trained:
        """In the run's own simulator."""
        setup, run = self._setup, self._run
        return train_tile(setup, run, setup.tiles[tile], run.progress.round)

    def judge(self, tile: int) -> Judged:
        """In the run's own simulator."""
        setup, run = self._setup, self._run
        return judge_tile(setup, run, setup.tiles[tile], run.progress.round)

    def replaced_(self) -> None:
        """The state tree has the only rows."""
