"""Trials of a sweep at once, and one after the other: are the results the same, and how long do both take?

    python benchmarks/flatwater/bench_sweep.py [--trials 8] [--at-once 2] [--rounds 3]

Wall time on a machine with other work is reported as it is; CPU seconds are those of all trials. Exit status 1 where a
setting, a value or a state differs.
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "shared"))

from claims import Claim, record_claims
from rich.console import Console
from rich.table import Table

from flatwater.cli.main import main

SPACE = "[learner.hindsight.actor_lr]\nlow = 1e-4\nhigh = 1e-2\nlog = true\n[population.size]\nchoices = [4, 8, 16]\n"


def swept(folder: Path, space: Path, *options: str) -> tuple[dict[str, object], float, float]:
    """The result of a sweep, and its seconds on the wall and on the cores."""
    wall, spent = time.perf_counter(), children()
    assert main(["sweep", "erl", "--space", str(space), "--run", str(folder), *options]) == 0
    found: dict[str, object] = json.loads((folder / "sweep.json").read_text())
    return found, time.perf_counter() - wall, children() - spent


def children() -> float:
    """CPU seconds of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run() -> int:
    """Both, and their table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    settings = ["--rounds", str(given.rounds), "--trackers"]
    together, apart = f"{given.at_once}", "1"
    with tempfile.TemporaryDirectory() as scratch:
        space = Path(scratch) / "space.toml"
        space.write_text(SPACE)
        both = swept(Path(scratch) / "a", space, "--trials", str(given.trials), "--at-once", together, *settings)
        # Begun with as many at once, so that settings follow from the same trials; then one after the other.
        swept(Path(scratch) / "b", space, "--trials", "1", "--at-once", together, *settings)
        alone = swept(Path(scratch) / "b", space, "--trials", str(given.trials), "--at-once", apart, *settings)
    table = Table("at once", "trials", "wall s", "CPU s")
    table.add_row(together, str(given.trials), f"{both[1]:.1f}", f"{both[2]:.1f}")
    table.add_row(apart, str(given.trials - 1), f"{alone[1]:.1f}", f"{alone[2]:.1f}")
    Console().print(table)
    same = both[0] == alone[0]
    name = f"a sweep of {given.trials} trials, {given.at_once} at once, against one after the other"
    told = "the same" if same else "differs"
    record_claims([Claim("flatwater", "same", name, told, "the same settings, values, best", same)])
    Console().print("the same trials, values and best" if same else "the results differ")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(run())
