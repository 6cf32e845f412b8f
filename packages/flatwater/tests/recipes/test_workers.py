"""One run on any number of workers is the same run, whoever dies on the way."""

import json
import os
import pickle
import random
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import flatwater as fw
from flatwater.api import resolve_config
from flatwater.checkpoints.catalogue import list_checkpoints
from flatwater.cli.main import main
from flatwater.cli.plan import print_plan
from flatwater.cluster.processes import Process
from flatwater.cluster.work_division import worker_shares
from flatwater.cluster.worker_client import Worker
from flatwater.comparisons.side_by_side import MACHINE_METRICS
from flatwater.memory.nodes import Machine
from flatwater.memory.planner import Plan
from flatwater.runs.fingerprint import version_facts
from flatwater.runs.team import Assignment
from flatwater_trading.recipe.run import plan
from flatwater_trading.recipe.run_panel import read_run_panel
from flatwater_trading.recipe.workers import TraderService, TraderWorkers
from flatwater_watch.errors import BudgetError, ConfigError, MemoryLimitError, RunError

SMALL: dict[str, Any] = {
    "panel": "synthetic:6x260",
    "rounds": 2,
    "threads": 1,
    "trackers": (),
    "population": {"size": 7, "tile": 2},
    "evaluation": {"train_slices": 2, "validation_slices": 2},
    "env": {"episode": {"context": 20, "trading_days": 15, "settlement_days": 5}, "trade": {"hold_days": 5}},
    "splits": {"holdout_days": 40, "validation_days": 40},
    "net": {"channels": 4, "hidden": 8},
}
REPLAYED = {"replay": {"generations": 3, "warmup": 50}}
KINDS: dict[str, dict[str, Any]] = {
    "hindsight": {"learner": {"hindsight": {"updates": 10, "batch_size": 8}}},
    "sac": {"learner": {"algorithm": "sac", "sac": {"updates": 3, "batch_size": 8}}} | REPLAYED,
    "td3, prioritised": {
        "learner": {"algorithm": "td3", "td3": {"updates": 10, "batch_size": 8}},
        "replay": REPLAYED["replay"] | {"prioritised": True},
        "env": SMALL["env"] | {"account_observation": True},
    },
}


def train_run(kind: str, folder: Path, **changes: object) -> Path:
    return fw.train("erl", run=folder, quiet=True, **(SMALL | KINDS[kind] | changes)).path


def leaf_hashes(run: Path) -> dict[str, str]:
    """Leaf -> hash of the newest checkpoint."""
    newest = max((run / "checkpoints").glob("*.json"))
    return {leaf["path"]: leaf["sha256"] for leaf in json.loads(newest.read_text())["leaves"]}


def numbers(run: Path) -> list[dict[str, float]]:
    """Each round's, without times and memory."""
    rounds = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in each.items() if not name.startswith(MACHINE_METRICS)} for each in rounds]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The run of a kind in one process."""
    made: dict[str, Path] = {}

    def of(kind: str) -> Path:
        if kind not in made:
            made[kind] = train_run(kind, tmp_path_factory.mktemp("alone") / "run")
        return made[kind]

    return of


def ledger(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "ledger.jsonl").read_text().splitlines()]


@dataclass(frozen=True)
class Shared:
    """A run on two workers."""

    path: Path
    pids: list[int]
    markets: list[set[str]]
    """Files of markets that this process and the workers had mapped at the end."""


@pytest.fixture(scope="module")
def train_with_workers(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Shared]:
    """The run of a kind on two workers, or its first round."""
    made: dict[tuple[str, int], Shared] = {}
    close = TraderWorkers.close

    def of(kind: str, rounds: int = 2) -> Shared:
        if (kind, rounds) not in made:
            pids: list[int] = []
            markets: list[set[str]] = []

            def closing(workers: TraderWorkers) -> None:
                pids.extend(workers.pids)
                for pid in (os.getpid(), *workers.pids):
                    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
                    markets.append({line.split()[-1] for line in lines if "/flatwater/markets/" in line})
                close(workers)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(TraderWorkers, "close", closing)
                run = train_run(kind, tmp_path_factory.mktemp("shared") / "run", rounds=rounds, workers=2)
            made[kind, rounds] = Shared(run, pids, markets)
        return made[kind, rounds]

    return of


def assert_same(first: Path, second: Path) -> None:
    assert leaf_hashes(first) == leaf_hashes(second)
    assert numbers(first) == numbers(second)


def assert_exchanged(run: Path, workers: int) -> dict[str, int]:
    """The ledger has what a whole generation has moved. Returns what it said last."""
    first, second = (line["exchange"] for line in ledger(run))
    assert second["arrays"] - first["arrays"] == second["moved"] > 0
    around = second["wire"] - first["wire"] - second["moved"]
    assert 0 < around < 64 << 10, "what messages have around their numbers"
    assert second["lost"] == 0
    for worker in second["workers"]:
        assert worker["unplanned"] == {}
        assert sum(worker["owned"].values()) == pytest.approx(worker["owned_bytes"], rel=0.01)
        assert worker["private"] == pytest.approx(worker["planned"], rel=0.3)
        assert worker["proportional"] > worker["private"]
    assert second["private"] == sum(worker["private"] for worker in second["workers"])
    assert len(second["workers"]) == workers
    found: dict[str, int] = second
    return found


@pytest.mark.parametrize(
    ("kind", "workers"),
    [
        ("td3, prioritised", 2),
        pytest.param("td3, prioritised", 3, marks=pytest.mark.slow),
        pytest.param("hindsight", 2, marks=pytest.mark.slow),
        pytest.param("hindsight", 4, marks=pytest.mark.slow),
        pytest.param("sac", 2, marks=pytest.mark.slow),
    ],
)
def test_any_number_of_workers_gives_the_same_run(
    kind: str, workers: int, alone: Callable[[str], Path], train_with_workers: Callable[..., Shared], tmp_path: Path
) -> None:
    run = train_with_workers(kind).path if workers == 2 else train_run(kind, tmp_path / "run", workers=workers)
    assert_same(alone(kind), run)
    assert_exchanged(run, workers)
    assert all(line["exchange"] == {} for line in ledger(alone(kind)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hindsight", "td3, prioritised"])
def test_the_number_may_change_where_a_run_is_resumed(
    kind: str, alone: Callable[[str], Path], train_with_workers: Callable[..., Shared], tmp_path: Path
) -> None:
    run = Path(shutil.copytree(train_with_workers(kind, rounds=1).path, tmp_path / "run"))
    assert main(["resume", str(run), "--rounds", "2", "--workers", "1"]) == 0
    assert_same(alone(kind), run)


def end(pid: int, how: signal.Signals) -> None:
    """The run may have ended the process meanwhile."""
    with suppress(ProcessLookupError):
        os.kill(pid, how)


def killed_at(
    moments: random.Random, how: signal.Signals, killed: list[int], most: int = 6
) -> Callable[[Any, Any], None]:
    """Ends a worker in some of the questions that it is asked, before it answers."""
    take = Worker.take_answer

    def taking(worker: Worker) -> Any:
        if not worker._is_preparing and moments.random() < 0.15 and len(killed) < most:
            assert worker.pid is not None
            threading.Timer(moments.random() * 0.02, end, (worker.pid, how)).start()
            time.sleep(moments.random() * 0.04)
            killed.append(worker.pid)
        return take(worker)

    return taking


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        ("td3, prioritised", 0),
        *(pytest.param(kind, seed, marks=pytest.mark.slow) for kind in KINDS for seed in range(1, 5)),
    ],
)
def test_workers_that_are_killed_change_nothing(
    kind: str, seed: int, alone: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    most = 6 if seed else 1  # each is 2 s of CPU: another process imports torch
    monkeypatch.setattr(Worker, "take_answer", killed_at(random.Random(seed), signal.SIGKILL, killed, most))
    assert_same(alone(kind), train_run(kind, tmp_path / "run", workers=2))
    assert killed


@pytest.mark.slow
def test_a_worker_that_is_stopped_is_replaced(
    alone: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    monkeypatch.setattr("flatwater.cluster.processes.STOPPED_SECONDS", 2.0)
    monkeypatch.setattr(Worker, "take_answer", killed_at(random.Random(3), signal.SIGSTOP, killed))
    assert_same(alone("hindsight"), train_run("hindsight", tmp_path / "run", workers=2))
    assert killed


@pytest.mark.slow
def test_a_worker_that_is_told_to_go_brings_home_what_it_has_learned(
    alone: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    asked: list[str] = []
    post = Worker.post
    monkeypatch.setattr(Worker, "take_answer", killed_at(random.Random(4), signal.SIGTERM, killed))
    monkeypatch.setattr(Worker, "post", lambda worker, name, *given: (asked.append(name), post(worker, name, *given)))
    assert_same(alone("hindsight"), train_run("hindsight", tmp_path / "run", workers=2))
    assert killed
    assert asked.count("learn") == 2 * 10 * SMALL["rounds"], "no update is computed twice"
    assert asked.count("load") > 2 * SMALL["rounds"], "others took their place"


def test_a_notice_goes_out_with_the_next_answer_and_another_process_takes_the_place() -> None:
    prepared: list[int] = []
    worker = Worker(0, "collections:deque", (), prepare=lambda each: prepared.append(each.number), connect=Process)
    worker.take_answer()
    first = worker.pid
    assert first is not None
    assert not worker.is_leaving
    os.kill(first, signal.SIGTERM)
    assert worker.ask("count", 1) == 0, "it answers all the same"
    assert worker.is_leaving
    worker.restart_process_()
    assert worker.pid != first
    assert (prepared, worker.is_leaving, worker.ask("count", 1)) == ([0], False, 0)
    worker.close()


@pytest.mark.long
def test_workers_map_one_market_and_are_gone_when_the_run_ends(train_with_workers: Callable[..., Shared]) -> None:
    run = train_with_workers("td3, prioritised")
    seen, files = run.pids, run.markets
    assert len(seen) == 2
    assert len(files[1]) == 1, "the market"
    assert files[1] == files[2] <= files[0]
    for pid in seen:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def worker_of(number: int, target: str, given: object, budget: int | None = None) -> Worker:
    return Worker(number, target, given, prepare=lambda _: None, connect=Process, budget=budget)


def test_a_worker_that_always_dies_ends_the_run_with_what_to_do() -> None:
    worker = worker_of(1, "os:kill_me", ())
    with pytest.raises(RunError, match="worker 1 failed"):
        worker.take_answer()
    worker.close()
    worker = worker_of(2, "os:_exit", 7)
    with pytest.raises(RunError, match=r"worker 2 died 3 times.*exit status 7"):
        worker.take_answer()
    worker.close()


def test_a_worker_is_refused_more_than_its_budget() -> None:
    worker = worker_of(3, "builtins:bytearray", 256 << 20, budget=64 << 20)
    with pytest.raises(BudgetError, match=r"worker 3 .*memory budget of 64\.00 MiB"):
        worker.take_answer()
    worker.close()
    worker = worker_of(4, "builtins:bytearray", 1 << 20, budget=64 << 20)
    assert worker.take_answer() is None
    worker.close()


@pytest.mark.slow
def test_a_run_whose_worker_comes_to_its_budget_ends_with_4_and_goes_on_with_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = "td3, prioritised"
    run = train_run(kind, tmp_path / "run", replay=KINDS[kind]["replay"] | {"generations": 1500}, rounds=1)
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
        ({"device": "cuda"}, "device = 'cuda': .*cpu.* workers = 2"),
    ],
)
def test_what_workers_cannot_do_is_refused(changes: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=told):
        fw.train("erl", run=tmp_path / "run", quiet=True, **(SMALL | changes | {"workers": 2}))


@pytest.mark.parametrize("recipe", ["ppo", "teach", "evolve"])
def test_recipes_without_workers_say_why(recipe: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", recipe, "--workers", "2"]) == 2
    assert re.search("--workers: .*one process", capsys.readouterr().err)
    with pytest.raises(ConfigError, match=r"cluster: .*one process"):
        fw.train(recipe, quiet=True, cluster="auto")


def assignment(share: tuple[int, int] = (0, 2), arithmetic: str = "VAX 12345678", **changes: Any) -> Assignment:
    config = replace(resolve_config("erl", None, SMALL | KINDS["hindsight"]), **changes)
    return Assignment(
        config, share, read_run_panel(config).fingerprint, version_facts() | {"arithmetic": arithmetic}, ()
    )


@pytest.mark.long
def test_every_deal_of_tiles_learns_and_plays_the_same_bits() -> None:
    """A deal gives workers consecutive tiles: where each run of these computes as the whole does, every deal does."""
    tiles = [(0, 2), (2, 4), (4, 6), (6, 7)]
    whole = TraderService(assignment((0, 7), version_facts()["arithmetic"]))
    begun = {name: rows.copy() for name, rows in whole.rows()[0].items()}
    added = dict(whole.rows()[1])
    for first, last in combinations_with_replacement(range(len(tiles)), 2):
        low, high = tiles[first][0], tiles[last][1]
        part = TraderService(assignment((low, high), version_facts()["arithmetic"]))
        for desk, mine in ((whole, slice(0, 7)), (part, slice(low, high))):
            desk.load({name: np.concatenate([rows[mine], rows[7:]]) for name, rows in begun.items()}, added, 0)
            desk.learn()
        expected, found = whole.rows()[0], part.rows()[0]
        for name, rows in found.items():
            assert rows[: high - low].tobytes() == expected[name][low:high].tobytes(), (low, high, name)
        for tile in tiles[first : last + 1]:
            assert pickle.dumps(part.train(tile, 1)) == pickle.dumps(whole.train(tile, 1))
            assert pickle.dumps(part.validate(tile, 1)) == pickle.dumps(whole.validate(tile, 1))


def test_another_arithmetic_is_refused_by_name_and_taken_where_any_machine_is() -> None:
    with pytest.raises(RunError, match=r"other numbers .*: arithmetic VAX 12345678 in the run, .* on .*--any-"):
        TraderService(assignment())
    assert TraderService(assignment(any_machine=True)).arithmetic() == version_facts()["arithmetic"]


@pytest.mark.slow
def test_a_worker_on_another_processor_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = "default" if torch.backends.cpu.get_cpu_capability() == "AVX2" else "avx2"
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", other)  # torch has read it in this process, and will in a worker's
    with pytest.raises(RunError, match=f"(?is)worker 0 failed.*arithmetic .* in the run, {other} "):
        train_run("hindsight", tmp_path / "refused", workers=2, rounds=1)
    run = train_run("hindsight", tmp_path / "taken", workers=2, rounds=1, any_machine=True)
    assert len(list_checkpoints(run / "checkpoints")[-1].facts["machines"]) == 2
    assert main(["resume", str(run), "--rounds", "2", "--workers", "1"]) == 0
    assert len(list_checkpoints(run / "checkpoints")[-1].facts["machines"]) == 2, "once and for all"
    assert main(["report", str(run)]) == 0
    assert "several arithmetics" in (run / "report.html").read_text()


@pytest.mark.parametrize(("count", "workers"), [(1, 4), (4, 1), (5, 2), (7, 3), (3, 3)])
def test_tiles_are_dealt_in_order_and_evenly(count: int, workers: int) -> None:
    dealt = worker_shares(count, workers)
    assert [low for low, _ in dealt] == [0, *(high for _, high in dealt[:-1])]
    assert dealt[-1][1] == count
    sizes = [high - low for low, high in dealt]
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.long
def test_the_plan_has_a_table_by_machine_and_refuses_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there = [
        Machine("first", "1", 2, 4 << 30, 80 << 20, 8 << 30),
        Machine("second", "2", 2, 1 << 20, 80 << 20, 8 << 30),
    ]
    monkeypatch.setattr("flatwater.runs.team.list_cluster_machines", lambda _: there)
    config = resolve_config("erl", None, SMALL | KINDS["td3, prioritised"])
    automatic = plan(replace(config, workers="auto", cluster="auto"))
    assert [node.workers for node in automatic.nodes] == [2, 0], "as many as there is room for"
    assert automatic.fits
    crowded = plan(replace(config, workers=3, cluster="auto"))
    assert print_plan(crowded, as_json=False) == MemoryLimitError.exit_code
    said = capsys.readouterr().out
    assert re.search(r"(?s)by machine.*\n *first +3 .*\n *second +0 ", said)
    assert re.search(r"room for 2 workers of .* MiB and 1 cores each.*--workers 2", said)
    assert re.search(r"first: .*2 of 3: .* [MG]iB and 3 cores.*4\.08 GiB and 2", said)
    assert re.search(r"wire .* numbers in the largest message to a worker", said)


@pytest.mark.cluster
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("kind", "workers"), [("hindsight", 2), ("td3, prioritised", 3)])
def test_a_run_on_ray_is_the_same_run(
    kind: str, workers: int, alone: Callable[[str], Path], cluster_store: int, tmp_path: Path
) -> None:
    run = train_run(kind, tmp_path / "run", workers=workers, cluster="auto")
    assert_same(alone(kind), run)
    assert 0 <= assert_exchanged(run, workers)["stores"] < cluster_store


@pytest.mark.cluster
@pytest.mark.filterwarnings("default")
@pytest.mark.usefixtures("cluster_store")
@pytest.mark.parametrize("kind", ["hindsight", "td3, prioritised"])
def test_actors_that_are_killed_change_nothing(
    kind: str, alone: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flatwater.cluster.ray_workers import RayActor

    killed: list[int] = []
    receive, moments = RayActor.receive, random.Random(3)

    def receiving(actor: Any) -> bytes:
        if actor.pid is not None and moments.random() < 0.1 and len(killed) < 2:
            killed.append(actor.pid)
            os.kill(actor.pid, signal.SIGKILL)
        return receive(actor)

    monkeypatch.setattr(RayActor, "receive", receiving)
    monkeypatch.setattr(RayActor, "restart_delay", 0.0)
    assert_same(alone(kind), train_run(kind, tmp_path / "run", workers=2, cluster="auto"))
    assert killed


@pytest.mark.cluster
@pytest.mark.filterwarnings("default")
def test_what_the_cluster_cannot_take_is_refused(
    cluster_store: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MemoryLimitError, match=r"room for 3 workers of .*--workers 3"):
        train_run("hindsight", tmp_path / "many", workers=4, cluster="auto")
    monkeypatch.setattr("flatwater.cluster.ray_workers.STORE_SHARE", cluster_store >> 10)
    with pytest.raises(RunError, match=r"message of .* KiB.*1\.00 KiB.*--object-store-memory"):
        train_run("hindsight", tmp_path / "large", workers=2, cluster="auto")


@pytest.mark.cluster
@pytest.mark.filterwarnings("default")
@pytest.mark.usefixtures("cluster_store")
def test_the_cluster_is_checked(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["cluster", "check"]) == 0
    assert "1 machine, all compute" in capsys.readouterr().out
    monkeypatch.setattr("flatwater.runs.fingerprint.__version__", "9")
    assert main(["cluster", "check", "auto"]) == 2
    said = capsys.readouterr()
    assert "flatwater 0.1.0 there, 9 here" in said.out
    assert "would be refused" in said.err


@pytest.mark.cluster
@pytest.mark.filterwarnings("default")
def test_where_there_is_no_cluster_the_run_says_how_to_start_one(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is an extra: pip install 'flatwater[ray]'").shutdown()
    for address in ("127.0.0.1:1", "nowhere", "auto"):
        with pytest.raises(RunError, match=r"(?s)cluster = .*ray start --head"):
            train_run("hindsight", tmp_path / "run", workers=2, cluster=address)
