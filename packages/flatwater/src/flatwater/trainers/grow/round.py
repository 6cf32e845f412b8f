"""On-policy training of a policy that grows networks: the trainer, and the numbers of a round."""

from typing import Any

import torch

from flatwater.envs.growing.spaces import Operation
from flatwater.envs.growing.stages import SlotStage
from flatwater.rollouts.block import Rollout
from flatwater.trainers import on_policy
from flatwater.trainers.grow.collect import PoolEvaluator, collect_
from flatwater.trainers.grow.executor import GroupExecutor, LocalGroupExecutor
from flatwater.trainers.grow.state import GrowSetup, GrowState
from flatwater.trainers.loop import Trainer

GrowTrainer = Trainer[GrowSetup, GrowState]


def local_executor(setup: GrowSetup, run: GrowState) -> LocalGroupExecutor:
    """Return an executor that plays the run's episodes in this process."""
    return LocalGroupExecutor(setup, run.learner, run.envs, run.memory, setup.config.groups)


def build_trainer(setup: GrowSetup, run: GrowState, executor: GroupExecutor | None = None) -> GrowTrainer:
    """Return the trainer of a run, whose phases write into the state tree.

    Args:
        setup: constants of the run.
        run: state tree of the run.
        executor: executor of its episodes; by default this process.
    """
    pool_executor = executor or local_executor(setup, run)
    evaluator = PoolEvaluator(setup, run, pool_executor)
    phases = on_policy.on_policy_phases(
        setup,
        run.progress,
        evaluator,
        steps=setup.config.env.steps,
        collect_=lambda t: collect_(setup, run, pool_executor, t),
        learn_=on_policy.bind_learning(setup, run),
    )
    return Trainer(setup, run, phases, settle_=lambda: read_numbers_(setup, run, evaluator))


def read_numbers_(setup: GrowSetup, run: GrowState, evaluator: PoolEvaluator) -> dict[str, float]:
    """Return the metrics of the round that was completed last, by name, and clear the learner's sums."""
    numbers = _training_numbers(run.rollout) | on_policy.read_numbers_(setup, run, evaluator)
    numbers["updates"] = float(run.learner.updates)
    if run.progress.round % setup.config.evaluation.every == 0:
        numbers["evaluation/deviation"] = float(run.scores.policy.double().std(correction=0))
    return numbers


def _training_numbers(rollout: Rollout) -> dict[str, float]:
    """Return the metrics of the round's training episodes: returns, hosts, and shares of the operations.

    Hosts are counted as they are after the last step, the row -1.
    """
    returns = rollout["reward"].sum(0).double().cpu()
    operation = rollout["action"][..., 0].flatten().cpu()  # the first head of an action
    shares = torch.bincount(operation, minlength=len(Operation)) / len(operation)
    return {
        "return/mean": float(returns.mean()),
        "return/max": float(returns.max()),
        "return/min": float(returns.min()),
        "return/deviation": float(returns.std(correction=0)),
        "host/accuracy": float(rollout["accuracy"][-1].double().mean()),
        "host/fossilised": float((rollout["stage"][-1] == SlotStage.FOSSILISED).double().sum(1).mean()),
        "host/rollbacks": float(rollout["rolled_back"].sum()),
        **{f"operation/{op.name.lower()}": float(share) for op, share in zip(Operation, shares, strict=True)},
    }


def episodes_record(run: GrowState) -> dict[str, Any]:
    """Return lists with a number for each episode of the round: seed, return, final accuracy, counts of operations."""
    rollout = run.rollout
    operation = rollout["action"][..., 0]  # the first head of an action
    return {
        "seed": run.seeds.tolist(),
        "return": rollout["reward"].sum(0).tolist(),
        "accuracy": rollout["accuracy"][-1].tolist(),
        **{op.name.lower(): (operation == op).sum(0).tolist() for op in Operation},
        "fossilised": (rollout["stage"][-1] == SlotStage.FOSSILISED).sum(1).tolist(),
    }
