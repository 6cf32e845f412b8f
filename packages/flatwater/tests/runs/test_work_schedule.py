"""Costly records are kept as often as their last cost allows, and nothing that is trained depends on when."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from small_runs import SMALL_PPO

import flatwater as fw
from flatwater.checkpoints.catalogue import list_checkpoints
from flatwater.runs.recorder import Round
from flatwater.runs.work_schedule import FIRST_ROUNDS, MAXIMUM_GAP_SECONDS, TIME_SHARE, WorkSchedule


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def due_rounds(schedule: WorkSchedule, clock: Clock, *, rounds: int, seconds: float, cost: float) -> list[int]:
    due = []
    for round_ in range(1, rounds + 1):
        clock.now += seconds
        if schedule.is_due_(round_):
            due.append(round_)
            with schedule.measure_cost():
                clock.now += cost
    return due


@pytest.mark.parametrize("seconds", [0.01, 0.2, 3.0])
def test_the_work_takes_its_share_after_the_first_rounds(seconds: float) -> None:
    clock = Clock()
    due = due_rounds(WorkSchedule(10_000, clock=clock), clock, rounds=10_000, seconds=seconds, cost=0.02)
    assert due[:FIRST_ROUNDS] == [*range(1, FIRST_ROUNDS + 1)]
    assert due[-1] == 10_000
    assert 0.02 * len(due) <= 1.1 * TIME_SHARE * clock.now + 0.02 * (FIRST_ROUNDS + 1)  # and the last


def test_no_pause_is_longer_than_the_bound_whatever_the_work_costs() -> None:
    clock = Clock()
    due = due_rounds(WorkSchedule(200, clock=clock), clock, rounds=200, seconds=1.0, cost=5.0)
    assert max(after - before for before, after in pairwise(due)) <= MAXIMUM_GAP_SECONDS
    clock = Clock()
    assert due_rounds(WorkSchedule(50, clock=clock), clock, rounds=50, seconds=MAXIMUM_GAP_SECONDS, cost=9.0) == [
        *range(1, 51)
    ]


def test_given_rounds_are_obeyed() -> None:
    clock = Clock()
    assert due_rounds(WorkSchedule(10, 3, clock=clock), clock, rounds=10, seconds=99.0, cost=0.0) == [3, 6, 9, 10]
    lasting = due_rounds(WorkSchedule(20, always_every=5, clock=clock), clock, rounds=20, seconds=0.0, cost=1.0)
    assert lasting == [1, 2, 3, 4, 5, 10, 15, 20]


def recorded(run: Path, file: str) -> list[int]:
    return [json.loads(line)["round"] for line in (run / file).read_text().splitlines()]


def test_numbers_are_those_of_a_run_that_keeps_everything_each_round(tmp_path: Path) -> None:
    sparse = fw.train("ppo", run=tmp_path / "sparse", rounds=12, **SMALL_PPO)
    whole = fw.train(
        "ppo",
        run=tmp_path / "whole",
        rounds=12,
        ledger_every=1,
        checkpoints={"every": 1, "keep": 99},
        **SMALL_PPO,
    )
    last, last_whole = (list_checkpoints(run.path / "checkpoints")[-1] for run in (sparse, whole))
    assert {leaf.path: leaf.sha256 for leaf in last.leaves} == {leaf.path: leaf.sha256 for leaf in last_whole.leaves}
    for name in ("train/policy_loss", "return/mean", "agent_steps"):
        assert str(sparse.metrics[name]) == str(whole.metrics[name])
    assert recorded(sparse.path, "metrics.jsonl") == recorded(whole.path, "metrics.jsonl") == [*range(1, 13)]
    assert recorded(whole.path, "ledger.jsonl") == [*range(1, 13)]
    assert [manifest.round for manifest in list_checkpoints(whole.path / "checkpoints")] == [*range(13)]
    assert {1, 2, 3, 4, 12} <= set(recorded(sparse.path, "ledger.jsonl"))


@pytest.mark.long
def test_what_on_round_raises_finds_the_round_saved(tmp_path: Path) -> None:
    def fail(round_: Round) -> None:
        if round_.number == 9:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fw.train("ppo", run=tmp_path / "run", rounds=12, on_round=fail, **SMALL_PPO)
    assert list_checkpoints(tmp_path / "run" / "checkpoints")[-1].round == 9
    assert fw.resume(tmp_path / "run", quiet=True).finished
