"""One run on several workers: are the bits the same, and what does it cost?

    python benchmarks/flatwater/bench_workers.py [--sizes S M] [--workers 1 2] [--rounds 4] [--json]

Populations of 16, or --members. CPU seconds a generation of all processes together, without the first one, in which
workers are started; for each number of workers at the same tile, and for all members at once. Efficiency is the CPU
seconds of one process over those of several: on cores that nobody else uses, N workers are N times that as fast.
`--flat 300` instead runs the small market of bench_losses.py for so many generations with two workers, and says what
this process and the workers had for themselves on the way; with `--ray` on a cluster of three nodes on this machine,
and what its object stores held, and their processes had for themselves.
`wire` is what crossed the sockets in a generation, both ways.
Exit status 1 where a leaf differs.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "shared"))

import psutil
import torch
from bench_losses import SMALL, three_nodes
from claims import Claim, record_claims
from rich.console import Console
from sizes import config_of

import flatwater as fw
from flatwater.runs.callbacks import Round
from flatwater.runs.session import start_new_run
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_trading.recipe.workers import TraderWorkers
from flatwater_watch.meters.process import private_bytes

AT_ONCE = "at once"
TILE = {"S": 8, "M": 4, "FULL": 4}
"""At which numbers of workers are compared."""


def cpu_seconds(pids: list[int]) -> float:
    """Return the CPU seconds of this process and of others."""
    others = (psutil.Process(pid).cpu_times() for pid in pids)
    spent: float = sum(each.user + each.system for each in others)
    return time.process_time() + spent


class Meter:
    """Looks at the run after each round."""

    def __init__(self) -> None:
        self.crew: TraderWorkers | None = None
        self.spent: list[float] = []
        self.wall: list[float] = []
        self.wire: list[float] = []
        self.private: list[float] = []

    def __call__(self, _: Round) -> None:
        """A round has ended."""
        pids = self.crew.pids if self.crew else []
        self.spent.append(cpu_seconds(pids))
        self.wall.append(time.perf_counter())
        self.wire.append(self.crew.wire_bytes / 1e6 if self.crew else 0.0)
        self.private = [private_bytes([pid]) / 1e6 for pid in pids]


def each_round(totals: list[float]) -> float:
    """Median of the rounds after the first."""
    return statistics.median(after - before for before, after in pairwise(totals))


def measure_run(config: ErlRunConfig, folder: Path) -> dict[str, Any]:
    """A run, and what it took."""
    meter, begin = Meter(), TraderWorkers.__init__

    def beginning(crew: TraderWorkers, *given: Any) -> None:  # noqa: ANN401
        meter.crew = crew
        begin(crew, *given)

    TraderWorkers.__init__ = beginning  # type: ignore[method-assign,assignment]
    try:
        start_new_run(config, folder, Console(quiet=True), on_round=meter)
    finally:
        TraderWorkers.__init__ = begin  # type: ignore[method-assign]
    manifest = json.loads(max(folder.glob("checkpoints/*.json")).read_text())
    return {
        "cpu_s": each_round(meter.spent),
        "wall_s": each_round(meter.wall),
        "wire_MB": each_round(meter.wire),
        "private_MB": meter.private,
        "leaves": {leaf["path"]: leaf["sha256"] for leaf in manifest["leaves"]},
    }


def flat(rounds: int, *, on_ray: bool) -> int:
    """Private bytes of this process, of the workers and of the object stores, over many generations."""
    crews: list[TraderWorkers] = []
    begin = TraderWorkers.__init__

    def beginning(crew: TraderWorkers, *given: Any) -> None:  # noqa: ANN401
        crews.append(crew)
        begin(crew, *given)

    def look(round_: Round) -> None:
        if round_.number % max(1, rounds // 12) == 0:
            mine, crew = private_bytes([os.getpid()]) / 1e6, crews[-1]
            theirs, wire = round_.metrics["memory/workers"] / 1e6, crew.wire_bytes / 1e6 / round_.number
            print(f"{round_.number:>5} {mine:8.1f} MB here {theirs:8.1f} MB workers {wire:8.3f} MB wire", end="")
            print(told_of_stores() if on_ray else "", flush=True)

    TraderWorkers.__init__ = beginning  # type: ignore[method-assign,assignment]
    try:
        with tempfile.TemporaryDirectory() as folder, three_nodes() if on_ray else nullcontext() as nodes:
            place = {} if nodes is None else {"cluster": nodes.address}
            settings = SMALL | place | {"rounds": rounds, "workers": 2}
            fw.train("erl", run=Path(folder) / "run", quiet=True, on_round=look, **settings)
    finally:
        TraderWorkers.__init__ = begin  # type: ignore[method-assign]
    return 0


def told_of_stores() -> str:
    """Describe what the object stores of a cluster hold, and what the processes that keep them have for themselves."""
    from flatwater.cluster.ray_workers import object_store_bytes  # noqa: PLC0415  (an extra)

    used = object_store_bytes()
    keepers = [each.pid for each in psutil.process_iter(["name"]) if each.info["name"] == "raylet"]
    shared = sum(psutil.Process(pid).memory_info().shared for pid in keepers)
    return (
        f" {used / 1e6:7.1f} MB in stores {private_bytes(keepers) / 1e6:7.1f} + {shared / 1e6:.1f} MB shared in raylets"
    )


def compare_cases(size: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """All cases of a size; the first one of a number of workers is what the others are held against."""
    config = replace(config_of(size, rounds=options.rounds), threads=1, trackers=())
    config = replace(config, learner=replace(config.learner, algorithm=options.algorithm))
    cases = [(AT_ONCE, 1, options.members), *((f"{n} workers", n, TILE[size]) for n in options.workers)]
    rows = []
    for name, workers, tile in cases:
        population = replace(config.population, size=options.members, tile=tile)
        with tempfile.TemporaryDirectory() as folder:
            found = measure_run(replace(config, workers=workers, population=population), Path(folder) / "run")
        rows.append({"size": size, "case": name, "tile": tile} | found)
    leaves, cpu_s = rows[1]["leaves"], rows[1]["cpu_s"]
    return [row | {"same": row.pop("leaves") == leaves, "efficiency": cpu_s / row["cpu_s"]} for row in rows]


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["S", "M"], choices=list(TILE))
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--members", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--algorithm", default="hindsight")
    parser.add_argument("--flat", type=int, default=0)
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.flat:
        return flat(options.flat, on_ray=options.ray)
    rows = [row for size in options.sizes for row in compare_cases(size, options)]
    same = all(row["same"] for row in rows if row["case"] != AT_ONCE)
    record_claims(claims(rows))
    if options.json:
        print(json.dumps(rows, indent=1))
        return 0 if same else 1
    print("size  case          tile    CPU s   wall s  efficiency  wire MB  same  private MB")
    for row in rows:
        private = ", ".join(f"{each:.0f}" for each in row["private_MB"])
        print(
            f"{row['size']:<6}{row['case']:<12}{row['tile']:>6}{row['cpu_s']:>9.2f}{row['wall_s']:>9.2f}"
            f"{row['efficiency']:>12.2f}{row['wire_MB']:>9.2f}{row['same']!s:>6}  {private}"
        )
    return 0 if same else 1


def claims(rows: list[dict[str, Any]]) -> Iterator[Claim]:
    """Yield the claims of each size, with the most workers."""
    for size in dict.fromkeys(row["size"] for row in rows):
        last = [row for row in rows if row["size"] == size][-1]
        name = f"a generation at {size}: CPU seconds of one process over those of {last['case']}, the same bits"
        right = last["same"] and last["efficiency"] >= 0.93
        yield Claim("flatwater", size, name, f"{last['efficiency']:.2f}", "≥ 0.93", right)


if __name__ == "__main__":
    sys.exit(main())
