"""CPU seconds of looking at many and at long runs: `flatwater runs` and `flatwater top --once`, as a user calls them.

    python benchmarks/flatwater/bench_load.py             # 200 runs of 5,000 rounds, and one of 100,000
    python benchmarks/flatwater/bench_load.py 20 500 2000 # fewer and shorter

Folders are made up, of 60 numbers a round, and removed again; each command runs in a process of its own.
"""

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "shared"))

from claims import Claim, record_claims

from flatwater.config.toml import dumps_config
from flatwater.recipes.ppo.config import PpoRunConfig

OWNED = {f"memory/owner.{number}": 1_048_576.0 * number for number in range(45)}
PROGRAM = "import sys; from flatwater.cli.main import main; sys.exit(main())"
EVERY = 10
"""Rounds from one evaluation to the next."""


def make_run(folder: Path, rounds: int) -> None:
    """A finished run, with metrics, ledger and result."""
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "config.toml").write_text(dumps_config(PpoRunConfig(rounds=rounds)))
    with (folder / "metrics.jsonl").open("w") as metrics, (folder / "ledger.jsonl").open("w") as ledger:
        for at in range(1, rounds + 1):
            numbers = {"round": at, "return/mean": at / 7, "time/collect": 0.5, "time/update": 0.25, **OWNED}
            numbers |= {"evaluation/policy": at / 3} if at % EVERY == 0 else {}
            metrics.write(json.dumps(numbers) + "\n")
            line = {"round": at, "resident": 1 << 28, "owned": {"learner": 1 << 20}, "owned_bytes": 1 << 20, "base": 1}
            ledger.write(json.dumps(line) + "\n")
    rows = {"policy": {"return": rounds / 3}, "random": {"return": 1.0}}
    said = {"episodes": 20, "split": "held-out", "agents": 1, "steps": 500, "note": "made up"}
    (folder / "result.json").write_text(json.dumps(said | {"players": rows}))


def cpu_seconds(*words: str) -> float:
    """Return the CPU seconds of a command, with its start."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", PROGRAM, *words], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(runs: int = 200, rounds: int = 5_000, long: int = 100_000) -> None:
    """Make the folders, and print a table."""
    with tempfile.TemporaryDirectory(prefix="flatwater-load-") as scratch:
        folder = Path(scratch) / "runs"
        make_run(folder / "run-0", rounds)
        for number in range(1, runs):  # one content, a file each
            (folder / f"run-{number}" / "checkpoints").mkdir(parents=True)
            for file in ("config.toml", "metrics.jsonl", "ledger.jsonl", "result.json"):
                (folder / f"run-{number}" / file).hardlink_to(folder / "run-0" / file)
        make_run(Path(scratch) / "long", long)
        bare = cpu_seconds("version")
        print("| command | CPU s |\n|---|--:|")
        print(f"| `flatwater version`, for comparison | {bare:.2f} |")
        listed = cpu_seconds("runs", str(folder))
        print(f"| `flatwater runs`, {runs} runs of {rounds:,} rounds | {listed:.2f} |")
        print(f"| `flatwater runs --json`, the same | {cpu_seconds('runs', str(folder), '--json'):.2f} |")
        spent = cpu_seconds("top", str(Path(scratch) / "long"), "--once")
        print(f"| `flatwater top --once`, {long:,} rounds | {spent:.2f} |")
    name = f"CPU seconds of `flatwater runs` over {runs} runs of {rounds:,} rounds; of `top` on one of {long:,}"
    right = listed <= 3 and spent <= 1.5
    record_claims([Claim("flatwater", "looking", name, f"{listed:.2f}; {spent:.2f}", "≤ 3; 1.5", right)])


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
