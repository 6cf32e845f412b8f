"""The runs of `bench_contract.py`: with the contract, without it, and with its CPU seconds counted."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from sizes import config_of

from flatwater.algorithms.config import DDPGConfig, TD3Config
from flatwater.memory.ledger import Statement
from flatwater.memory.planner import Plan
from flatwater.replay.config import RowReplayConfig
from flatwater.runs import recorder, session
from flatwater.runs.memory_contract import MemoryContract
from flatwater_trading.recipe import plan
from flatwater_trading.recipe import run as erl_run
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_trading.training.learner import LearnerConfig

FLAT_ROUNDS, WINDOW_ROUNDS = 60, 40
WINDOW_BUDGET = "800MiB"


def small() -> ErlRunConfig:
    """A run of a tenth of a second a generation."""
    config = config_of("S", rounds=FLAT_ROUNDS)
    episode = replace(config.env.episode, context=30, trading_days=30, settlement_days=5)
    return replace(
        config,
        ledger_every=1,
        panel="synthetic:8x400",
        splits=replace(config.splits, holdout_days=60, validation_days=60),
        env=replace(config.env, episode=episode),
        learner=LearnerConfig(algorithm="ddpg", ddpg=DDPGConfig(updates=4, batch_size=16)),
        replay=RowReplayConfig(generations=1, warmup=200),
    )


def recipes() -> dict[str, ErlRunConfig]:
    """Flat runs that differ in what they keep and compute."""
    base = small()
    return {
        "ddpg": base,
        "td3": replace(base, learner=LearnerConfig(algorithm="td3", td3=TD3Config(updates=4, batch_size=16))),
        "prioritised": replace(base, replay=replace(base.replay, prioritised=True)),
        "account": replace(base, env=replace(base.env, account_observation=True)),
        "bf16": replace(base, learner=replace(base.learner, autocast="bf16")),
    }


def windows_config() -> ErlRunConfig:
    """A run that, where its replay stores windows (`stored_windows.py`), reaches its budget long before it is full."""
    return replace(
        small(),
        rounds=WINDOW_ROUNDS,
        panel="synthetic:40x500",
        budget=WINDOW_BUDGET,
        start_over_budget=True,
        replay=RowReplayConfig(generations=WINDOW_ROUNDS, warmup=200),
    )


class NoContract(MemoryContract):
    """Weighs nothing, watches nothing."""

    def __post_init__(self) -> None:
        """Take no base."""

    def is_over_budget_(self) -> bool:
        """Never."""
        return False

    def settle_round_(self, round_: int, efforts: Any) -> tuple[Statement, list[Any]]:  # noqa: ANN401, ARG002
        """A statement of nothing."""
        return Statement(1, 0, {}, 0, None), []

    def record(self, statement: Statement, efforts: Any, *, envs: int, peak: int) -> dict[str, Any]:  # noqa: ANN401, ARG002
        """Its record."""
        counts = (
            "private",
            "proportional",
            "peak",
            "processes",
            "workers",
            "mapped",
            "envs",
            "threads",
            "files",
            "budget",
        )
        return statement.to_json() | dict.fromkeys(counts, 0) | {"exchange": {}, "cuda": None, "phases": {}}


def without_contract_() -> None:
    """Take the contract out of this process's runs."""
    nothing = Plan(owners={}, transients={}, base_bytes=0, limits={"none": 1 << 60})
    vars(erl_run)["plan_erl"] = lambda *_, **__: nothing
    assert "MemoryContract" in vars(recorder)
    vars(recorder)["MemoryContract"] = NoContract


class Clock:
    """CPU seconds spent inside of some functions, forks of theirs included."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.seconds = 0.0

    def around(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function so that its calls are counted."""

        def count_seconds(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
            began = cpu_seconds()
            try:
                return work(*arguments, **named)
            finally:
                self.seconds += cpu_seconds() - began

        return count_seconds


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def count_contract_() -> Clock:
    """Count the contract's share of this process's runs."""
    clock = Clock()
    vars(erl_run)["plan_erl"] = clock.around(plan.plan_erl)
    for name in ("__post_init__", "is_over_budget_", "settle_round_", "record"):
        setattr(MemoryContract, name, clock.around(getattr(MemoryContract, name)))
    return clock


def train_session(config: ErlRunConfig, folder: Path) -> dict[str, Any]:
    """Run a session silently; what it and its ledger say."""
    began = cpu_seconds()
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        outcome = session.start_new_run(config, folder, Console(file=nowhere))
    spent = cpu_seconds() - began
    files = outcome.folder
    findings = [json.loads(line) for line in files.findings.read_text().splitlines()]
    ledger = [json.loads(line) for line in files.ledger.read_text().splitlines()]
    planned = json.loads(files.plan.read_text())
    return {
        "exit": outcome.exit_code,
        "cpu": spent,
        "findings": findings,
        "resident": [line["resident"] for line in ledger],
        "unaccounted": [line["unaccounted"] for line in ledger],
        "owners": planned["owners"],
        "budget": planned["budget_bytes"],
    }
