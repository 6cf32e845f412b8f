"""A crew computes for a run: this process, or workers that come to exactly the same numbers."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol


class Executor(Protocol):
    """The state tree is the run. A crew may keep something newer elsewhere, until it is asked for it."""

    @property
    def pids(self) -> Sequence[int]:
        """Processes that compute besides this one."""

    def exchange_(self) -> Mapping[str, Any]:
        """What they hold, and what was exchanged with them: `runs.run.Run.exchange`."""

    @property
    def machines(self) -> Collection[str]:
        """Arithmetics of those processes, where they may be others than this one's."""

    def gather_(self) -> None:
        """Bring what is newer elsewhere into the state tree."""

    def close(self) -> None:
        """Let go of what it computes on."""


class LocalExecutor:
    """This process, and no other."""

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

    def gather_(self) -> None:
        """The state tree has everything already."""

    def close(self) -> None:
        """Everything belongs to the run."""
