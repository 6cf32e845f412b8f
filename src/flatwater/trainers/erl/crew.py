"""A crew computes the tiles of a generation: this process, or workers that do exactly the same."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from flatwater.trainers.erl.learn import Learning, learning
from flatwater.trainers.erl.setup import Setup
from flatwater.trainers.erl.state import Erl
from flatwater.trainers.erl.tile import Judged, Trained, judge_tile, train_tile


class Crew(Protocol):
    """Computes tiles, by number. Every crew comes to the same numbers.

    The state tree is the run. A crew may keep newer rows of members elsewhere during a phase of learning, until it is
    asked for them.
    """

    @property
    def pids(self) -> Sequence[int]:
        """Processes that compute besides this one."""

    def exchange_(self) -> Mapping[str, Any]:
        """What they hold, and what was exchanged with them: `runs.run.Run.exchange`."""

    @property
    def machines(self) -> Collection[str]:
        """Arithmetics of those processes, where they may be others than this one's."""
        ...

    def learn_(self) -> None:
        """Every member learns once: the next update of the generation."""

    def train(self, tile: int) -> Trained:
        """The tile's members play the training slices."""

    def judge(self, tile: int) -> Judged:
        """The tile's members, and the champion, play the validation slices."""

    def replaced_(self) -> None:
        """The run's members are others now."""

    def gather_(self) -> None:
        """Bring the members' rows into the state tree."""

    def close(self) -> None:
        """Let go of what it computes on."""


class Here:
    """This process computes all tiles, one after the other."""

    def __init__(self, setup: Setup, run: Erl) -> None:
        """Bind the run's state."""
        self._setup, self._run = setup, run
        self._learning: Learning = learning(setup, run)

    @property
    def pids(self) -> Sequence[int]:
        """No other process computes."""
        return ()

    def exchange_(self) -> Mapping[str, Any]:
        """No other process computes."""
        return {}

    @property
    def machines(self) -> Collection[str]:
        """No other process computes."""
        return ()

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

    def gather_(self) -> None:
        """The state tree has them already."""

    def close(self) -> None:
        """Everything belongs to the run."""
