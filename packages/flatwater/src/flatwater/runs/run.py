"""A run, ready to train or to be restored: what the loop, the ledger, the checkpoints and the result need of it."""

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from flatwater.memory.ledger import Effort
from flatwater.memory.planner import Plan
from flatwater.metrics.alarms import Alarm
from flatwater.rundir.layout import RunFolder
from flatwater.runs.machine import find_device
from flatwater.trainers.profile import Profile
from flatwater_watch.files.directory import write_object
from flatwater_watch.meters.process import private_bytes


@dataclass(frozen=True)
class Run(ABC):
    """What a recipe composes. A recipe says what it trains and how that is scored; the rest has a plain answer here."""

    config: Any
    """Its settings: a RunConfig, and those of what is trained."""
    plan: Plan
    """What it holds."""
    trainer: Any
    """A `trainers.loop.Trainer`, which the loop drives."""
    doubts: list[str] = field(default_factory=list, kw_only=True)
    """Why it cannot be resumed bit for bit, a sentence each; empty where it can."""

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return find_device(self.config.device)

    @property
    def location_settings(self) -> frozenset[str]:
        """Settings that say where data lie: they may change, as the data are compared by what is in them."""
        return frozenset()

    @abstractmethod
    def describe(self) -> str:
        """One line about what is trained on what."""

    def about(self) -> Sequence[str]:
        """Further lines for the start: what is seen, and how the data are parted."""
        return ()

    def data(self) -> Mapping[str, Any]:
        """What identifies the data: it must be the same where a checkpoint is continued."""
        return {}

    def begin_(self) -> None:  # noqa: B027  (most runs begin with what was built)
        """Bring what a new run begins with, before its first round, and see whether it can be resumed bit for bit."""

    def rebuild_(self) -> None:  # noqa: B027  (most checkpoints leave nothing out)
        """Fill what checkpoints leave out from what they hold; what cannot come back is one of its `doubts`."""

    def gather_(self) -> None:  # noqa: B027  (most runs keep everything in their state)
        """Bring what is kept elsewhere into the state, before it is saved."""

    def elsewhere(self) -> int:
        """Bytes of RAM that other processes which compute for the run have for themselves."""
        return 0

    def exchange(self) -> Mapping[str, Any]:
        """What the ledger says of those processes, on whichever machine; nothing where there are none.

        Asked once a round. `wire` is what has gone to them and come from them so far, `arrays` the numbers in that;
        `moved` those since it was last asked, `formula` those of a round in which none is lost, `lost` the processes
        that others took the place of since then (not in the first round); `stores` what the object stores of a cluster
        hold, each counted once. `private` is what all of them have for themselves, and `workers` has each: its machine,
        `private` and `proportional` (shared pages in parts), as `planned` between two steps, the groups of its state
        (`owned`), and `unplanned`, planned minus held of each leaf that is not as planned. All in bytes.
        """
        return {}

    def machines(self) -> Collection[str]:
        """Arithmetics (`runs.fingerprint`) of those processes, where they may be others than this one's."""
        return ()

    def close(self) -> None:  # noqa: B027  (most runs hold nothing else)
        """Let go of what the run computed on besides this process."""

    def alarms(self, round_: int, metrics: Mapping[str, float]) -> Sequence[Alarm]:  # noqa: ARG002  (for recipes that look)
        """Everything wrong with the round."""
        return ()

    def parts(self) -> Mapping[str, Effort]:
        """What parts of the round's phases took, where the trainer tells them apart: one that slows down is named."""
        return {}

    def pace(self, efforts: Mapping[str, Effort]) -> Mapping[str, float]:
        """How fast the round was, `train/sps`: steps of the loop a second, 0 where no time was measured.

        Args:
            efforts: of the round, by phase.
        """
        spent = [efforts[phase.name] for phase in self.trainer.phases if phase.name in efforts]
        seconds = sum(effort.seconds for effort in spent)
        return {"train/sps": sum(effort.steps for effort in spent) / seconds if seconds else 0.0}

    def record(self) -> Mapping[str, Any]:
        """The round's line in the recipe's own file: who is in which slot, for example."""
        return {}

    def live_envs(self) -> int:
        """Environments alive in this process: it must stay constant."""
        return 0

    def too_early(self) -> str:
        """Why nothing can be scored yet, as a sentence; empty where it can."""
        return "" if self.trainer.progress.round else "no round has ended yet, so nothing was learned"

    @abstractmethod
    def score(self, *, holdout: bool) -> dict[str, Any]:
        """What was trained against the baselines, as plain values for JSON.

        Args:
            holdout: on data that nothing was chosen on.
        """

    def write_result(self, folder: RunFolder) -> None:
        """Score and write everything that a finished run leaves to look at.

        Raises:
            RunError: the disk is full or the folder read-only.
        """
        write_object(folder.result, json.dumps(self.score(holdout=False), indent=1).encode() + b"\n")

    def write_holdout(self, folder: RunFolder) -> dict[str, Any]:
        """The same on data that nothing was chosen on. Returns the result.

        Raises:
            RunError: the disk is full or the folder read-only.
        """
        found = self.score(holdout=True)
        write_object(folder.holdout, json.dumps(found, indent=1).encode() + b"\n")
        return found


@dataclass(frozen=True)
class CrewRun(Run):
    """A run whose trainer has an executor: a `trainers.executor.Executor`."""

    def gather_(self) -> None:
        """What workers know."""
        self.trainer.crew.gather_()

    def elsewhere(self) -> int:
        """Of the workers."""
        return private_bytes(self.trainer.crew.pids)

    def exchange(self) -> Mapping[str, Any]:
        """Of the workers."""
        found: Mapping[str, Any] = self.trainer.crew.exchange_()
        return found

    def machines(self) -> Collection[str]:
        """Of the workers."""
        found: Collection[str] = self.trainer.crew.machines
        return found

    def close(self) -> None:
        """The workers."""
        self.trainer.crew.close()


def part_efforts(profile: Profile) -> dict[str, Effort]:
    """What the parts of a step took in this round, in steps of agents, so that one that slows down is named."""
    return {
        f"{part} (a part of each step)": Effort(profile.wall[part], profile.cpu[part], profile.steps, None)
        for part in profile.parts
        if profile.steps
    }
