"""Fifty moments at which something is lost: is it still the same run?

    python benchmarks/flatwater/bench_losses.py [--on processes head ray] [--rounds 16] [--seed 0]

One small run with everything that is exchanged (a prioritised replay, the account) is made once in this process. Then:
processes: one run whose three workers are lost again and again, at each kind of question: killed (SIGKILL) before they
answer or a few milliseconds later, stopped (SIGSTOP), told to go (SIGTERM). head: the run's own process is killed with
kill -9 and resumed with another number of workers, again and again. ray: actors on a cluster of three nodes on this
machine are killed, stopped and told to go, and nodes are removed, at any question and again while members learn.
After each round the hash of every leaf must be that of the run in which nothing happened; a moment counts as kept where
the first whole round after it does. Exit status 1 where a moment is not.
"""

import argparse
import contextlib
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "shared"))

import psutil
from claims import Claim, record_claims

import flatwater as fw
from flatwater.cluster import processes
from flatwater.cluster.worker_client import Worker
from flatwater.runs.callbacks import Round

SMALL: dict[str, Any] = {
    "panel": "synthetic:6x260",
    "threads": 1,
    "trackers": (),
    "population": {"size": 7, "tile": 2},
    "evaluation": {"train_slices": 2, "validation_slices": 2},
    "env": {
        "episode": {"context": 20, "trading_days": 15, "settlement_days": 5},
        "trade": {"hold_days": 5},
        "account_observation": True,
    },
    "splits": {"holdout_days": 40, "validation_days": 40},
    "net": {"channels": 4, "hidden": 8},
    "learner": {"algorithm": "td3", "td3": {"updates": 10, "batch_size": 8}},
    "replay": {"generations": 3, "warmup": 50, "prioritised": True},
}
LATEST = 0.02
"""Seconds after which a worker is lost at the latest, once it is waited for."""
NODE = "NODE"
"""Loss of a whole node."""
LEARNING = " while learning"
"""After a loss that is to fall at these questions."""
QUESTIONS = ("learn", "weigh")


def leaves(run: Path) -> dict[str, str]:
    """Leaf -> hash of the newest checkpoint."""
    manifest = json.loads(max((run / "checkpoints").glob("*.json")).read_text())
    return {leaf["path"]: leaf["sha256"] for leaf in manifest["leaves"]}


@dataclass
class Losses:
    """The losses that are to happen, and their outcome."""

    wanted: list[str]
    """Signals by name, or NODE, in their order, with LEARNING where it is to fall there."""
    moments: random.Random
    place: Callable[[Worker], int | None]
    """The process of a worker."""
    lose_node: Callable[[Worker], None] = lambda _: None
    kept: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)
    fallen: list[str] = field(default_factory=list)
    """In this round."""
    at: Counter[str] = field(default_factory=Counter)
    """Questions at which something was lost in this round."""

    def take(self, worker: Worker, take: Callable[[Worker], Any]) -> Any:  # noqa: ANN401
        """A worker's answer, before which it may be lost."""
        name = pickle.loads(worker._unanswered[0])[0]  # noqa: S301, SLF001
        fits = self.wanted and (name in QUESTIONS or not self.wanted[0].endswith(LEARNING))
        if fits and self.at[name] < 1 and self.moments.random() < (0.5 if name != "learn" else 0.1):
            pid = self.place(worker)
            if pid is not None and worker._deaths_in_row < 1:  # noqa: SLF001
                self.at[name] += 1
                self.lose(worker, pid, name)
        return take(worker)

    def lose(self, worker: Worker, pid: int, name: str) -> None:
        """The next of the losses, now or in a moment."""
        how = self.wanted.pop(0).removesuffix(LEARNING)
        self.fallen.append(f"{how} at {name}")
        if how == NODE:
            self.lose_node(worker)
            return
        number = getattr(signal, how)
        if how == "SIGKILL" and self.moments.random() < 0.5:
            threading.Timer(self.moments.random() * LATEST, end_process, (pid, number)).start()
            time.sleep(self.moments.random() * LATEST)
        else:
            end_process(pid, number)

    def record_outcome_(self, *, same: bool) -> None:
        """Record whether the losses of the round that has ended left its bits the same."""
        (self.kept if same else self.changed).update(self.fallen)
        for each in self.fallen:
            print(f"  {each}: {'the same bits' if same else 'OTHER BITS'}", flush=True)
        self.fallen.clear()
        self.at.clear()


def end_process(pid: int, how: int) -> None:
    """The process may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, how)


@contextlib.contextmanager
def losing(losses: Losses) -> Iterator[None]:
    """Workers are lost on the way."""
    take = Worker.take_answer
    Worker.take_answer = lambda worker: losses.take(worker, take)  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        Worker.take_answer = take  # type: ignore[method-assign]


def lossy(folder: Path, expected: list[dict[str, str]], losses: Losses, **settings: Any) -> None:  # noqa: ANN401
    """A run in which workers are lost, held against the expected leaves after each round."""

    def look(round_: Round) -> None:
        losses.record_outcome_(same=leaves(folder) == expected[round_.number])
        if not losses.wanted:
            round_.stop()

    with losing(losses):
        fw.train("erl", run=folder, quiet=True, on_round=look, **(SMALL | settings))
    if losses.wanted:
        raise SystemExit(f"{len(losses.wanted)} moments found no place: give more --rounds")


def on_processes(folder: Path, expected: list[dict[str, str]], seed: int) -> Losses:
    """Thirty killed, four stopped, four told to go."""
    wanted = ["SIGKILL"] * 30 + ["SIGSTOP"] * 4 + ["SIGTERM"] * 4
    moments = random.Random(seed)  # noqa: S311
    moments.shuffle(wanted)
    processes.STOPPED_SECONDS = 2.0
    losses = Losses(wanted, moments, lambda worker: worker.pid)
    lossy(folder, expected, losses, rounds=len(expected) - 1, workers=3)
    return losses


def on_head(folder: Path, expected: list[dict[str, str]], seed: int) -> Losses:
    """The run's own process, killed six times and resumed with another number of workers."""
    moments = random.Random(seed)  # noqa: S311
    losses, judged = Losses([], moments, lambda _: None), 1
    fw.train("erl", run=folder, quiet=True, **(SMALL | {"rounds": 1, "workers": 2}))
    for workers in (3, 1, 2, 4, 1, 3):
        killed_head(folder, len(expected) - 1, workers, moments.random())
        found = {round_: leaves for round_, leaves in whole_rounds(folder).items() if round_ > judged}
        if found:  # rounds after the kills before this one
            judged = max(found)
            losses.record_outcome_(same=all(leaves == expected[round_] for round_, leaves in found.items()))
        losses.fallen.append(f"head with {workers} workers")
    fw.resume(folder, len(expected) - 1, quiet=True)
    losses.record_outcome_(same=all(leaves == expected[round_] for round_, leaves in whole_rounds(folder).items()))
    return losses


def whole_rounds(folder: Path) -> dict[int, dict[str, str]]:
    """Leaf -> hash by round, of the checkpoints that are kept and lie at a round's end."""
    manifests = [json.loads(path.read_text()) for path in (folder / "checkpoints").glob("*.json")]
    whole = [each for each in manifests if not each["step"]]
    return {each["round"]: {leaf["path"]: leaf["sha256"] for leaf in each["leaves"]} for each in whole}


def killed_head(folder: Path, rounds: int, workers: int, moment: float) -> None:
    """Resume, and kill -9 somewhere in the round after the first that is recorded; its workers end as well."""
    command = [str(Path(sys.executable).with_name("flatwater")), "resume", str(folder), "--rounds", str(rounds)]
    metrics, quiet = folder / "metrics.jsonl", subprocess.DEVNULL
    known = metrics.read_text().count("\n")
    head = subprocess.Popen([*command, "--workers", str(workers)], stdout=quiet, stderr=quiet)
    while metrics.read_text().count("\n") <= known and head.poll() is None:
        time.sleep(0.005)
    time.sleep(moment / 2)
    children = psutil.Process(head.pid).children(recursive=True) if head.poll() is None else []
    if head.poll() is not None:
        raise SystemExit("the run ended before it could be killed: give more --rounds")
    head.kill()
    head.wait()
    _, left = psutil.wait_procs(children, timeout=20)
    if left:
        raise SystemExit(f"workers outlive their run: {left}")


SHARE: dict[str, Any] = {"num_cpus": 2, "object_store_memory": 80 << 20, "memory": 2 << 30}
"""Resources of a node of the cluster."""


@contextlib.contextmanager
def three_nodes() -> Iterator[Any]:
    """A Ray cluster of three nodes and a head on this machine, joined."""
    import ray  # noqa: PLC0415  (an extra)
    from ray.cluster_utils import Cluster  # noqa: PLC0415

    from flatwater.cluster.ray_workers import join_cluster  # noqa: PLC0415

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": 80 << 20})
    try:
        for _ in range(3):
            nodes.add_node(**SHARE)
        join_cluster(nodes.address)
        yield nodes
    finally:
        ray.shutdown()
        nodes.shutdown()


def on_ray(folder: Path, expected: list[dict[str, str]], seed: int) -> Losses:
    """Two actors killed, one stopped, one told to go, two of three nodes removed; the same again while learning."""
    from flatwater.cluster import ray_workers as cluster  # noqa: PLC0415

    cluster.CHECK_SECONDS = 2.0
    with three_nodes() as nodes:

        def lose_node(worker: Worker) -> None:
            at = worker._connection._placement[0]  # type: ignore[attr-defined]  # noqa: SLF001
            nodes.remove_node(next(each for each in nodes.worker_nodes if each.node_id == at), allow_graceful=False)
            nodes.add_node(**SHARE)

        def place(worker: Worker) -> int | None:
            placed = worker._connection._placement  # type: ignore[attr-defined]  # noqa: SLF001
            return None if placed is None else int(placed[1])

        wanted = ["SIGKILL", NODE, "SIGSTOP", "SIGTERM", "SIGKILL", NODE]
        wanted += [each + LEARNING for each in wanted]
        losses = Losses(wanted, random.Random(seed), place, lose_node)  # noqa: S311
        lossy(folder, expected, losses, rounds=len(expected) - 1, workers=3, cluster=nodes.address)
    return losses


WHERE = {"processes": on_processes, "head": on_head, "ray": on_ray}


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", nargs="+", default=list(WHERE), choices=list(WHERE))
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    kept, changed = Counter[str](), Counter[str]()
    expected: list[dict[str, str]] = [{}]
    with tempfile.TemporaryDirectory() as name:
        alone = Path(name) / "alone"
        fw.train(
            "erl",
            run=alone,
            quiet=True,
            on_round=lambda _: expected.append(leaves(alone)),
            rounds=options.rounds,
            **SMALL,
        )
        for where in options.on:
            print(where, flush=True)
            losses = WHERE[where](Path(name) / where, expected, options.seed)
            kept += losses.kept
            changed += losses.changed
    whole = kept.total() + changed.total()
    print(f"{kept.total()} of {whole} moments: every leaf has the bits of the run in which nothing happened")
    name = f"moments of a loss ({', '.join(options.on)}): still the same run, bit for bit"
    right = bool(whole) and not changed
    record_claims([Claim("flatwater", "kept", name, f"{kept.total()} of {whole}", "all", right)])
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
