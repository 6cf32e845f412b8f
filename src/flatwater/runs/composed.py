"""What the loop, the ledger, the checkpoints and the result need of a run of any kind, and how one is made."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from flatwater.memory.ledger import Effort
from flatwater.memory.planner import Plan
from flatwater.metrics.alarms import Alarm
from flatwater.runs.folder import RunFolder
from flatwater.trainers.loop import Trainer


class Composed(Protocol):
    """A run, ready to train or to be restored."""

    @property
    def config(self) -> Any:  # noqa: ANN401  (a RunConfig, and a trainer's configuration as well)
        """What the run was given."""
        ...

    @property
    def plan(self) -> Plan:
        """What it holds."""
        ...

    @property
    def trainer(self) -> Trainer:
        """What the loop drives."""
        ...

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        ...

    @property
    def located(self) -> frozenset[str]:
        """Settings that say where data lie: they may change, as the data are compared by what is in them."""
        ...

    def describe(self) -> str:
        """One line about what is trained on what."""
        ...

    def data(self) -> Mapping[str, Any]:
        """What identifies the data: it must be the same where a checkpoint is continued."""
        ...

    def rebuild_(self) -> None:
        """Fill what checkpoints leave out from what they hold."""
        ...

    def alarms(self, round_: int, metrics: Mapping[str, float]) -> Sequence[Alarm]:
        """Everything wrong with the round."""
        ...

    def parts(self) -> Mapping[str, Effort]:
        """What parts of the round's phases took, where the trainer tells them apart: one that slows down is named."""
        ...

    def record(self) -> Mapping[str, Any]:
        """The round's line in the kind's own file: who is in which slot, for example."""
        ...

    def live_envs(self) -> int:
        """Environments alive in this process: it must stay constant."""
        ...

    def too_early(self) -> str:
        """Why nothing can be scored yet, as a sentence; empty where it can."""
        ...

    def score(self, *, holdout: bool) -> dict[str, Any]:
        """What was trained against the baselines, as plain values for JSON.

        Args:
            holdout: on data that nothing was chosen on.
        """
        ...

    def write_result(self, folder: RunFolder) -> None:
        """Score and write everything that a finished run leaves to look at.

        Raises:
            RunError: the disk is full or the folder read-only.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Composer:
    """From settings to a run of one kind."""

    config: type[Any]
    """The class of its configuration: a RunConfig, and a trainer's configuration as well."""
    prepare: Callable[[Any], Any]
    """The configuration as it is kept, so that the run can be resumed from anywhere."""
    plan: Callable[[Any], Plan]
    """What a run would hold; allocates nothing."""
    compose: Callable[[Any], Composed]
    """A run, allocated whole."""
