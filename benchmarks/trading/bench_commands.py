"""Peak memory of each command, beside its own plan and beside training.

    python benchmarks/trading/bench_commands.py [--recipe erl] [--size FULL] [--updates 2] [--json]

A run is trained for one round on a synthetic market of that size (of `sizes.py`; FULL is 669 columns, 3,781 days and a
window of 504), with few updates, as each is like the others. Then `orders`, `evaluate`, `evaluate --holdout` (what a
study plays on its test days), `backtest` and `export` use it, each in a process of its own. Exits with 1 where a peak
is above the command's own plan, or, of traders, above training's. `--recipe weights` does the same with target weights
in all of the columns.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "shared"))

from claims import Claim
from fresh import run_fresh
from parts import measure_parts, report_parts
from sizes import INVESTABLE_OF_FULL, SIZES

from flatwater.cli.main import main as flatwater

WRITTEN = "champion.safetensors"
"""Beside the run."""
PLAN_OF_EXPORT = """
import sys, flatwater
from flatwater.runs.policy_export import plan_export
print(plan_export(flatwater.load(sys.argv[1]).to_export(), ".safetensors", None).needed_bytes)
"""
COMMANDS = {
    "orders": ["orders"],
    "evaluate": ["evaluate"],
    "study's test": ["evaluate", "--holdout"],
    "backtest": ["backtest", "--force"],
    "export": ["export", "--to", WRITTEN],
}


def in_process(words: list[str]) -> dict[str, Any]:
    """Run a command of Flatwater in this process, its output to nowhere, and say what it took."""
    kept = os.dup(1)
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123  (a device)
        os.dup2(nowhere.fileno(), 1)
        code = flatwater(words)
        sys.stdout.flush()
        os.dup2(kept, 1)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {"code": code, "peak": used.ru_maxrss * 1024, "cpu": used.ru_utime + used.ru_stime}


def plan_of(words: list[str]) -> int:
    """Return the peak that a command plans."""
    if words[0] == "export":  # tells its plan as a table alone
        done = subprocess.run([sys.executable, "-c", PLAN_OF_EXPORT, words[1]], check=True, stdout=subprocess.PIPE)
        return int(done.stdout)
    asked = [str(Path(sys.executable).with_name("flatwater")), *words, "--plan", "--json"]
    done = subprocess.run(asked, check=True, stdout=subprocess.PIPE)
    return int(json.loads(done.stdout)["needed_bytes"])


def settings_of(recipe: str, size: str, updates: int) -> list[str]:
    """Return the options of a run of that size."""
    columns, days, context, members = SIZES[size]
    if recipe == "weights":
        return ["--panel", f"synthetic:{columns}x{days}", "--learner.updates", str(updates)]
    watched = f":context_instruments={columns - INVESTABLE_OF_FULL}" if size == "FULL" else ""
    settings = ["--panel", f"synthetic:{columns}x{days}{watched}", "--population.size", str(members)]
    return [*settings, "--env.episode.context", str(context), "--learner.hindsight.updates", str(updates)]


def bench(recipe: str, size: str, updates: int) -> dict[str, Any]:
    """Training, then every command."""
    with tempfile.TemporaryDirectory(prefix="flatwater-commands-") as name:
        run = str(Path(name) / "run")
        settings = [*settings_of(recipe, size, updates), "--rounds", "1", "--threads", "1", "--trackers"]
        words = ["train", recipe, *settings, "--run", run, "--quiet"]
        training = run_fresh(__file__, ["--in-process", json.dumps(words)])
        training["plan"] = json.loads((Path(run) / "plan.json").read_text())["needed_bytes"]
        found = {"train": training}
        say("train", training)
        for command, asked in COMMANDS.items():
            beside = [str(Path(name) / word) if word == WRITTEN else word for word in asked[1:]]
            words = [asked[0], run, *beside]
            planned = plan_of([word for word in words if word != "--force"])
            found[command] = run_fresh(__file__, ["--in-process", json.dumps(words)]) | {"plan": planned}
            say(command, found[command])
    return found


def say(name: str, row: dict[str, Any]) -> None:
    """Print a row as soon as it is measured, since all of them take long."""
    print(f"{name}: {row}", file=sys.stderr, flush=True)


def failures(found: dict[str, Any]) -> list[str]:
    """The claims that do not hold."""
    wrong = []
    for recipe, rows in found.items():
        wrong += [f"{name}: exit {row['code']}" for name, row in rows.items() if row["code"]]
        wrong += [f"{name}: above its plan" for name, row in rows.items() if row["peak"] > row["plan"]]
        if recipe == "erl":  # target weights are trained in less than it takes to play them against every rule
            highest = rows["train"]["peak"]
            wrong += [f"{name}: above training" for name, row in rows.items() if row["peak"] > highest]
    return wrong


def claims(found: dict[str, Any]) -> Iterator[Claim]:
    """Yield the claims of the commands."""
    if (rows := found.get("weights")) is not None:
        share = max(row["peak"] / row["plan"] for row in rows.values())
        name = "highest resident memory of a command of target weights, over its plan"
        yield Claim("trading", "peak of weights", name, f"{share:.2f}", "≤ 1", reached=share <= 1)
    if (rows := found.get("erl")) is None:
        return
    training, most = rows["train"]["peak"], max(row["peak"] for name, row in rows.items() if name != "train")
    name = "highest resident memory of a command that uses a run, beside training"
    measured_, wanted = f"{most / 1e6:,.0f} MB", f"≤ {training / 1e6:,.0f} MB"
    yield Claim("trading", "peak", name, measured_, wanted, reached=not failures(found))


def show(found: dict[str, Any]) -> None:
    """Print what was measured."""
    for recipe, rows in found.items():
        show_rows(recipe, rows)


def show_rows(recipe: str, rows: dict[str, Any]) -> None:
    """Print what was measured of a recipe."""
    print(f"\n| {recipe} | peak | over training's | planned | over its plan | CPU s |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, row in rows.items():
        peak, plan = row["peak"], row["plan"]
        shares = f"{peak / rows['train']['peak']:.2f} | {plan / 1e6:,.0f} MB | {peak / plan:.2f}"
        print(f"| {name} | {peak / 1e6:,.0f} MB | {shares} | {row['cpu']:.0f} |")


def main() -> int:
    """Measure, print, compare with the claims."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", choices=("erl", "weights"), default="erl")
    parser.add_argument("--size", choices=list(SIZES), default="FULL")
    parser.add_argument("--updates", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--in-process", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.in_process:
        print(json.dumps(in_process(json.loads(options.in_process))))
        return 0
    recipe = options.recipe
    found = measure_parts({recipe: lambda: bench(recipe, options.size, options.updates)}, [recipe])
    return report_parts(found, show, failures, claims, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
