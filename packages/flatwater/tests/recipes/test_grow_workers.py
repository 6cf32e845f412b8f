"""A run of growing networks on any number of workers is the same run, whoever dies on the way."""

import json
import os
import random
import re
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import flatwater as fw
from flatwater.api import resolve_config
from flatwater.cli.main import main
from flatwater.cluster.worker_client import Worker
from flatwater.comparisons.side_by_side import MACHINE_METRICS
from flatwater.envs.growing.pool import build_envs, live_pools, sub_pool
from flatwater.envs.growing.simulator import reset_, step_
from flatwater.envs.growing.task import load_task
from flatwater.memory.planner import Plan
from flatwater.recipes.grow.fingerprints import fingerprints
from flatwater.recipes.grow.run import plan
from flatwater.recipes.grow.workers import GrowService
from flatwater.runs.fingerprint import version_facts
from flatwater.runs.team import Assignment
from flatwater.state.tree import nbytes
from flatwater_watch.errors import BudgetError, ConfigError, RunError

SMALL: dict[str, Any] = {
    "rounds": 2,
    "envs": 5,
    "group": 2,
    "trackers": (),
    "env": {"steps": 4, "host": {"channels": (2, 2, 4)}, "fit": {"updates": 1, "batch_size": 4}},
    "policy": {"hidden": 8, "memory": 6},
    "learner": {"epochs": 1, "minibatches": 1},
    "evaluation": {"episodes": 4, "every": 2},
}
EXAMPLES = Path(__file__).parents[4] / "examples" / "flatwater"


def train_run(folder: Path, **changes: object) -> Path:
    return fw.train("grow", run=folder, quiet=True, **(SMALL | changes)).path


def leaf_hashes(run: Path) -> dict[str, str]:
    """Leaf -> hash of the newest checkpoint."""
    newest = max((run / "checkpoints").glob("*.json"))
    return {leaf["path"]: leaf["sha256"] for leaf in json.loads(newest.read_text())["leaves"]}


def numbers(run: Path) -> list[dict[str, float]]:
    """Each round's, without times and memory."""
    rounds = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in each.items() if not name.startswith(MACHINE_METRICS)} for each in rounds]


def assert_same(first: Path, second: Path) -> None:
    assert leaf_hashes(first) == leaf_hashes(second)
    assert numbers(first) == numbers(second)
    assert (first / "episodes.jsonl").read_text() == (second / "episodes.jsonl").read_text()


def assert_exchanged(run: Path, workers: int) -> None:
    """The ledger has what every round has moved, and every worker holds what is planned."""
    before = 0
    for line in (json.loads(line)["exchange"] for line in (run / "ledger.jsonl").read_text().splitlines()):
        assert line["moved"] == line["arrays"] - before > 0
        assert 0 < line["wire"] - line["arrays"] < 512 << 10, "what messages have around their numbers"
        assert len(line["workers"]) == workers
        for worker in line["workers"]:
            assert worker["unplanned"] == {}
            assert worker["private"] == pytest.approx(worker["planned"], rel=0.3)
        before = line["arrays"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run in one process."""
    return train_run(tmp_path_factory.mktemp("alone") / "run")


def killed_at(moments: random.Random, how: signal.Signals, killed: list[int]) -> Callable[[Worker], Any]:
    """Ends a worker in some of the questions that it is asked, before or while it answers."""
    take = Worker.take_answer

    def end(pid: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, how)

    def taking(worker: Worker) -> Any:
        if not worker._is_preparing and moments.random() < 0.2 and len(killed) < 3:
            assert worker.pid is not None
            killed.append(worker.pid)
            threading.Timer(moments.random() * 0.01, end, (worker.pid,)).start()
        return take(worker)

    return taking


@pytest.mark.slow
def test_workers_that_are_killed_change_nothing(alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr(Worker, "take_answer", killed_at(random.Random(1), signal.SIGKILL, killed))
    assert_same(alone, train_run(tmp_path / "run", workers=2))
    assert killed


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
def test_however_workers_are_lost_the_run_is_the_same(
    seed: int, how: signal.Signals, alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    monkeypatch.setattr("flatwater.cluster.processes.STOPPED_SECONDS", 2.0)
    monkeypatch.setattr(Worker, "take_answer", killed_at(random.Random(seed), how, killed))
    assert_same(alone, train_run(tmp_path / "run", workers=3))
    assert killed


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 3])
def test_any_number_of_workers_gives_the_same_run(workers: int, alone: Path, tmp_path: Path) -> None:
    run = train_run(tmp_path / "run", workers=workers)
    assert_same(alone, run)
    assert_exchanged(run, workers)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("phase", ["collect", "update", "baselines"])
def test_a_run_that_is_stopped_within_a_round_goes_on_with_any_number(
    phase: str, workers: int, alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flatwater.runs.recorder import Recorder

    stepped = Recorder.on_step

    def stepping(watcher: Recorder, name: str, done: int, total: int) -> None:
        stepped(watcher, name, done, total)
        if name == phase and (done == 2 or total == 1):
            os.kill(os.getpid(), signal.SIGTERM)

    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "on_step", stepping)
        assert not fw.train("grow", run=run, quiet=True, **(SMALL | {"workers": 2})).finished
    assert main(["resume", str(run), "--workers", str(workers)]) == 0
    assert_same(alone, run)


@pytest.mark.slow
def test_own_tasks_and_own_hosts_are_computed_by_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)
    own = {"task": "own_task:textures", "host": "own_host:Pixels", "rounds": 1, "env": {"steps": 2}}
    runs = [train_run(tmp_path / str(workers), workers=workers, **own) for workers in (1, 2)]
    assert_same(*runs)
    assert_exchanged(runs[1], 2)


@pytest.mark.slow
def test_a_run_whose_worker_comes_to_its_budget_ends_with_4_and_goes_on_with_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    large = {"steps": 1, "fit": SMALL["env"]["fit"], "host": {"channels": (48, 96, 192)}}
    run = train_run(tmp_path / "run", rounds=1, env=large, evaluation={"episodes": 1})
    more = ["resume", str(run), "--rounds", "2", "--workers", "2"]
    with monkeypatch.context() as patch:
        patch.setattr(Plan, "worker_budgets", property(lambda plan: [1 for _ in plan.workers]))
        assert main(more) == BudgetError.exit_code == 4
        assert "memory budget of 1 B" in capsys.readouterr().err
    # What is planned is enough, without anything that the run leaves of its budget.
    monkeypatch.setattr(Plan, "worker_budgets", property(lambda plan: plan.workers))
    assert main(more) == 0


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"workers": 4}, r"workers = 4: .*1 to 3.* 5 .*3 groups of 2.*--group 1,"),
        ({"workers": 2, "group": 16}, r"workers = 2: .* 1: 5 .*1 group of 16.*--group 2"),
        ({"workers": "auto", "group": 5}, r"workers = 'auto': .* 1.*--group 3,.* --envs"),
        ({"workers": 2, "device": "cuda"}, r"device = 'cuda': .*cpu.* workers = 2"),
        ({"cluster": "auto"}, r"cluster = 'auto': .*--workers"),
        ({"group": 0}, r"group = 0: .*1 to"),
    ],
)
def test_what_workers_cannot_do_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        resolve_config("grow", None, SMALL | changes)


@pytest.mark.long
def test_the_plan_has_the_workers_and_what_crosses_the_wire(capsys: pytest.CaptureFixture[str]) -> None:
    found = plan(resolve_config("grow", None, SMALL | {"workers": 2}))
    assert len(found.workers) == len(found.worker_owners) == 2
    first = GrowService(assignment((0, 4)))
    assert nbytes(first._share) == found.worker_owners[0]
    options = ["--env.steps", "4", "--group", "8", "--workers", "2"]
    assert main(["plan", "grow", *options]) == 0
    said = capsys.readouterr().out
    assert re.search(r"2 workers, .* MiB each", said)
    assert "numbers in the largest message to a worker" in said


def assignment(share: tuple[int, int], **changes: Any) -> Assignment:
    config = resolve_config("grow", None, SMALL)
    fingerprint = ":".join(fingerprints(config, load_task(config.task, torch.device("cpu"))))
    given: dict[str, Any] = {"fingerprint": fingerprint, "versions": version_facts()}
    return Assignment(**({"config": config, "share": share, "mapped": ()} | given | changes))


def test_another_task_or_arithmetic_is_refused_by_name() -> None:
    with pytest.raises(RunError, match="task digits or the host"):
        GrowService(assignment((0, 2), fingerprint="another"))
    with pytest.raises(RunError, match="arithmetic VAX in the run"):
        GrowService(assignment((0, 2), versions=version_facts() | {"arithmetic": "VAX"}))


def test_every_deal_of_groups_plays_the_same_bits() -> None:
    """A share's environments are where they are in the whole pool, bit for bit, whatever lies before them."""
    shares = [(0, 2), (2, 5), (4, 5), (0, 5)]
    desks = [GrowService(assignment(share)) for share in shares]
    rng = np.random.default_rng(0)
    drawn = rng.exponential(size=(4, 5, 256)).astype(np.float32)
    acting = desks[0]._share.policy
    policy = {"block": acting.block.numpy(), **{name: each.numpy() for name, each in acting.statistics.items()}}
    policy["block"] = rng.normal(scale=0.1, size=policy["block"].shape).astype(np.float32)
    alone = {name: np.ones((2, 4), np.float32) / 2 for name in ("accuracy", "hosts")}
    width = desks[0]._executor._setup.network.actions.noise
    for desk, (low, high) in zip(desks, shares, strict=True):
        desk.begin(policy, alone, np.arange(5)[low:high])
    for noise in drawn[:, :, :width]:
        *parts, whole = (
            desk.step("explorer", noise[low:high].copy()) for desk, (low, high) in zip(desks, shares, strict=True)
        )
        for part, (low, high) in zip(parts, shares, strict=False):
            for name, column in part.items():
                assert column.tobytes() == whole[name][low:high].tobytes(), (low, high, name)
    *found, all_ = (desk.rows() for desk in desks)
    for rows, (low, high) in zip(found, shares, strict=False):
        for name, leaf in rows.items():
            assert leaf.tobytes() == all_[name][low:high].tobytes(), (low, high, name)


def test_a_part_of_a_pool_is_the_pools_storage_and_no_pool_of_its_own() -> None:
    cpu, config = torch.device("cpu"), resolve_config("grow", None, SMALL).env
    pool = build_envs(config, count=3, data=load_task("digits", cpu), device=cpu)
    before = live_pools()
    part = sub_pool(pool, 1, 3)
    assert live_pools() == before
    reset_(pool, torch.arange(3))
    reset_(part, torch.tensor([7, 8]))
    assert pool.seed.tolist() == [0, 7, 8]
    step_(part, torch.zeros(2, 5, dtype=torch.int64))
    assert pool.step.tolist() == [0, 1, 1]
    assert pool.host.weights[1:].data_ptr() == part.host.weights.data_ptr()


@pytest.mark.cluster
@pytest.mark.filterwarnings("default")
def test_a_run_on_ray_is_the_same_run(alone: Path, cluster_store: int, tmp_path: Path) -> None:
    run = train_run(tmp_path / "run", workers=2, cluster="auto")
    assert_same(alone, run)
    assert_exchanged(run, workers=2)
    last = json.loads((run / "ledger.jsonl").read_text().splitlines()[-1])["exchange"]
    assert 0 <= last["stores"] < cluster_store
