"""The policy against the baselines on episodes that were never trained on, and each slot's life in them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from flatwater.envs.growing.baselines import BASELINES
from flatwater.envs.growing.spaces import BLUEPRINT, OPERATION, SLOT, Operation
from flatwater.envs.growing.stages import SlotStage
from flatwater.recipes.grow.lives import SlotHistory
from flatwater.trainers.grow.collect import player_noise
from flatwater.trainers.grow.executor import POLICY, GroupExecutor
from flatwater.trainers.grow.round import GrowTrainer, local_executor


@dataclass(frozen=True)
class GrowScore:
    """Results of the players, all on the same episodes."""

    first_seed: int
    episodes: int
    players: Mapping[str, Mapping[str, float]]
    """Named numbers of each player."""
    lives: SlotHistory
    """Action, results and stage of each slot: a row for each player, episode and step."""


def score_policy(trainer: GrowTrainer, first_seed: int) -> GrowScore:
    """Let the policy and each baseline play the episodes of one evaluation in the run's own pool.

    Args:
        trainer: a trainer between two rounds: its pool and memory are overwritten.
        first_seed: first of the episodes' env seeds.
    """
    # A score must not change the run: the random baseline draws from this generator, so its state is restored.
    rng = trainer.run.generators["held out"]
    previous_state = rng.get_state()
    tables = {player: record_episodes_(trainer, player, first_seed) for player in (POLICY, *BASELINES)}
    rng.set_state(previous_state)
    columns = list(next(iter(tables.values())))  # all players' tables have the same columns
    row_counts = {name: len(table["step"]) for name, table in tables.items()}
    return GrowScore(
        first_seed=first_seed,
        episodes=trainer.setup.config.evaluation_passes * trainer.setup.config.envs,
        players={name: player_means(table) for name, table in tables.items()},
        # A player's name stands in each of its rows.
        lives={"player": np.repeat(list(row_counts), list(row_counts.values()))}
        | {column: np.concatenate([table[column] for table in tables.values()]) for column in columns},
    )


def record_episodes_(trainer: GrowTrainer, player: str, first_seed: int) -> dict[str, np.ndarray[Any, Any]]:
    """Let a player play one evaluation in the run's pool, and return a row for each episode and step.

    Returns:
        Columns [episodes x steps] by name; those of slots are [episodes x steps, S]. Episodes are in the order of their
        seeds, each with its steps in order.
    """
    config, device = trainer.setup.config, trainer.setup.device
    executor = local_executor(trainer.setup, trainer.run)
    passes = []
    for number in range(config.evaluation_passes):
        seeds = first_seed + number * config.envs + torch.arange(config.envs, device=device)
        executor.begin_(seeds)
        passes.append([_step_(trainer, executor, player, seeds, t) for t in range(config.env.steps)])
    columns = {}
    for name in passes[0][0]:  # all steps have the same columns
        # A pass has a row of environments for each step: [E, steps, ...], then [E x steps, ...].
        tables = [np.stack([step[name] for step in steps], 1) for steps in passes]
        columns[name] = np.concatenate([table.reshape(-1, *table.shape[2:]) for table in tables])
    return columns


def _step_(
    trainer: GrowTrainer, executor: GroupExecutor, player: str, seeds: torch.Tensor, t: int
) -> dict[str, np.ndarray[Any, Any]]:
    """Take step `t` of a player's episodes; return copies of its columns on the CPU, a row for each environment.

    Args:
        trainer: the run whose policy plays.
        executor: computes the pool of hosts.
        player: the policy or a baseline.
        seeds: int64 [E], seed of each environment.
        t: number of the step in the episode.
    """
    results = executor.step_(player, player_noise(trainer.setup, trainer.run, player))
    action = results["action"]
    columns = {
        "env_seed": seeds,
        "step": torch.full_like(seeds, t),
        "operation": action[:, OPERATION],
        "slot": action[:, SLOT],
        "blueprint": action[:, BLUEPRINT],
        **{name: results[name] for name in ("success", "reward", "accuracy", "impaired", "stage", "alpha")},
    }
    # Copies: the columns of a step are views of the pool's state.
    return {name: column.cpu().numpy().copy() for name, column in columns.items()}


def player_means(table: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, float]:
    """Return means over a player's episodes: return, accuracy after the last step, and operations in an episode."""
    steps = int(table["step"].max()) + 1  # counted from 0
    returns = table["reward"].reshape(-1, steps).sum(1, dtype=np.float64)
    is_last = table["step"] == steps - 1
    accuracy = table["accuracy"][is_last].astype(np.float64)
    is_impaired = table["impaired"][is_last]

    def mean_count(operation: Operation) -> float:
        return float((table["success"] & (table["operation"] == operation)).sum() / len(returns))

    return {
        "return": float(returns.mean()),
        "deviation": float(returns.std()),
        "accuracy": float(accuracy.mean()),
        # NaN for both where no host is impaired: all hosts are of one kind.
        "accuracy_capable": _mean(accuracy[~is_impaired & is_impaired.any()]),
        "accuracy_impaired": _mean(accuracy[is_impaired]),
        "germinated": mean_count(Operation.GERMINATE),
        "pruned": mean_count(Operation.PRUNE),
        "fossilised": float((table["stage"][is_last] == SlotStage.FOSSILISED).sum() / len(returns)),
    }


def _mean(values: np.ndarray[Any, Any]) -> float:
    """Return the mean of the values; NaN without any."""
    return float(values.mean()) if len(values) else float("nan")
