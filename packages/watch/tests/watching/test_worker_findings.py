"""What grows in the workers of a program: found in each, summed by owner, and nothing else is changed."""

import json
import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from running import Watched, environment
from watched import LEAK, MIB

from flatwater_watch.agent import start_in_process
from flatwater_watch.agent.runner_protocol import FOLDER
from flatwater_watch.agent.spool import unwatched_summary
from flatwater_watch.faces.worker_findings import add_workers

WORKERS = """
import multiprocessing, sys, time

KEPT = []

def work(keeps, rounds):
    for _ in range(rounds):
        made = bytearray(500_000)
        if keeps:
            KEPT.append(made)
        time.sleep(0.05)

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    workers = [context.Process(target=work, args=(sys.argv[2] == "leaks", 100)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
"""


@pytest.mark.parametrize("how", ["fork", pytest.param("spawn", marks=pytest.mark.slow), "forkserver"])
def test_a_leak_in_workers_is_found_by_owner_and_line_and_summed(run_watched: Watched, how: str) -> None:
    ran = run_watched(WORKERS, how, "leaks")
    found = [each for each in ran.summary["findings"] if each["owner"].endswith("KEPT")]
    assert ran.code == 0, ran.stderr
    assert [each["verdict"] for each in found] == ["leak"], ran.stderr
    assert found[0]["made_at"]["line"] == 8
    assert "worker process" in found[0]["what"]
    assert len(ran.summary["workers"]) == 2
    assert not any(each["owner"] == "worker processes" for each in ran.summary["findings"])


@pytest.mark.slow
def test_workers_that_keep_nothing_have_no_findings(run_watched: Watched) -> None:
    ran = run_watched(WORKERS, "fork", "flat")
    assert (ran.summary["findings"], len(ran.summary["workers"])) == ([], 2), ran.stderr


SEEN = """
import multiprocessing, os, subprocess, sys

def seen(where):
    print(where, sorted(os.environ.items()), sys.path, sys.argv[1:], flush=True)

if __name__ == "__main__":
    seen("program")
    for how in ("fork", "spawn", "forkserver"):
        worker = multiprocessing.get_context(how).Process(target=seen, args=(how,))
        worker.start()
        worker.join()
    subprocess.run(["env"], check=True)
    seen("program")
"""


def test_workers_and_other_programs_see_the_environment_of_an_unwatched_run(
    tmp_path: Path, run_watched: Watched
) -> None:
    ran = run_watched(SEEN)
    plain = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=False, env=environment()
    )
    assert ran.code == plain.returncode == 0
    assert sorted(ran.stdout.splitlines()) == sorted(plain.stdout.splitlines())  # `env` prints in no order


def test_a_fork_that_the_watch_makes_is_no_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_in_process, "_agents", [])
    seat = start_in_process.ProcessAgent({FOLDER: str(tmp_path)})
    assert seat.leave_in_fork()
    seat = start_in_process.ProcessAgent({FOLDER: str(tmp_path)})
    seat._guard.thread = threading.get_ident()
    assert not seat.leave_in_fork()
    assert not seat.leave_in_fork(), "nor a fork of that fork"


def summary(**changes: Any) -> dict[str, Any]:
    """Of ten seconds of a program."""
    told = unwatched_summary("train.py", "") | {"unseen": [], "readings": 20, "seconds": 10.0, "steps": 10}
    return told | {"outcome": {"state": "flat", "bytes": 0, "known": [], "next": []}} | changes


def worker(ended_at: float = 100.0, rate: float = MIB, **changes: Any) -> dict[str, Any]:
    """Of ten seconds of a worker that leaks."""
    leak = replace(LEAK, unit="second", bytes_per_step=rate, interval=(rate / 2, rate * 2), limit_bytes=10_000 * MIB)
    grown = {"resident_growth_bytes": round(10 * rate), "resident_bytes": 100 * MIB, "ended_at": ended_at}
    return summary(findings=[leak.to_json()]) | grown | changes


def test_workers_that_live_at_once_are_a_sum_and_those_after_each_other_are_not() -> None:
    at_once = add_workers(summary(), [worker(100.0), worker(101.0)])
    in_turn = add_workers(summary(), [worker(100.0), worker(111.0)])
    assert [found["bytes_per_step"] for found in at_once["findings"]] == [2 * MIB]
    assert "2 worker processes, 1.00 MiB each" in at_once["findings"][0]["what"]
    assert [found["bytes_per_step"] for found in in_turn["findings"]] == [MIB]
    assert at_once["outcome"]["state"] == "grows"
    assert at_once["explained_share"] == 1.0
    settled = {"state": "settled", "bytes": 90 * MIB, "known": [], "next": [], "holders": "train.tile (full)"}
    joint = add_workers(summary(outcome=settled), [worker()])["outcome"]
    assert (joint["bytes"], joint["holders"]) == (0, ""), "it is over"


def succeeding(*sizes: float, owner: str = LEAK.owner) -> list[dict[str, Any]]:
    """Workers that leak, each begun when the one before had ended, by the MiB of an owner at their ends."""
    return [
        worker(100.0 + 11 * number, held={owner: round(size * MIB)}, resident_growth_bytes=round(size * MIB))
        for number, size in enumerate(sizes)
    ]


@pytest.mark.parametrize("owner", [LEAK.owner, "play.BUFFER"])
def test_what_replaced_workers_give_back_is_no_finding(owner: str) -> None:
    assert add_workers(summary(), succeeding(10, 9, 11, 10, owner=owner))["findings"] == []


@pytest.mark.parametrize(
    "workers",
    [
        succeeding(10, 10),  # too few to know a bound
        succeeding(4, 8, 12, 16),
        succeeding(10, 1, 1, 1),  # one that is unlike the others
        [*succeeding(1, 1, 1, 1), worker(133.0, seconds=43.0, held={LEAK.owner: 40 * MIB})],  # one is not replaced
    ],
)
def test_workers_that_hold_more_than_replaced_ones_are_told(workers: list[dict[str, Any]]) -> None:
    assert [found["owner"] for found in add_workers(summary(), workers)["findings"]] == [LEAK.owner]


def test_replaced_workers_are_told_if_the_program_sees_all_of_them_grow() -> None:
    pages = replace(LEAK, verdict="native", owner="worker processes", holders=(), unit="second", bytes_per_step=MIB)
    told = add_workers(summary(findings=[pages.to_json()]), succeeding(10, 10, 10, 10))
    assert "train.KEPT" in [each["owner"] for each in told["findings"]]


def test_a_rate_is_told_by_the_unit_of_the_program_and_the_date_by_all_processes() -> None:
    told = add_workers(
        summary(unit="epoch", steps=5, resident_bytes=980 * MIB, resident_growth_bytes=100 * MIB),
        [worker(), worker()],
        budget=10_000 * MIB,
    )
    found = told["findings"][0]
    assert (found["unit"], found["bytes_per_step"]) == ("epoch", 4 * MIB)
    # 980 and twice 10 MiB are held; the program takes 20 MiB an epoch, the workers 4.
    assert found["limit_step"] == 5 + round(9_000 / 24)
    assert found["share"] == pytest.approx(20 / 120)


def test_a_limit_that_a_worker_measured_counts_from_its_own_beginning() -> None:
    """A spawned worker begins with far fewer bytes than the program holds: its limit is its own, plus what was free."""
    workers = [worker(), worker()]
    for each in workers:
        each["findings"][0]["limit_bytes"] = 1_000 * MIB
    found = add_workers(summary(resident_bytes=2_000 * MIB), workers)["findings"][0]
    # Each began with 90 MiB, when 910 were free; both have gained 10 since, and gain 2 a second together.
    assert found["limit_step"] == 10 + round((910 - 20) / 2)
    assert found["limit_bytes"] == (2_000 + 910) * MIB


def test_shares_are_of_what_all_processes_gained() -> None:
    own = replace(LEAK, unit="second", bytes_per_step=3.0 * MIB, share=1.0)
    told = add_workers(
        summary(findings=[own.to_json()], resident_growth_bytes=30 * MIB, explained_share=1.0),
        [worker(findings=[replace(LEAK, owner="data.CACHE", unit="second").to_json()])],
    )
    assert [(each["owner"], round(each["share"], 2)) for each in told["findings"]] == [
        ("train.KEPT", 0.75),
        ("data.CACHE", 0.25),
    ]
    assert told["explained_share"] == 1.0


def test_what_program_and_workers_hold_alike_is_one_finding() -> None:
    own = replace(LEAK, unit="second", bytes_per_step=3.0 * MIB, interval=(2.0 * MIB, 4.0 * MIB), what="3 × bytes")
    told = add_workers(
        summary(findings=[own.to_json()], resident_growth_bytes=30 * MIB, explained_share=1.0), [worker()]
    )
    (found,) = told["findings"]
    assert (found["bytes_per_step"], found["interval"]) == (4 * MIB, [2.5 * MIB, 6.0 * MIB])
    assert re.match(r".*program itself, .*\ba worker process: ", found["what"])
    assert (found["share"], told["explained_share"], told["processes"]) == (1.0, 1.0, 2)


RANKS = """
import time

import torch

KEPT = []

def keep():
    KEPT.append(torch.ones(120_000))
    time.sleep(0.06)

for _ in range(140):
    keep()
"""


@pytest.mark.slow
def test_each_rank_of_torchrun_is_watched_and_they_are_summed(tmp_path: Path, run_watched: Watched) -> None:
    torchrun = Path(sys.executable).with_name("torchrun")
    ran = run_watched(RANKS, command=(str(torchrun), "--nproc-per-node", "2", str(tmp_path / "train.py")))
    (found,) = ran.summary["findings"]
    assert found["owner"].endswith("KEPT"), ran.stderr
    assert found["made_at"]["function"] == "keep"
    assert re.match(r".*program itself, .*\ba worker process\b", found["what"])
    assert len(ran.summary["workers"]) == 1


def test_copied_pages_are_no_finding_beside_the_owners_that_explain_them() -> None:
    pages = replace(
        LEAK, verdict="native", owner="worker processes", holders=(), unit="second", bytes_per_step=2.5 * MIB
    )
    told = add_workers(summary(findings=[pages.to_json()]), [worker(), worker()])
    less = add_workers(summary(findings=[pages.to_json()]), [worker(rate=0.3 * MIB), worker(rate=0.3 * MIB)])
    assert [each["owner"] for each in told["findings"]] == ["train.KEPT"]
    assert [each["owner"] for each in less["findings"]] == ["worker processes", "train.KEPT"]


def test_workers_without_findings_change_no_number() -> None:
    before = summary(resident_growth_bytes=MIB)
    told = add_workers(before, [worker(findings=[])])
    assert {name: value for name, value in told.items() if name != "workers"} == before
    assert json.dumps(told["workers"])
    assert add_workers(before, [worker(readings=0)]) == before
