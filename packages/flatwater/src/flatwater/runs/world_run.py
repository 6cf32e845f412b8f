"""A run in a world: its exactness on resume is tested when it begins, and told wherever it is lost."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from flatwater.envs.exact import SECONDS, WorldPlayer, try_exactness
from flatwater.envs.kept_state import ReplayableWorld
from flatwater.envs.world import World
from flatwater.runs.run import Run

NEW_EPISODES = "A resumed run begins new episodes, so its numbers differ from the numbers of an uninterrupted run"


@dataclass(frozen=True)
class WorldRun(Run):
    """A run that plays in worlds, whose episodes `trainers.episodes` writes down."""

    untested: list[str] = field(default_factory=list, kw_only=True)
    """Reasons why the test at the beginning was left out."""

    @property
    @abstractmethod
    def world_name(self) -> str:
        """Name of the world, as the user gives it."""

    @abstractmethod
    def build_world(self, envs: int) -> World:
        """Return a new world of this run's kind."""

    def build_player(self, beside: int) -> tuple[World, WorldPlayer]:
        """Return a new world of two environments, and its player while the run is tested; see `WorldPlayer`."""
        world = self.build_world(2)
        return world, WorldPlayer(world, beside)

    @abstractmethod
    def keep_worlds_(self) -> str:
        """Write what the worlds keep over episodes into the state. Returns why that cannot be; empty where it can."""

    @abstractmethod
    def come_back_(self, *, exact: bool) -> str:
        """Bring the worlds to where the restored state has them, or begin new episodes.

        Args:
            exact: whether their episodes can be played again.

        Returns:
            Why they are not where they were, as the end of a sentence; empty where they are.
        """

    def about(self) -> Sequence[str]:
        """Return lines for the start, and that the run's exactness is not known where it was not tested."""
        return [*super().about(), *self.untested]

    def begin_(self) -> None:
        """Test whether an episode depends on its seed and actions alone, in worlds that are closed afterwards."""
        super().begin_()
        unsaved = set[str]()

        def make(beside: int) -> WorldPlayer:
            world, player = self.build_player(beside)
            unsaved.update([f"; {world.beginnings.unsaved}"] if isinstance(world, ReplayableWorld) else [])
            return player

        verdict = try_exactness(make)
        if verdict.tested and verdict.why:
            self.doubts.append(f"{self.world_name}: {verdict.why}{''.join(unsaved - {'; '})}. {NEW_EPISODES}")
        elif verdict.why:
            limit = f"{verdict.why}, and the test may take {SECONDS:g} s"
            self.untested.append(f"{self.world_name}: it is not tested whether a resume is bit for bit: {limit}")

    def gather_(self) -> None:
        """Copy what the worlds keep over episodes into the state."""
        super().gather_()
        self._doubt_(self.keep_worlds_(), NEW_EPISODES)

    def rebuild_(self) -> None:
        """Bring the worlds to where they were: their episodes are played again, or begin anew."""
        super().rebuild_()
        reason = self.come_back_(exact=not self.doubts)  # a run that is inexact already is spared the replay
        begun = f"new episodes begin in round {self.trainer.progress.round + 1}, and the numbers differ from there on"
        self._doubt_(
            reason, f"The environment has another version, or its episodes do not follow from seed and actions: {begun}"
        )

    def _doubt_(self, why: str, follows: str) -> None:
        """Write down why the run is not exact any more; reasons after the first do not matter."""
        if why and not self.doubts:
            self.doubts.append(f"{self.world_name}: {why}. {follows}")
