"""The memory contract keeps its promises: it explains what is resident, costs little, is silent on flat runs.

    python benchmarks/flatwater/bench_contract.py [--parts plan explained cost flat windows] [--pairs 5] [--json]

Parts:
  plan       planned minus held bytes of the state at S, M and the full size: 0.
  explained  share of the resident memory that has an owner, over 20 generations at S: 97 % or more.
  cost       CPU seconds of a run at S with the contract over those without it, in pairs: 1.01 or less. The contract's
             own CPU seconds, counted inside the run, stand beside it: on a noisy machine they are the sharper number.
  flat       five recipes x three seeds, 60 generations each: no finding.
  windows    windows stored whole (`stored_windows.py`): verdict filling, its plateau within 2 % of the truth, and the
             round in which the budget is reached, forecast within 10 %.

Every run is a fresh process. Exits with 1 where a claim fails.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "shared"))

from claims import Claim
from contract_runs import count_contract_, recipes, train_session, windows_config, without_contract_
from fresh import run_fresh
from parts import measure_parts, report_parts
from sizes import config_of
from stored_windows import store_windows_

from flatwater.state.tree import nbytes
from flatwater_trading.recipe import run as erl_run

EXPLAINED, COST, PLATEAU, FORECAST = 0.97, 1.01, 0.02, 0.10
COST_ROUNDS, EXPLAINED_ROUNDS = 20, 20
SEEDS = (0, 1, 2)


def in_process(part: str, argument: str) -> dict[str, Any]:
    """Measure a part in this process, which is fresh."""
    if part == "plan":
        whole = erl_run.compose(config_of(argument))
        held, planned = nbytes(whole.trainer.run), {**whole.plan.owners, **whole.plan.mapped}
        return {"planned": sum(planned.values()), "held": sum(held.values()), "same_owners": planned == held}
    with tempfile.TemporaryDirectory(prefix="flatwater-contract-") as name:
        folder = Path(name) / "run"
        if part == "cost":
            if argument == "without":
                without_contract_()
                return {"cpu": train_session(config_of("S", rounds=COST_ROUNDS), folder)["cpu"], "inside": 0.0}
            clock = count_contract_()
            return {"cpu": train_session(config_of("S", rounds=COST_ROUNDS), folder)["cpu"], "inside": clock.seconds}
        if part == "explained":
            return train_session(config_of("S", rounds=EXPLAINED_ROUNDS), folder)
        if part == "windows":
            store_windows_()
            return train_session(windows_config(), folder)
        setup, _, seed = argument.partition(":")
        return train_session(replace(recipes()[setup], seed=int(seed)), folder)


def fresh(part: str, argument: str = "") -> dict[str, Any]:
    """Run a part in a fresh process and read what it printed."""
    return run_fresh(__file__, ["--in-process", part, "--argument", argument])


def bench_plan() -> dict[str, Any]:
    """Planned against held."""
    return {size: fresh("plan", size) for size in ("S", "M", "FULL")}


def bench_explained() -> dict[str, Any]:
    """The worst share of a run."""
    found = fresh("explained")
    pairs = zip(found["unaccounted"], found["resident"], strict=True)
    shares = [1 - abs(rest) / resident for rest, resident in pairs]
    return {"worst": min(shares), "unaccounted": found["unaccounted"], "resident": found["resident"]}


def bench_cost(pairs: int) -> dict[str, Any]:
    """Pairs of runs, in alternating order."""
    ratios, inside = [], []
    for n in range(pairs):
        order = ("with", "without") if n % 2 else ("without", "with")
        runs = {kind: fresh("cost", kind) for kind in order}
        ratios.append(runs["with"]["cpu"] / runs["without"]["cpu"])
        inside.append(runs["with"]["inside"] / runs["with"]["cpu"])
    return {"ratios": ratios, "median": median(ratios), "inside": median(inside)}


def bench_flat() -> dict[str, Any]:
    """Findings of runs that have nothing to find."""
    return {f"{setup}:{seed}": fresh("flat", f"{setup}:{seed}")["findings"] for setup in recipes() for seed in SEEDS}


def bench_windows() -> dict[str, Any]:
    """Hold what was first said of the windows against what happened."""
    found = fresh("windows")
    about = [f for f in found["findings"] if f["owner"].startswith("replay.windows")]
    true_plateau = sum(size for path, size in found["owners"].items() if path.startswith("replay.windows"))
    first = about[: len({f["owner"] for f in about})]
    reached = len(found["resident"]) + 1
    plateau = sum({f["owner"]: f["plateau_bytes"] or 0 for f in first}.values())
    return {
        "exit": found["exit"],
        "verdicts": sorted({f["verdict"] for f in about}),
        "plateau_error": abs(plateau / true_plateau - 1),
        "told_at": min((f["round"] for f in first), default=None),
        "forecast": first[0]["limit_step"] if first else None,
        "reached": reached,
        "forecast_error": abs(first[0]["limit_step"] / reached - 1) if first and first[0]["limit_step"] else None,
    }


def failures(found: dict[str, Any]) -> list[str]:
    """The claims that do not hold."""
    wrong = []
    for size, part in found.get("plan", {}).items():
        wrong += [f"plan at {size}"] * (not part["same_owners"])
    if "explained" in found and found["explained"]["worst"] < EXPLAINED:
        wrong.append("explained")
    if "cost" in found and min(found["cost"]["median"] - 1, found["cost"]["inside"]) > COST - 1:
        wrong.append("cost")
    wrong += [f"finding in {run}" for run, findings in found.get("flat", {}).items() if findings]
    if "windows" in found:
        part = found["windows"]
        wrong += ["windows: verdict"] * (part["verdicts"] != ["filling"])
        wrong += ["windows: plateau"] * (part["plateau_error"] > PLATEAU)
        wrong += ["windows: forecast"] * (part["forecast_error"] is None or part["forecast_error"] > FORECAST)
    return wrong


def claims(found: dict[str, Any]) -> Iterator[Claim]:
    """Yield the claims of each part."""
    if sizes := found.get("plan"):
        apart = " / ".join(str(part["planned"] - part["held"]) for part in sizes.values())
        name = f"bytes of a run's state that are planned and not held, at {', '.join(sizes)}"
        yield Claim("flatwater", "plan", name, apart, "0", all(part["same_owners"] for part in sizes.values()))
    if part := found.get("explained"):
        worst, name = part["worst"], f"resident memory that has an owner, the worst of {EXPLAINED_ROUNDS} generations"
        yield Claim("flatwater", "explained", name, f"{worst:.1%}", f"≥ {EXPLAINED:.0%}", worst >= EXPLAINED)
    if part := found.get("cost"):
        inside, name = part["inside"], "plan, ledger and drift, of a run's CPU seconds, counted inside"
        note = f"In pairs of runs: {part['median']:.3f} ×."
        yield Claim("flatwater", "cost", name, f"{inside:.2%}", f"≤ {COST - 1:.0%}", inside <= COST - 1, note=note)
    if runs := found.get("flat"):
        accused = sum(map(bool, runs.values()))
        yield Claim("flatwater", "flat", "flat runs with a finding", f"{accused} of {len(runs)}", "0", accused == 0)


def show(found: dict[str, Any]) -> None:
    """Print what was measured."""
    for size, part in found.get("plan", {}).items():
        difference = part["planned"] - part["held"]
        print(f"plan at {size}: {part['planned']:,} bytes, held {part['held']:,}: difference {difference}")
    if "explained" in found:
        part = found["explained"]
        print(
            f"explained at S, {EXPLAINED_ROUNDS} generations: {part['worst']:.2%} at the worst (limit {EXPLAINED:.0%})"
        )
        print("  unaccounted MB: " + " ".join(f"{rest / 1e6:.1f}" for rest in part["unaccounted"]))
    if "cost" in found:
        part = found["cost"]
        listed = " ".join(f"{ratio:.3f}" for ratio in part["ratios"])
        print(f"CPU with contract over without, S, {COST_ROUNDS} generations: median {part['median']:.3f} ({listed})")
        print(f"  counted inside the run: {part['inside']:.2%} of its CPU seconds (limit {COST - 1:.0%})")
    if "flat" in found:
        told = {run: findings for run, findings in found["flat"].items() if findings}
        print(f"flat runs with findings: {len(told)} of {len(found['flat'])} {list(told)}")
    if "windows" in found:
        print("stored windows: " + ", ".join(f"{name} {value}" for name, value in found["windows"].items()))


def main() -> int:
    """Measure what was asked for, print it, compare it with the claims."""
    names = ["plan", "explained", "cost", "flat", "windows"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", choices=names, default=names)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--in-process", help=argparse.SUPPRESS)
    parser.add_argument("--argument", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.in_process:
        print(json.dumps(in_process(options.in_process, options.argument)))
        return 0
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "plan": bench_plan,
        "explained": bench_explained,
        "cost": lambda: bench_cost(options.pairs),
        "flat": bench_flat,
        "windows": bench_windows,
    }
    found = measure_parts(parts, options.parts)
    return report_parts(found, show, failures, claims, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
