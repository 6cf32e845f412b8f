"""A run, ready to train or to be restored, with all that loop, ledger, checkpoints and result need."""

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from flatwater.memory.ledger import Effort
from flatwater.memory.planner import Plan
from flatwater.metrics.alarms import Alarm, learner_alarms
from flatwater.recipe import recipe_of_config
from flatwater.rundir.layout import RunFolder
from flatwater.runs.machine import find_device
from flatwater.runs.warm_start import take_weights_
from flatwater.trainers.logged import OnEpisode
from flatwater.trainers.profile import Profile
from flatwater_watch.errors import require
from flatwater_watch.files.directory import write_object
from flatwater_watch.meters.process import private_bytes


@dataclass(frozen=True)
class Run(ABC):
    """A composed run: a recipe says what it trains and how that is scored; the rest has a plain answer here."""

    config: Any
    """Settings of the run: a RunConfig, and those of its trainer."""
    plan: Plan
    """Memory that the run holds."""
    trainer: Any
    """A `trainers.loop.Trainer`, which the loop drives."""
    doubts: list[str] = field(default_factory=list, kw_only=True)
    """Sentences that say why the run cannot be resumed bit for bit; empty if it can."""
    taken: list[str] = field(default_factory=list, kw_only=True)
    """Sentence about the weights that the run began with; empty if they are its own."""

    @property
    def device(self) -> torch.device:
        """Device that the run computes on."""
        return find_device(self.config.device)

    @property
    def location_settings(self) -> frozenset[str]:
        """Names of the settings that say where data lie: they may change, as data are compared by their content."""
        return frozenset()

    @abstractmethod
    def describe(self) -> str:
        """Return a line that names the policy and its environment or data."""

    def about(self) -> Sequence[str]:
        """Return further lines for the start: observations, split of the data, and decisions."""
        return [*self.taken, *self.plan.notes]

    def weights(self) -> Collection[Tensor]:
        """Return the leaves that another run may begin with: networks, and statistics that normalise their inputs."""
        return ()

    def data(self) -> Mapping[str, Any]:
        """Return facts that identify the data; a checkpoint is continued only if they are the same."""
        return {}

    def begin_(self) -> None:
        """Prepare a new run before its first round: it may begin with the weights of another one."""
        if self.config.from_run is not None:
            self.taken.append(take_weights_(self.trainer.run, self.weights(), self.config.from_run))

    def rebuild_(self) -> None:  # noqa: B027  (most checkpoints leave nothing out)
        """Fill leaves that checkpoints leave out from those that they hold; a loss becomes one of the `doubts`."""

    def gather_(self) -> None:  # noqa: B027  (most runs keep everything in their state)
        """Copy state that is kept elsewhere into the state tree, before it is saved."""

    def elsewhere(self) -> int:
        """Return the bytes of RAM that other processes which compute for the run have for themselves."""
        return 0

    def exchange(self) -> Mapping[str, Any]:
        """Return the ledger's record of those processes, on whichever machine; nothing if there are none.

        Asked once a round. `wire` is what has gone to them and come from them so far, `arrays` the numbers in that;
        `moved` those since it was last asked, `lost` the processes
        that others took the place of since then (not in the first round); `stores` what the object stores of a cluster
        hold, each counted once. `private` is what all of them have for themselves, and `workers` has each: its machine,
        `private` and `proportional` (shared pages in parts), as `planned` between two steps, the groups of its state
        (`owned`), and `unplanned`, planned minus held of each leaf that is not as planned. All in bytes.
        """
        return {}

    def machines(self) -> Collection[str]:
        """Return the arithmetics (`runs.fingerprint`) of those processes, where they may differ from this process's."""
        return ()

    def close(self) -> None:  # noqa: B027  (most runs hold nothing else)
        """Release the processes and devices of the run besides this process."""

    def listen_(self, on_episode: OnEpisode | None) -> None:
        """Have finished episodes reported, as the settings want it.

        Args:
            on_episode: the user's function; None if there is none.

        Raises:
            ConfigError: the run reports no episodes.
        """
        expected = "left out: a run that was begun without it has no room for its numbers. Begin a new run with it"
        require(on_episode is None, "on_episode", on_episode, expected)

    def take_logged_(self) -> Mapping[str, float]:
        """Return the numbers of the user's own since the last call, and reset them."""
        return {}

    def alarms(self, round_: int, metrics: Mapping[str, float]) -> Sequence[Alarm]:  # noqa: ARG002  (for recipes that look)
        """Return everything wrong with the round."""
        return ()

    def parts(self) -> Mapping[str, Effort]:
        """Return the effort of parts of the round's phases, where the trainer measures them, to name a slow part."""
        return {}

    def pace(self, efforts: Mapping[str, Effort]) -> Mapping[str, float]:
        """Return the speed of the round, `train/sps`: steps of the loop a second, 0 if no time was measured.

        Args:
            efforts: efforts of the round, by phase.
        """
        phase_efforts = [efforts[phase.name] for phase in self.trainer.phases if phase.name in efforts]
        seconds = sum(effort.seconds for effort in phase_efforts)
        return {"train/sps": sum(effort.steps for effort in phase_efforts) / seconds if seconds else 0.0}

    def record(self) -> Mapping[str, Any]:
        """Return the round's line in the recipe's own file: which agent is in which slot, for example."""
        return {}

    def live_envs(self) -> int:
        """Return the number of environments alive in this process, which must stay constant."""
        return 0

    def too_early(self) -> str:
        """Return why nothing can be scored yet, as a sentence; empty if it can."""
        return "" if self.trainer.progress.round else "no round has ended yet, so nothing was learned"

    @abstractmethod
    def score(self, *, holdout: bool) -> dict[str, Any]:
        """Return the score of the trained policy against the baselines, as plain values for JSON.

        Args:
            holdout: whether to play data that nothing was chosen on.
        """

    def write_result(self, folder: RunFolder) -> None:
        """Score the run and write everything that a finished run leaves to look at.

        Raises:
            RunError: the disk is full or the folder read-only.
        """
        write_object(folder.result, json.dumps(self.score(holdout=False), indent=1).encode() + b"\n")

    def write_holdout(self, folder: RunFolder) -> dict[str, Any]:
        """Score the run on data that nothing was chosen on, and write that. Returns the result.

        Raises:
            RunError: the disk is full or the folder read-only.
        """
        result = self.score(holdout=True)
        write_object(folder.holdout, json.dumps(result, indent=1).encode() + b"\n")
        return result


@dataclass(frozen=True)
class WorkersRun(Run):
    """A run whose trainer has an executor: a `trainers.executor.Executor`."""

    def gather_(self) -> None:
        """Copy the workers' state into the state tree."""
        self.trainer.executor.gather_()

    def elsewhere(self) -> int:
        """Return the private bytes of the workers on this machine."""
        return private_bytes(self.trainer.executor.pids)

    def exchange(self) -> Mapping[str, Any]:
        """Return the ledger's record of the workers; see `Run.exchange`."""
        record: Mapping[str, Any] = self.trainer.executor.exchange_()
        return record

    def machines(self) -> Collection[str]:
        """Return the arithmetics of the workers."""
        arithmetics: Collection[str] = self.trainer.executor.machines
        return arithmetics

    def close(self) -> None:
        """End the workers."""
        self.trainer.executor.close()


@dataclass(frozen=True)
class OnPolicyRun(Run):
    """A run of PPO, whatever it collects in: a trainer of `trainers.on_policy`."""

    @cached_property
    def trained(self) -> str:
        """Name of the trained policy."""
        return recipe_of_config(self.config).trained

    def weights(self) -> Collection[Tensor]:
        """Return policy and critic, and the statistics of observations."""
        weights: Collection[Tensor] = self.trainer.run.learner.weights
        return weights

    def alarms(self, round_: int, metrics: Mapping[str, float]) -> Sequence[Alarm]:
        """Return alarms about numbers and weights that are not finite, and about updates that were left out."""
        config, largest = self.config.learner, float(self.trainer.run.learner.block.abs().max())
        return learner_alarms(round_, self.trained, largest, metrics, config.epochs * config.minibatches)

    def too_early(self) -> str:
        """Return why a score would say nothing yet; empty once the policy has learned."""
        round_name = recipe_of_config(self.config).layout.round
        return (
            ""
            if self.trainer.progress.round
            else f"no {round_name} has ended yet, so the {self.trained} has learned nothing"
        )


def part_efforts(profile: Profile) -> dict[str, Effort]:
    """Return the effort of each part of a step in this round, by which a part that slows down is named.

    Empty without steps. The names say that they are parts: their seconds are in those of a phase already.
    """
    if not profile.steps:
        return {}
    return {
        f"{part} (a part of each step)": Effort(profile.wall[part], profile.cpu[part], profile.steps, None)
        for part in profile.parts
    }
