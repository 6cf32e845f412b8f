"""`flatwater train grow` on workers: CPU seconds a round of all processes, bytes on the wire, private bytes.

    python benchmarks/flatwater/bench_grow_workers.py [--rounds 6] [--steps 30]

The first round, with its baselines and the start of the processes, is left out; no round has an evaluation.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "shared"))

import psutil
from claims import Claim, record_claims

import flatwater as fw
from flatwater_watch.units import format_bytes

CASES: list[dict[str, Any]] = [
    {"group": 16},
    {"group": 8},
    {"group": 8, "workers": 2},
    {"envs": 32},
    {"envs": 32, "workers": 2},
]


def seconds() -> float:
    """Return the CPU seconds of this process and its children."""
    me = psutil.Process()
    times = [each.cpu_times() for each in (me, *me.children(recursive=True))]
    spent: float = sum(each.user + each.system for each in times)
    return spent


def measure_case(case: dict[str, Any], rounds: int, steps: int) -> float:
    """Train with episodes of so many steps, print a row, and return CPU seconds a round."""
    marks: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        run = fw.train(
            "grow",
            run=Path(folder) / "run",
            quiet=True,
            rounds=rounds,
            trackers=(),
            env={"steps": steps},
            evaluation={"every": 1000},
            on_round=lambda _: marks.append((seconds(), time.monotonic())),
            **case,
        )
        lines = [json.loads(line) for line in (run.path / "ledger.jsonl").read_text().splitlines()]
    count = rounds - 1
    cpu, wall = ((marks[-1][n] - marks[0][n]) / count for n in (0, 1))
    told = f"{case}: {cpu:.2f} CPU s and {wall:.2f} s a round"
    if workers := lines[-1]["exchange"].get("workers"):
        moved = format_bytes(lines[-1]["exchange"]["moved"])
        private, planned = (format_bytes(max(each[name] for each in workers)) for name in ("private", "planned"))
        told += f"; wire {moved}; a worker {private}, planned {planned}"
    print(told, flush=True)
    return cpu


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=30, help="of an episode")
    given = parser.parse_args()
    spent = [measure_case(case, given.rounds, given.steps) for case in CASES]
    ratio = spent[3] / spent[4]
    name = "`grow` with 32 environments: CPU seconds of one process over those of two workers"
    record_claims([Claim("flatwater", "ratio", name, f"{ratio:.2f}", "≥ 0.93", ratio >= 0.93)])
