"""The base classes of runs: what the loop, the ledger, checkpoints and results need of a run of any recipe."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from flatwater.algorithms.learner import Learner
from flatwater.memory.ledger import Effort
from flatwater.memory.planner import Plan
from flatwater.metrics.alarms import Alarm, learner_alarms
from flatwater.recipe import recipe_of_config
from flatwater.rundir.layout import RunFolder
from flatwater.rundir.results import ROUND, write_json
from flatwater.runs.machine import find_device
from flatwater.runs.warm_start import take_weights_
from flatwater.trainers.logged_numbers import OnEpisode
from flatwater.trainers.profile import Profile
from flatwater_watch.errors import require
from flatwater_watch.meters.process import private_bytes

if TYPE_CHECKING:  # most runs have no workers
    from flatwater.runs.team import WorkerPool


@dataclass(frozen=True)
class Run(ABC):
    """A run, ready to train or to be restored. Recipes define `describe` and `score`; other methods have defaults."""

    config: Any
    """Settings of the run: a RunConfig with settings of its recipe."""
    plan: Plan
    """Planned memory of the run."""
    trainer: Any
    """A `trainers.loop.Trainer`: the state tree, and the phases of a round."""
    doubts: list[str] = field(default_factory=list, kw_only=True)
    """Sentences that say why the run cannot be resumed bit for bit; empty if it can."""
    weights_notes: list[str] = field(default_factory=list, kw_only=True)
    """A sentence about the weights that the run took from another run; empty if it took none."""

    @property
    def device(self) -> torch.device:
        """Device that the run computes on."""
        return find_device(self.config.device)

    @property
    def location_settings(self) -> frozenset[str]:
        """Names of settings with the paths of data: a resume may change them, as data are compared by content."""
        return frozenset()

    @abstractmethod
    def describe(self) -> str:
        """Return a line that names the policy and its environment or data."""

    def about(self) -> Sequence[str]:
        """Return further lines to print at the start: about observations, the split of the data, and decisions."""
        return [*self.weights_notes, *self.plan.notes]

    def weights(self) -> Collection[Tensor]:
        """Return the leaves that `--from-run` copies: networks, and statistics that normalise their inputs."""
        return ()

    def data(self) -> Mapping[str, Any]:
        """Return facts that identify the data; a checkpoint is resumed only with equal facts."""
        return {}

    def begin_(self) -> None:
        """Prepare a new run before its first round: take the weights of another run, if the settings name one."""
        if self.config.from_run is not None:
            self.weights_notes.append(take_weights_(self.trainer.run, self.weights(), self.config.from_run))

    def rebuild_(self) -> None:  # noqa: B027  (most checkpoints leave nothing out)
        """Compute the leaves that a checkpoint leaves out, after a restore; if that is inexact, add to `doubts`."""

    def gather_(self) -> None:  # noqa: B027  (most runs keep everything in their state)
        """Copy state that workers or worlds keep into the state tree, before a checkpoint is saved."""

    def worker_bytes(self) -> int:
        """Return the private bytes of RAM of the run's worker processes on this machine."""
        return 0

    def measure_exchange_(self) -> Mapping[str, Any]:
        """Return the ledger's record of the workers on all machines; empty if there are none. Call it once a round.

        Sizes are in bytes:

        - `wire`: all that was sent to workers and received from them so far.
        - `arrays`: the arrays among that.
        - `moved`: the arrays since the last call.
        - `stores`: content of the cluster's object stores.
        - `private`: private bytes of all workers.
        - `lost`: number of workers that were replaced since the last call; not in the first round.
        - `workers`: a record of each worker: `machine`, its name; `private`; `proportional`, with a fair part of shared
          pages; `planned`, private bytes between two steps; `owned`, its state by group; and `unplanned`, planned minus
          held bytes of each leaf that differs from the plan.
        """
        return {}

    def machines(self) -> Collection[str]:
        """Return the arithmetics of the workers (`runs.fingerprint.arithmetic_hash`), where they may differ."""
        return ()

    def close(self) -> None:  # noqa: B027  (most runs hold nothing else)
        """End the run's other processes, and release its devices."""

    def listen_(self, on_episode: OnEpisode | None) -> None:
        """Register the user's function that is called after each finished episode; without episodes, refuse it.

        Args:
            on_episode: the function; None if the user has none.

        Raises:
            ConfigError: the run reports no episodes.
        """
        # `WorldRun` passes a function to this method only if its state has no leaves for the function's numbers.
        expected = "none: a run that was begun without it has no room for its numbers. Begin a new run with it"
        require(on_episode is None, "on_episode", on_episode, expected)

    def take_logged_(self) -> Mapping[str, float]:
        """Return the numbers that the user's functions have logged since the last call, and reset them."""
        return {}

    def alarms(self, round_: int, metrics: Mapping[str, float]) -> Sequence[Alarm]:  # noqa: ARG002  (for recipes that check them)
        """Return alarms about the round's numbers."""
        return ()

    def parts(self) -> Mapping[str, Effort]:
        """Return the effort of each part of the round's phases, by name, if the trainer measures parts."""
        return {}

    def pace(self, efforts: Mapping[str, Effort]) -> Mapping[str, float]:
        """Return the metric `train/sps`: the loop's steps a second in this round; 0 if no time was measured.

        Args:
            efforts: efforts of the round, by phase; those that are not the loop's phases, such as saves, do not count.
        """
        phase_efforts = [efforts[phase.name] for phase in self.trainer.phases if phase.name in efforts]
        seconds = sum(effort.seconds for effort in phase_efforts)
        return {"train/sps": sum(effort.steps for effort in phase_efforts) / seconds if seconds else 0.0}

    def record(self) -> Mapping[str, Any]:
        """Return the round's line in the recipe's own file, such as the agent in each slot."""
        return {}

    def live_envs(self) -> int:
        """Return the number of environments alive in this process, which must stay constant."""
        return 0

    def reason_against_scoring(self) -> str:
        """Return why the run cannot be scored yet, as a sentence; empty if it can."""
        return "" if self.trainer.progress.round else "no round has ended yet, so nothing was learned"

    @abstractmethod
    def score(self, *, holdout: bool) -> dict[str, Any]:
        """Return the score of the trained policy beside the baselines, as plain values for JSON.

        Args:
            holdout: whether to score on the holdout, on which nothing was learned or chosen, instead of validation.
        """

    def with_round(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Return a result with the round to which it belongs: the run may go further than its last result."""
        return {**result, ROUND: self.trainer.progress.round}

    def write_result(self, folder: RunFolder) -> None:
        """Score the run on validation data, and write `result.json`.

        Raises:
            RunError: the disk is full or the folder read-only.
        """
        write_json(self.with_round(self.score(holdout=False)), folder.result)

    def write_holdout(self, folder: RunFolder) -> dict[str, Any]:
        """Score the run on the holdout, and write `holdout.json`. Returns the result.

        Raises:
            RunError: the disk is full or the folder read-only.
        """
        result = self.with_round(self.score(holdout=True))
        write_json(result, folder.holdout)
        return result


@dataclass(frozen=True)
class WorkersRun(Run):
    """A run whose phases this process computes, or worker processes, with the same bits."""

    workers: "WorkerPool | None" = field(default=None, kw_only=True)
    """The workers; None if this process computes alone."""

    def gather_(self) -> None:
        """Copy the workers' state into the state tree."""
        if self.workers is not None:
            self.workers.gather_()

    def worker_bytes(self) -> int:
        """Return the private bytes of the workers on this machine."""
        return 0 if self.workers is None else private_bytes(self.workers.pids)

    def measure_exchange_(self) -> Mapping[str, Any]:
        """Return the ledger's record of the workers; see `Run.measure_exchange_`."""
        return {} if self.workers is None else self.workers.measure_exchange_()

    def machines(self) -> Collection[str]:
        """Return the arithmetics of the workers."""
        return () if self.workers is None else self.workers.machines

    def close(self) -> None:
        """End the workers."""
        if self.workers is not None:
            self.workers.close()


@dataclass(frozen=True)
class OnPolicyRun(Run):
    """A run with an on-policy trainer (`trainers.on_policy`), which updates by PPO."""

    @cached_property
    def trained(self) -> str:
        """Name of the trained policy."""
        return recipe_of_config(self.config).trained

    @property
    def learners(self) -> Sequence[Learner]:
        """Learner of each policy; most runs have one."""
        return [self.trainer.run.learner]

    def weights(self) -> Collection[Tensor]:
        """Return policies and critics, and the statistics of observations."""
        return [weight for learner in self.learners for weight in learner.weights]

    def alarms(self, round_: int, metrics: Mapping[str, float]) -> Sequence[Alarm]:
        """Return alarms about numbers and weights that are not finite, and about skipped updates."""
        config = self.config.learner
        # By torch, whose maximum is NaN if a weight is NaN; Python's `max` may drop it.
        largest_weight = float(torch.stack([learner.block.abs().max() for learner in self.learners]).max())
        planned_updates = len(self.learners) * config.own.epochs * config.own.minibatches
        return learner_alarms(round_, self.trained, largest_weight, metrics, planned_updates)

    def reason_against_scoring(self) -> str:
        """Return why the run cannot be scored yet, as a sentence; empty once the first round has ended."""
        round_name = recipe_of_config(self.config).layout.round
        return (
            ""
            if self.trainer.progress.round
            else f"no {round_name} has ended yet, so the {self.trained} has learned nothing"
        )


def part_efforts(profile: Profile) -> dict[str, Effort]:
    """Return the effort of each part of a step in this round; empty if the round had no steps.

    Each name says that it is a part: the seconds of parts are also among those of phases.
    """
    if not profile.steps:
        return {}
    return {
        f"{part} (a part of each step)": Effort(
            seconds=profile.wall[part], cpu_seconds=profile.cpu[part], steps=profile.steps, peak=None
        )
        for part in profile.parts
    }
