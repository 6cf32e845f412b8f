"""Every setting does something: a run with another value of it is another run."""

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
import torch

from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_trading.recipe.run import ErlRun

Trained = Callable[..., tuple[ErlRun, list[dict[str, float]]]]

DDPG = {"learner.algorithm": "ddpg"}
TD3 = {"learner.algorithm": "td3", "learner.td3.updates": 4}
SAC = {"learner.algorithm": "sac", "learner.sac.updates": 4}
PRIORITISED = DDPG | {"replay.prioritised": True}
STANDING = {"evolution.plateau_rounds": 1, "evolution.plateau_improvement": 1e6}  # every generation is on a plateau

REPLAYING = ("ddpg", "td3", "sac")
"""Algorithms that learn from a replay."""


def of_replaying(name: str) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Changes of the settings that they have alike."""
    beside = {"learner.algorithm": name, f"learner.{name}.updates": 4}
    noise = {
        "noise": (0.5, beside),
        "noise_decay": (0.5, beside),
        "noise_floor": (0.1, beside | {f"learner.{name}.noise_decay": 0.5}),
    }
    return ({} if name == "sac" else noise) | {
        "actor_lr": (1e-2, beside),
        "critic_lr": (1e-2, beside),
        "updates": (5, {"learner.algorithm": name}),
        "batch_size": (4, beside),
        "gamma": (0.9, beside),
        "tau": (0.5, beside),
    }


CHANGES: dict[str, tuple[Any, dict[str, Any]]] = {
    "seed": (5, {}),
    "observation_features": (["close", "rsi"], {}),
    "panel": ("synthetic:6x260:seed=1", {}),
    "splits.holdout_days": (50, {}),
    "splits.validation_days": (50, {}),
    "splits.days": (250, {}),
    "population.size": (5, {}),
    "evaluation.train_slices": (3, {}),
    "evaluation.validation_slices": (3, {}),
    "evaluation.lowest": (1, {}),
    "exploration.coefficient": (3.0, DDPG),
    "exploration.target": (3.0, DDPG),
    "exploration.day": (1.0, DDPG),
    "env.episode.context": (24, {}),
    "env.episode.trading_days": (14, {}),
    "env.episode.settlement_days": (6, {}),
    "population.tile": (1, DDPG),
    "env.trade.hold_days": (3, {}),
    "env.trade.purchases_a_day": (2, {}),
    "env.trade.coefficient_max": (2.5, {}),
    "env.trade.buy_threshold": (0.5, {}),
    "env.trade.target_low": (0.1, {"env.trade.target_high": 10.0}),
    "env.trade.target_high": (11.0, {"env.trade.target_low": 0.1}),
    "env.reward.loss_factor": (10.0, {}),
    "env.reward.inaction_penalty": (2.0, {}),
    "env.reward.no_trade_penalty": (77.0, {"env.trade.buy_threshold": 1.999}),
    "env.reward.credit": ("entry", DDPG),
    "env.account.cash": (5_000.0, {}),
    "env.account.position_share": (0.5, {}),
    "env.account.cost_bps": (50.0, {}),
    "env.account.slippage_bps": (50.0, {}),
    "env.account.half_spread_bps": (50.0, {}),
    "env.account.per_share": (0.5, {}),
    "env.account.least_commission": (100.0, {}),
    "env.account_observation": (True, DDPG),
    "net.encoder": ("lstm", {}),
    "net.channels": (6, {}),
    "net.hidden": (10, {}),
    "net.attention_heads": (1, {}),
    "learner.algorithm": ("ddpg", {}),
    "learner.weight_decay": (0.1, {}),
    "learner.grad_clip": (0.01, {}),
    "learner.micro_batches": (3, {}),
    "learner.autocast": ("bf16", {}),
    "learner.hindsight.actor_lr": (1e-2, {}),
    "learner.hindsight.updates": (5, {}),
    "learner.hindsight.batch_size": (4, {}),
    "learner.hindsight.stretches": (2, {}),
    **{f"learner.{name}.{field}": change for name in REPLAYING for field, change in of_replaying(name).items()},
    "learner.sac.temperature": (0.1, SAC),
    "learner.sac.temperature_lr": (0.1, SAC),
    "learner.sac.entropy": (-4.0, SAC | {"learner.sac.temperature_lr": 0.1}),
    "learner.td3.policy_delay": (1, TD3),
    "learner.td3.target_noise": (0.01, TD3),
    "learner.td3.target_noise_clip": (0.001, TD3),
    "replay.generations": (1, DDPG),
    "replay.warmup": (200, DDPG),
    "replay.prioritised": (True, DDPG),
    "replay.alpha": (0.1, PRIORITISED),
    "replay.beta": (1.0, PRIORITISED),
    "evolution.elite_share": (0.2, {}),
    "evolution.offspring_share": (0.1, {}),
    "evolution.tournament": (1, {}),
    "evolution.blend_low": (0.7, {}),
    "evolution.blend_high": (0.3, {}),
    "evolution.mutation_rate": (0.3, {}),
    "evolution.mutation_deviation": (0.04, {}),
    "evolution.mutation_rate_max": (0.21, STANDING),
    "evolution.mutation_deviation_max": (0.026, STANDING),
    "evolution.plateau_rounds": (1, {"evolution.plateau_improvement": 1e6}),
    "evolution.plateau_improvement": (1e6, {"evolution.plateau_rounds": 1}),
    "evolution.plateau_factor": (1.1, STANDING),
    "evolution.champion_injection": (1, {}),
}
"""Setting -> another value of it, and the settings beside which it counts."""

ELSEWHERE = {
    "trainer": "there is one choice; packages/flatwater/tests/runs/test_folder.py",
    "choice.by_validation": "as choice.hold_days",
    "choice.hold_days": "rules after the training; packages/trading/tests/recipe/test_purchase_rules.py",
    "choice.purchases_a_day": "as choice.hold_days",
    "choice.targets": "as choice.hold_days",
    "rounds": "how long, not what; packages/flatwater/tests/runs",
    "device": "packages/flatwater/tests/runs, and those marked gpu",
    "workers": "same numbers, more processes; packages/flatwater/tests/recipes/test_workers.py",
    "threads": "may change the last bits, or nothing",
    "budget": "packages/flatwater/tests/runs/test_budget.py and test_plan.py",
    "start_over_budget": "packages/flatwater/tests/runs/test_plan.py",
    "from_run": "whose members a run begins with; packages/trading/tests/recipe/test_extended.py",
    "any_machine": "how numbers are checked, and not what they are; packages/flatwater/tests/recipes/test_workers.py",
    "cluster": "same numbers, more machines; packages/flatwater/tests/recipes/test_workers.py",
    "benchmark": "what the result is set beside; packages/flatwater/tests/runs/test_evaluate.py",
    "learner.compile": "same numbers, faster; packages/flatwater/tests/algorithms and benchmarks",
    "checkpoints.every": "packages/flatwater/tests/runs/test_work_schedule.py",
    "ledger_every": "packages/flatwater/tests/runs/test_work_schedule.py",
    "on_round": "packages/flatwater/tests/runs",
    "checkpoints.keep": "packages/flatwater/tests/checkpoints",
    "checkpoints.keep_every": "packages/flatwater/tests/checkpoints",
    "checkpoints.shard_bytes": "packages/flatwater/tests/checkpoints",
    "mirror": "packages/flatwater/tests/runs/test_mirror_commands.py",
    "tag": "packages/flatwater/tests/runs/test_listing.py",
    "on_event": "packages/flatwater/tests/runs/test_events.py",
    "env.account.impact": "needs a panel with a volume; packages/trading/tests/market/test_costs.py",
    "env.account.impact_power": "needs a panel with a volume; packages/trading/tests/market/test_costs.py",
    "trackers": "packages/flatwater/tests/runs/test_trackers.py",
    "wandb.project": "packages/flatwater/tests/metrics/test_wandb.py",
    "wandb.entity": "packages/flatwater/tests/metrics/test_wandb.py",
    "wandb.mode": "packages/flatwater/tests/metrics/test_wandb.py",
}

QUICK = (
    "observation_features",
    "env.reward.loss_factor",
    "env.reward.inaction_penalty",
    "env.reward.credit",
    "env.account_observation",
    "net.encoder",
    "learner.algorithm",
    "learner.micro_batches",
    "learner.autocast",
    "replay.prioritised",
)


def settings(config: object, path: str = "") -> Iterator[str]:
    assert is_dataclass(config)
    for f in fields(config):
        value = getattr(config, f.name)
        yield from settings(value, f"{path}{f.name}.") if is_dataclass(value) else (f"{path}{f.name}",)


def test_no_setting_is_forgotten_here() -> None:
    assert {*settings(ErlRunConfig())} == {*CHANGES, *ELSEWHERE}
    assert {*QUICK} <= {*CHANGES}


def outcome(train_run: Trained, changes: dict[str, Any]) -> tuple[list[dict[str, float]], list[tuple[int, ...]], bytes]:
    composition, rounds = train_run(3, changes)
    learner = composition.trainer.run.learner
    assert learner.actor.isfinite().all()
    assert all(rows.isfinite().all() for rows in learner.inherited)
    assert learner.tally.updates > 0
    return rounds, [tuple(learner.actor.shape)], learner.actor.numpy().tobytes()


def works(name: str, train_run: Trained) -> None:
    value, beside = CHANGES[name]
    assert outcome(train_run, beside | {name: value}) != outcome(train_run, beside)


@pytest.mark.long
@pytest.mark.few(3)
@pytest.mark.parametrize("name", QUICK)
def test_the_options_of_the_reference_work(name: str, train_run: Trained) -> None:
    works(name, train_run)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*CHANGES} - {*QUICK}))
def test_every_setting_works(name: str, train_run: Trained) -> None:
    works(name, train_run)


def test_bf16_keeps_weights_and_moments_in_float32(train_run: Trained) -> None:
    learner = train_run(2, {"learner.autocast": "bf16"})[0].trainer.run.learner
    assert learner.actor.dtype == learner.actor_adam.exp_avg.dtype == torch.float32


def test_a_penalty_on_losses_lowers_fitness_and_leaves_the_account_alone(train_run: Trained) -> None:
    """The same actions are played in the first generation, so only the rewards differ."""
    mild, harsh = (train_run(1, {"env.reward.loss_factor": factor})[1][0] for factor in (1.0, 10.0))
    assert harsh["fitness/mean"] < mild["fitness/mean"]
    assert {k: v for k, v in harsh.items() if k[:7] in {"account", "trades/"}} == {
        k: v for k, v in mild.items() if k[:7] in {"account", "trades/"}
    }


@pytest.mark.long
def test_credit_on_entry_pays_the_same_sum_on_other_days(train_run: Trained) -> None:
    late, early = (
        train_run(1, DDPG | {"env.reward.credit": when, "learner.ddpg.updates": 1})[0] for when in ("exit", "entry")
    )
    first, second = late.trainer.run, early.trainer.run
    assert first.replay is not None
    assert second.replay is not None
    assert torch.equal(first.replay.action, second.replay.action)
    assert not torch.equal(first.replay.reward, second.replay.reward)
    torch.testing.assert_close(first.scores.fitness, second.scores.fitness, rtol=1e-5, atol=1e-3)
