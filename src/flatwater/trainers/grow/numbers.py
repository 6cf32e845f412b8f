"""The numbers of a round, read from the device once, when the round is settled."""

from typing import Any

import torch

from flatwater.algorithms.ppo import read_learner_
from flatwater.envs.growing.spaces import Operation
from flatwater.envs.growing.stages import Stage
from flatwater.rollouts.block import Rollout
from flatwater.trainers.grow.state import Grow, Setup


def read_numbers_(setup: Setup, run: Grow) -> dict[str, float]:
    """Named numbers of the round that is complete. Clears the sums that the learner keeps over a round."""
    numbers = _training(run.rollout) | read_learner_(run.learner) | {"updates": float(run.learner.updates)}
    numbers |= {f"evaluation/{name}": float(returns.double().mean()) for name, returns in run.scores.baselines.items()}
    if run.progress.round % setup.config.evaluation.every == 0:
        policy = run.scores.policy.double().cpu()
        numbers |= {"evaluation/policy": float(policy.mean()), "evaluation/deviation": float(policy.std(correction=0))}
    return numbers


def _training(rollout: Rollout) -> dict[str, float]:
    """The round's episodes, as they were explored."""
    returns = rollout["reward"].sum(0).double().cpu()
    operation = rollout["action"][..., 0].flatten().cpu()
    shares = torch.bincount(operation, minlength=len(Operation)) / len(operation)
    missed, target = (rollout["returns"] - rollout["value"]).double().cpu(), rollout["returns"].double().cpu()
    return {
        "return/mean": float(returns.mean()),
        "return/max": float(returns.max()),
        "return/min": float(returns.min()),
        "return/deviation": float(returns.std(correction=0)),
        "host/accuracy": float(rollout["accuracy"][-1].double().mean()),
        "host/fossilised": float((rollout["stage"][-1] == Stage.FOSSILISED).double().sum(1).mean()),
        "host/rollbacks": float(rollout["rolled_back"].sum()),
        **{f"operation/{op.name.lower()}": float(share) for op, share in zip(Operation, shares, strict=True)},
        "critic/explained": 1 - float(missed.var(correction=0) / target.var(correction=0).clamp(min=1e-12)),
    }


def episodes_record(run: Grow) -> dict[str, Any]:
    """The round's episodes, a number for each environment: seed, return, accuracy at the end, operations."""
    rollout = run.rollout
    operation = rollout["action"][..., 0]
    return {
        "seed": run.seeds.tolist(),
        "return": rollout["reward"].sum(0).tolist(),
        "accuracy": rollout["accuracy"][-1].tolist(),
        **{op.name.lower(): (operation == op).sum(0).tolist() for op in Operation},
        "fossilised": (rollout["stage"][-1] == Stage.FOSSILISED).sum(1).tolist(),
    }
