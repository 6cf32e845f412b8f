"""One round: play the baselines (once), collect, update, evaluate (now and then); then the loop settles it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from flatwater.algorithms.ppo import compute_advantages_, loss_weights, make_update, read_learner_
from flatwater.algorithms.schedules import scheduled_numbers
from flatwater.envs.growing.baselines import BASELINES
from flatwater.envs.growing.spaces import Operation
from flatwater.envs.growing.stages import SlotStage
from flatwater.nets.policy import update_running_stats_
from flatwater.rollouts.block import Rollout
from flatwater.trainers.grow.collect import collect_, leave_alone_, play_held_out_, steps_of_all
from flatwater.trainers.grow.executor import POLICY, GroupExecutor, LocalGroupExecutor
from flatwater.trainers.grow.state import GrowSetup, GrowState
from flatwater.trainers.loop import Phase, Progress


@dataclass(frozen=True)
class GrowTrainer:
    """The phases of a round over a run's state, as the loop drives them."""

    setup: GrowSetup
    run: GrowState
    phases: Sequence[Phase]
    crew: GroupExecutor

    @property
    def progress(self) -> Progress:
        """Place of the run in its rounds."""
        return self.run.progress

    def settle_(self) -> dict[str, float]:
        """Return the round's numbers."""
        return read_numbers_(self.setup, self.run)


def local_executor(setup: GrowSetup, run: GrowState) -> LocalGroupExecutor:
    """Return this process as the crew of a run."""
    return LocalGroupExecutor(setup, run.learner, run.envs, run.memory, setup.config.groups)


def build_trainer(setup: GrowSetup, run: GrowState, crew: GroupExecutor | None = None) -> GrowTrainer:
    """Bind the phases to the state.

    Args:
        setup: constants of the run.
        run: its state.
        crew: processes that play its episodes; this process by default.
    """
    config, whole_steps = setup.config, steps_of_all(setup)
    crew = crew or local_executor(setup, run)
    learner_parts = config.learner, setup.student, run.learner
    update_ = make_update(
        *learner_parts,
        rollout=run.rollout,
        begun=run.begun,
        weighing=loss_weights(setup.device),
        progress=lambda: config.learner.progress(run.progress.round),
    )
    updates = config.learner.epochs * config.learner.minibatches

    def baselines_due() -> int:
        return (1 + len(BASELINES)) * whole_steps if run.progress.round == 0 else 0

    def evaluation_due() -> int:
        return whole_steps if (run.progress.round + 1) % config.evaluation.every == 0 else 0

    phases = (
        Phase("baselines", baselines_due, lambda number: play_baselines_(setup, run, crew, number)),
        Phase("collect", lambda: config.env.steps, lambda t: collect_(setup, run, crew, t)),
        Phase("update", lambda: updates, lambda number: learn_(setup, run, update_, number)),
        Phase("evaluate", evaluation_due, lambda number: evaluate_(setup, run, crew, number)),
    )
    return GrowTrainer(setup, run, phases, crew)


def play_baselines_(setup: GrowSetup, run: GrowState, crew: GroupExecutor, number: int) -> None:
    """Take one step of the baselines: hosts left alone first, whose accuracy enters the reward, then each baseline.

    Args:
        setup: constants of the run.
        run: its state tree.
        crew: computes the pool of hosts.
        number: step, counted through the hosts left alone and then the baselines, `steps_of_all` each.
    """
    turn, step = divmod(number, steps_of_all(setup))
    if turn == 0:
        # First: the reward of every later episode compares a host with these.
        leave_alone_(setup, run, crew, step)
        return
    name = list(BASELINES)[turn - 1]
    play_held_out_(setup, run, crew, name, step)


def learn_(setup: GrowSetup, run: GrowState, update_: Callable[[int], None], number: int) -> None:
    """Update once, of epochs * minibatches updates in a round.

    Advantages are computed before the first update; observations are merged into the statistics after the last.

    Args:
        setup: constants of the run.
        run: state tree: its rollout is read, the learner updated.
        update_: takes the update of a number.
        number: number of the update in the round; 0 is the first.
    """
    config = setup.config.learner
    if number == 0:
        compute_advantages_(run.rollout, config)
    update_(number)
    # After the last update: other statistics in between would make another policy of the one that acted.
    if number == config.epochs * config.minibatches - 1:
        update_running_stats_(run.learner.statistics, run.rollout["obs"])


def evaluate_(setup: GrowSetup, run: GrowState, crew: GroupExecutor, number: int) -> None:
    """Take one step of the policy's held-out episodes.

    Args:
        setup: constants of the run.
        run: state tree; the policy's returns are updated.
        crew: computes the pool of hosts.
        number: step, counted through all turns of the pool.
    """
    play_held_out_(setup, run, crew, POLICY, number)


def read_numbers_(setup: GrowSetup, run: GrowState) -> dict[str, float]:
    """Return named numbers of the round that is complete, and clear the learner's sums."""
    numbers = _training(run.rollout) | read_learner_(run.learner) | {"updates": float(run.learner.updates)}
    numbers |= scheduled_numbers(setup.config.learner, run.progress.round - 1)
    numbers |= {f"evaluation/{name}": float(returns.double().mean()) for name, returns in run.scores.baselines.items()}
    if run.progress.round % setup.config.evaluation.every == 0:
        policy = run.scores.policy.double().cpu()
        numbers |= {"evaluation/policy": float(policy.mean()), "evaluation/deviation": float(policy.std(correction=0))}
    return numbers


def _training(rollout: Rollout) -> dict[str, float]:
    """Return numbers of the round's training episodes."""
    returns = rollout["reward"].sum(0).double().cpu()
    operation = rollout["action"][..., 0].flatten().cpu()
    shares = torch.bincount(operation, minlength=len(Operation)) / len(operation)
    residual, target = (rollout["returns"] - rollout["value"]).double().cpu(), rollout["returns"].double().cpu()
    return {
        "return/mean": float(returns.mean()),
        "return/max": float(returns.max()),
        "return/min": float(returns.min()),
        "return/deviation": float(returns.std(correction=0)),
        "host/accuracy": float(rollout["accuracy"][-1].double().mean()),
        "host/fossilised": float((rollout["stage"][-1] == SlotStage.FOSSILISED).double().sum(1).mean()),
        "host/rollbacks": float(rollout["rolled_back"].sum()),
        **{f"operation/{op.name.lower()}": float(share) for op, share in zip(Operation, shares, strict=True)},
        # 1e-12 where all returns are equal.
        "critic/explained": 1 - float(residual.var(correction=0) / target.var(correction=0).clamp(min=1e-12)),
    }


def episodes_record(run: GrowState) -> dict[str, Any]:
    """Return the round's episodes, a number per environment: seed, return, accuracy at the end, operations."""
    rollout = run.rollout
    operation = rollout["action"][..., 0]
    return {
        "seed": run.seeds.tolist(),
        "return": rollout["reward"].sum(0).tolist(),
        "accuracy": rollout["accuracy"][-1].tolist(),
        **{op.name.lower(): (operation == op).sum(0).tolist() for op in Operation},
        "fossilised": (rollout["stage"][-1] == SlotStage.FOSSILISED).sum(1).tolist(),
    }
