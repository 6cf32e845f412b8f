"""Executors of a run's phases: this process, or workers that give exactly the same numbers."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from flatwater.trainers.loop import R_co, T_co, Trainer


class Executor(Protocol):
    """The processes that compute for a run. The state tree is the run; `gather_` fetches newer state from elsewhere."""

    @property
    def pids(self) -> Sequence[int]:
        """Processes that compute besides this process."""

    def measure_exchange_(self) -> Mapping[str, Any]:
        """Return the bytes that these processes hold and exchange, as `runs.run.Run.measure_exchange_` does."""

    @property
    def machines(self) -> Collection[str]:
        """Floating-point fingerprints of those processes, if they may differ from this process's."""

    def gather_(self) -> None:
        """Copy newer state from elsewhere into the state tree."""

    def close(self) -> None:
        """End the processes, if any."""


class LocalExecutor:
    """This process alone."""

    @property
    def pids(self) -> Sequence[int]:
        """No process: nothing else computes."""
        return ()

    def measure_exchange_(self) -> Mapping[str, Any]:
        """Return nothing: no other process computes."""
        return {}

    @property
    def machines(self) -> Collection[str]:
        """No fingerprint but this process's own."""
        return ()

    def gather_(self) -> None:
        """Do nothing: the state tree has everything already."""

    def close(self) -> None:
        """Do nothing: everything belongs to the run."""


X_co = TypeVar("X_co", bound=Executor, covariant=True)


@dataclass(frozen=True)
class ExecutorTrainer(Trainer[T_co, R_co], Generic[T_co, R_co, X_co]):
    """A trainer whose phases an executor computes."""

    executor: X_co
