"""One full generation costs at most 2 CPU seconds at S, 30 at M and 300 at FULL.

    python benchmarks/trading/bench_generation.py [--sizes S M] [--full] [--json]

A whole generation of a default run is counted, as it is and not put together from parts: learn (48 updates of a batch
of 32 days for every member), evaluate, validate and evolve, without console and files, with freed memory kept as a
session keeps it. At S and M it is the second one; at FULL the first, page faults included. Process time of one thread.
The original's seconds are those of the reference, derived from its measured steps (4.3 hours at S, 33 days at FULL).
Exits with 1 where a limit is passed.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "shared"))

import torch
from claims import Claim, record_claims
from sizes import SIZES, Silent, compose_size

from flatwater.runs.machine import keep_freed_memory
from flatwater.trainers.loop import train_
from flatwater_watch.meters.process import resident_bytes

LIMITS = {"S": 2.0, "M": 30.0, "FULL": 300.0}
"""CPU seconds of one generation."""
COUNTED = {"S": 2, "M": 2, "FULL": 1}
"""Generation that is counted. The first one takes memory that the second has; at FULL a second costs minutes."""
ORIGINAL = {"S": 4.3 * 3600, "M": 2.6 * 86400, "FULL": 33 * 86400}
"""The original's CPU seconds for a generation, derived in the reference (4.3 h, 2.6 days, 33 days)."""
PHASES = ("learn", "evaluate", "validate", "evolve")


@dataclass
class Clock(Silent):
    """Counts CPU seconds of each phase of the round under way."""

    seconds: dict[str, float] = field(default_factory=dict)
    by_round: list[dict[str, float]] = field(default_factory=list)
    since: float = field(default_factory=time.process_time)

    def on_step(self, phase: str, done: int, total: int) -> None:  # noqa: ARG002  (the loop's protocol)
        """Count the step to its phase."""
        now = time.process_time()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self.since
        self.since = now

    def on_round(self, round_: int, metrics: Mapping[str, float]) -> None:
        """Keep the round's seconds."""
        super().on_round(round_, metrics)
        self.by_round.append(self.seconds)
        self.seconds, self.since = {}, time.process_time()


def measure(size: str) -> dict[str, Any]:
    """CPU seconds of the generation that is counted, by phase."""
    columns, days, context, members = SIZES[size]
    composition = compose_size(size)
    keep_freed_memory()
    clock = Clock()
    train_(composition.trainer, COUNTED[size], clock)
    phases = {name: clock.by_round[-1].get(name, 0.0) for name in PHASES}
    learner = composition.config.learner
    total = sum(phases.values())
    return {
        "size": size,
        "columns": columns,
        "days": days,
        "context": context,
        "members": members,
        "updates": learner.own.updates,
        "micro_batches": learner.own.updates * learner.micro_batches,
        "cpu_seconds": total,
        "phases": phases,
        "limit": LIMITS[size],
        "original_cpu_seconds": ORIGINAL[size],
        "ratio": ORIGINAL[size] / total,
        "resident_bytes": resident_bytes(),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """One line for each size."""
    titles = "".join(f"{name:>10}" for name in PHASES)
    lines = [f"{'size':<5}{'columns x context x P':>22}{titles}{'CPU s':>9}{'limit':>7}{'original':>10}{'ratio':>8}"]
    for row in rows:
        shape = f"{row['columns']} x {row['context']} x {row['members']}"
        phases = "".join(f"{row['phases'][name]:>10.2f}" for name in PHASES)
        original = f"{row['original_cpu_seconds']:,.0f}"
        lines.append(
            f"{row['size']:<5}{shape:>22}{phases}{row['cpu_seconds']:>9.1f}{row['limit']:>7.0f}{original:>10}{row['ratio']:>8,.0f}"
        )
    return "\n".join(lines)


def main() -> int:
    """Measure, print, compare with the limits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=["S", "M"])
    parser.add_argument("--full", action="store_true", help="measure FULL too: about four minutes of CPU")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    sizes = [*options.sizes, *(["FULL"] if options.full and "FULL" not in options.sizes else [])]
    rows = [measure(size) for size in sizes]
    seconds, limits = (" / ".join(f"{row[key]:.1f}" for row in rows) for key in ("cpu_seconds", "limit"))
    right = all(row["cpu_seconds"] <= row["limit"] for row in rows)
    name = f"a whole generation at {', '.join(sizes)}, CPU seconds"
    record_claims([Claim("trading", "seconds", name, seconds, f"≤ {limits}", right)])
    print(json.dumps(rows, indent=1) if options.json else table(rows))
    return 0 if all(row["cpu_seconds"] <= row["limit"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
