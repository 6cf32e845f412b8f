"""Whether a policy learns to grow networks: whole runs of `flatwater train grow`, judged on episodes not trained on.

    python benchmarks/bench_growing.py [--seeds 0 1 2] [--rounds 100] [--holdout] [--json]

A run takes seven to eight minutes of CPU time. The policy's mean return must be 0.3 above that of growing nothing and
0.3 above that of random operations, on the held-out episodes or, with --holdout, on others that no run looks at by
itself. Exits with 1 where it is not.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

MARGIN = 0.3
FLATWATER = [sys.executable, "-c", "import sys; from flatwater.cli.main import main; sys.exit(main())"]
PLAYERS = ("policy", "heuristic", "wait", "random")


def flatwater(*words: str) -> str:
    """What the command prints; one torch thread, so that runs beside each other are the same as one alone."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([*FLATWATER, *words], check=True, stdout=subprocess.PIPE, text=True, env=env).stdout


def run(seed: int, rounds: int, *, holdout: bool) -> dict[str, Any]:
    """Train, and play the episodes."""
    with tempfile.TemporaryDirectory(prefix="flatwater-growing-") as place:
        folder = Path(place) / "run"
        flatwater("train", "grow", "--seed", str(seed), "--rounds", str(rounds), "--threads", "1", "--run", str(folder))
        played = json.loads(flatwater("evaluate", str(folder), "--json", *(["--holdout"] if holdout else [])))
        lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    spent = sum(phase["cpu_seconds"] for line in lines for phase in line["phases"].values())
    return {
        "returns": {name: played["players"][name]["return"] for name in PLAYERS},
        "accuracy": {name: played["players"][name]["accuracy"] for name in PLAYERS},
        "cpu_seconds": spent,
        "resident": [line["resident"] for line in lines],
    }


def main() -> int:
    """Measure what was asked for, print it, compare it with the claim."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--holdout", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = {}
    for seed in options.seeds:
        found[seed] = measured = run(seed, options.rounds, holdout=options.holdout)
        if not options.json:
            returns = ", ".join(f"{name} {value:.2f}" for name, value in measured["returns"].items())
            print(f"seed {seed}: return {returns}; {measured['cpu_seconds']:.0f} CPU s", flush=True)
    if options.json:
        print(json.dumps(found, indent=1))
    return 1 if any(not learned(measured["returns"]) for measured in found.values()) else 0


def learned(returns: dict[str, float]) -> bool:
    """Whether the policy is above growing nothing, and above chance, by the margin."""
    return returns["policy"] >= MARGIN + max(returns["wait"], returns["random"])


if __name__ == "__main__":
    sys.exit(main())
