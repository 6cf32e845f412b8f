"""Whether a policy learns to grow networks: whole runs of `flatwater train grow`, judged on episodes not trained on.

    python benchmarks/flatwater/bench_growing.py [--seeds 0 1 2] [--rounds N] [--holdout] [--json]

The policy's mean return must be 0.3 above that of growing nothing and 0.3 above that of random operations, and above
that of the rule of thumb; capable hosts must end at most 1 point of accuracy below those that are left alone: on the
held-out episodes or, with --holdout, on others that no run looks at by itself. A run's phases take at most 230 seconds
of CPU time, unless --rounds gives it another length than the default; beside them is said what the whole command takes,
from its start to its picture. Exits with 1 where one of this is not so.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "shared"))

from claims import Claim, record_claims

MARGIN, POINT, CPU_SECONDS = 0.3, 0.01, 230
FLATWATER = [sys.executable, "-c", "import sys; from flatwater.cli.main import main; sys.exit(main())"]
KINDS = ("capable", "impaired")
PLAYERS = ("policy", "heuristic", "wait", "random")


def flatwater(*words: str) -> str:
    """Run the command and return its output; with one torch thread, so that runs side by side are as one alone."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([*FLATWATER, *words], check=True, stdout=subprocess.PIPE, text=True, env=env).stdout


def cpu_seconds_of_children() -> float:
    """Return the CPU seconds of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(seed: int, rounds: int | None, *, holdout: bool) -> dict[str, Any]:
    """Train, and play the episodes."""
    with tempfile.TemporaryDirectory(prefix="flatwater-growing-") as place:
        folder = Path(place) / "run"
        length = [] if rounds is None else ["--rounds", str(rounds)]
        before = cpu_seconds_of_children()
        flatwater("train", "grow", "--seed", str(seed), *length, "--threads", "1", "--run", str(folder))
        whole = cpu_seconds_of_children() - before
        played = json.loads(flatwater("evaluate", str(folder), "--json", *(["--holdout"] if holdout else [])))
        lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    spent = sum(phase["cpu_seconds"] for line in lines for phase in line["phases"].values())
    return {
        "returns": {name: played["players"][name]["return"] for name in PLAYERS},
        "accuracy": {name: played["players"][name]["accuracy"] for name in PLAYERS},
        "capable": {name: played["players"][name]["accuracy_capable"] for name in PLAYERS},
        "impaired": {name: played["players"][name]["accuracy_impaired"] for name in PLAYERS},
        "cpu_seconds": spent,
        "cpu_seconds_of_the_command": whole,
        "resident": [line["resident"] for line in lines],
    }


def main() -> int:
    """Measure what was asked for, print it, compare it with the claim."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--holdout", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = {}
    for seed in options.seeds:
        found[seed] = measured = run(seed, options.rounds, holdout=options.holdout)
        if not options.json:
            returns = ", ".join(f"{name} {value:.2f}" for name, value in measured["returns"].items())
            capable, impaired = (
                f"{kind} {measured[kind]['policy']:.3f} (wait {measured[kind]['wait']:.3f})" for kind in KINDS
            )
            spent = f"{measured['cpu_seconds']:.0f} of {measured['cpu_seconds_of_the_command']:.0f} CPU s in its phases"
            print(f"seed {seed}: return {returns}; accuracy {capable}, {impaired}; {spent}", flush=True)
    if options.json:
        print(json.dumps(found, indent=1))
    paid = [measured["returns"]["policy"] for measured in found.values()]
    rules = [[each["returns"][rule] for each in found.values()] for rule in ("wait", "random", "heuristic")]
    best = max(map(sum, rules)) / len(found)
    name = f"return of a policy that grows networks, {'held-out' if options.holdout else 'judged'} episodes, each seed"
    right = all(has_learned(each) for each in found.values())
    rival, listed = f"{best:.2f} (best simple rule)", ", ".join(f"{each:.2f}" for each in paid)
    record_claims([Claim("flatwater", "return", name, listed, f"rules + {MARGIN}", right, rival)])
    limit = CPU_SECONDS if options.rounds is None else float("inf")
    return 0 if all(has_learned(measured) and measured["cpu_seconds"] <= limit for measured in found.values()) else 1


def has_learned(measured: dict[str, Any]) -> bool:
    """Whether the policy is above the others, and above waiting and chance by the margin, and harms no capable host."""
    returns, capable = measured["returns"], measured["capable"]
    above = returns["policy"] >= max(MARGIN + returns["wait"], MARGIN + returns["random"], returns["heuristic"])
    return bool(above and capable["policy"] >= capable["wait"] - POINT)


if __name__ == "__main__":
    sys.exit(main())
