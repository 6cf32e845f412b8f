"""A run holds what was planned, little more than the data themselves, and no more after 60 generations than after 10.

    python benchmarks/trading/bench_memory.py [--parts transition growth] [--full] [--json]

Three claims. A replay transition of 108 instruments takes at most 900 bytes (the original: 13.5 to 24.3 MB). A run of
the full size (669 columns, a window of 504 days, P = 16, all 50,000 places of the replay filled, learning, checkpoints,
metrics and result written) peaks at 4 GB or less, and what it owns is at most 1.1 x the floor of the reference. At S,
the resident memory of a whole session grows by 2 MB or less from generation 10 to 60.

Every run is a fresh process that calls what `flatwater train erl` calls. To save time both learn less: 8 updates a
generation for the growth; for the full size learning begins in the fifth generation, when the replay is full, with 1
update, and again with 3: the peak does not depend on the number of updates. Exits with 1 where a claim fails.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "shared"))

import torch
from claims import Claim
from fresh import peak_of, run_fresh
from parts import measure_parts, report_parts
from rich.console import Console
from sizes import config_of

from flatwater.algorithms.config import DDPGConfig
from flatwater.checkpoints.config import CheckpointConfig
from flatwater.metrics.jsonl import read_metrics
from flatwater.replay.config import RowReplayConfig
from flatwater.rundir.layout import RunFolder
from flatwater.runs.session import restore_run, start_new_run
from flatwater.state.tree import nbytes
from flatwater_trading.panel.locate import load_panel
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_trading.recipe.run import ErlRun
from flatwater_trading.training.config import replay_capacity
from flatwater_trading.training.learner import LearnerConfig
from flatwater_trading.training.row_replay import build_row_replay
from flatwater_watch.meters.process import resident_bytes

BYTES_OF_TRANSITION, PEAK, GROWTH = 900, 4e9, 2e6
FLOOR = {"panel": 91e6, "observations": 51e6, "networks": 252e6, "adam": 252e6, "champion": 16e6, "replay": 12e6}
"""Bytes that the reference counts as unavoidable at the full size: 0.67 GB, with its networks."""
OVER_FLOOR = 1.1
GROWS_FROM, GROWS_TO = 10, 60
SMALL_RUN_UPDATES, FULL_RUN_UPDATES = 8, (1, 3)
CPU, META = torch.device("cpu"), torch.device("meta")


def transition() -> dict[str, Any]:
    """Exact bytes of a replay transition of 108 instruments."""
    config, capacity = RowReplayConfig(), 50_000

    def each(*, account: bool, prioritised: bool) -> float:
        replay = build_row_replay(
            replace(config, prioritised=prioritised),
            capacity=capacity,
            instruments=108,
            sees_account=account,
            device=META,
        )
        held = sum(size for path, size in nbytes(replay).items() if path != "appended")
        return held / capacity

    return {
        "bytes": each(account=False, prioritised=False),
        "bytes_prioritised": each(account=False, prioritised=True),
        "bytes_with_account": each(account=True, prioritised=False),
        "limit": BYTES_OF_TRANSITION,
    }


def growth_config() -> ErlRunConfig:
    """S, 60 generations, 8 updates in each."""
    config = config_of("S", rounds=GROWS_TO)
    return replace(config, learner=config.learner.with_algorithm_settings(updates=SMALL_RUN_UPDATES))


def full_config(updates: int) -> ErlRunConfig:
    """The full size; learning begins when the replay is full: 80 episodes of 145 days a generation, so in the fifth."""
    config = config_of("FULL", rounds=5)
    return replace(
        config,
        learner=LearnerConfig(algorithm="ddpg", ddpg=DDPGConfig(updates=updates)),
        replay=replace(config.replay, warmup=replay_capacity(config)),
        checkpoints=CheckpointConfig(keep=1),
    )


def session(config: ErlRunConfig, folder: Path) -> dict[str, Any]:
    """In a fresh process: a whole session, and what it left. The console is there, but prints nowhere."""
    before = resident_bytes()
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        outcome = start_new_run(config, folder, Console(file=nowhere))
    peak = peak_of(outcome.folder)
    return {"finished": outcome.finished, "before": before, "after": resident_bytes(), "peak": peak}


def prepare(config: ErlRunConfig) -> dict[str, Any]:
    """In a process of its own: generate and store the panel, so that a run finds it as it finds an imported one."""
    panel = load_panel(config.panel)
    return {"columns": len(panel.instruments), "days": len(panel.dates)}


def weigh(config: ErlRunConfig, folder: Path) -> dict[str, Any]:
    """In a fresh process: what the run of a folder owns, by owner, restored; and its plan on the meta device."""
    composed, _ = restore_run(config, RunFolder(folder), say=lambda _: None)
    assert isinstance(composed, ErlRun)
    run, panel = composed.trainer.run, composed.panel
    held = nbytes(run)
    return {
        "plan_is_held": composed.plan.owners == held,
        "owners": by_owner(held) | {"panel (mapped)": int(panel.values.nbytes + panel.valid.nbytes)},
        "networks": sum(rows.nbytes for rows, _ in run.learner.trained.values()),
    }


def by_owner(held: dict[str, int]) -> dict[str, int]:
    """Bytes by the first two names of their paths for the learner and the market, by the first one for the others."""
    owners: dict[str, int] = {}
    for path, size in held.items():
        names = path.split(".")
        owner = ".".join(names[: 2 if names[0] in {"learner", "market"} else 1])
        owners[owner] = owners.get(owner, 0) + size
    return dict(sorted(owners.items(), key=lambda item: -item[1]))


def fresh(part: str, updates: int, folder: Path) -> dict[str, Any]:
    """Run a part in a fresh process and read what it printed."""
    arguments = ["--in-process", part, "--updates", str(updates), "--folder", str(folder)]
    return run_fresh(__file__, arguments)


def in_process(part: str, updates: int, folder: Path) -> dict[str, Any]:
    """Measure a part in this process, which is fresh."""
    if part == "growth":
        return session(growth_config(), folder)
    config = full_config(updates)
    if part == "panel":
        return prepare(config)
    return session(config, folder) if part == "full" else weigh(config, folder)


def growth() -> dict[str, Any]:
    """Resident memory after each generation, as the session itself recorded it in metrics.jsonl."""
    with tempfile.TemporaryDirectory(prefix="flatwater-growth-") as name:
        folder = Path(name) / "run"
        fresh("growth", SMALL_RUN_UPDATES, folder)
        resident = [int(size) for size in read_metrics(RunFolder(folder).metrics)["memory/resident"]]
    window = resident[GROWS_FROM - 1 : GROWS_TO]
    return {
        "resident": resident,
        "grown": window[-1] - window[0],
        "highest_above_first": max(window) - window[0],
        "limit": GROWTH,
    }


def full() -> dict[str, Any]:
    """Peaks of two runs that differ in their updates, and what the last one owns."""
    runs = []
    with tempfile.TemporaryDirectory(prefix="flatwater-full-") as name:
        folder = Path(name)
        fresh("panel", FULL_RUN_UPDATES[0], folder)
        for updates in FULL_RUN_UPDATES:
            run = folder / f"updates-{updates}"
            found = fresh("full", updates, run)
            fill = float(read_metrics(RunFolder(run).metrics)["buffer/fill"][-1])
            runs.append({"updates": updates, "peak": found["peak"], "after": found["after"], "fill": fill})
        owned = fresh("weigh", updates, run)
    total, floor = sum(owned["owners"].values()), sum(FLOOR.values())
    data = FLOOR["panel"] + FLOOR["observations"] + FLOOR["replay"]
    # Targets beside the networks (as the reference's 252 MB count them), and two moments.
    smaller = data + 4 * owned["networks"]
    return {
        "runs": runs,
        "owned": total,
        "floor": floor,
        "ratio": total / floor,
        "floor_of_our_networks": smaller,
    } | owned


def failures(found: dict[str, Any]) -> list[str]:
    """The claims that do not hold."""
    wrong = []
    if "transition" in found and found["transition"]["bytes"] > BYTES_OF_TRANSITION:
        wrong.append("bytes per transition")
    if "growth" in found and found["growth"]["grown"] > GROWTH:
        wrong.append("growth")
    if "full" in found:
        part = found["full"]
        wrong += ["peak"] * any(run["peak"] > PEAK for run in part["runs"])
        wrong += ["replay not full"] * any(run["fill"] < 1 for run in part["runs"])
        wrong += ["owned against floor"] * (part["ratio"] > OVER_FLOOR)
        wrong += ["plan is not what is held"] * (not part["plan_is_held"])
    return wrong


def claims(found: dict[str, Any]) -> Iterator[Claim]:
    """Yield the claims of each part."""
    if part := found.get("transition"):
        taken, name = part["bytes"], "bytes of a transition in the replay, 108 instruments"
        right = taken <= BYTES_OF_TRANSITION
        rival = "13.5 to 24.3 MB (whole windows, computed)"
        yield Claim("trading", "transition", name, f"{taken:.0f}", f"≤ {BYTES_OF_TRANSITION}", right, rival)
    if part := found.get("growth"):
        grown, name = part["grown"], f"growth of resident memory, generations {GROWS_FROM} to {GROWS_TO}"
        yield Claim("trading", "growth", name, f"{grown / 1e6:.2f} MB", f"≤ {GROWTH / 1e6:.0f} MB", grown <= GROWTH)
    if part := found.get("full"):
        peak = max(run["peak"] for run in part["runs"])
        name = "highest resident memory: 16 traders, 669 columns, windows of 504 days, 50,000 transitions"
        yield Claim("trading", "full", name, f"{peak / 1e9:.2f} GB", f"≤ {PEAK / 1e9:.0f} GB", peak <= PEAK)


def show(found: dict[str, Any]) -> None:
    """Print what was measured."""
    if "transition" in found:
        part = found["transition"]
        print(
            f"bytes per replay transition, 108 instruments: {part['bytes']:.0f} (limit {part['limit']}); prioritised "
            f"{part['bytes_prioritised']:.0f}; with account block {part['bytes_with_account']:.0f}"
        )
    if "growth" in found:
        part = found["growth"]
        print("resident MB after generation, S, whole session:")
        at = [1, 2, 5, *range(GROWS_FROM, GROWS_TO + 1, 10)]
        print("".join(f"{n:>8}" for n in at))
        print("".join(f"{part['resident'][n - 1] / 1e6:>8.1f}" for n in at))
        print(
            f"grown from {GROWS_FROM} to {GROWS_TO}: {part['grown'] / 1e6:.2f} MB, highest between "
            f"{part['highest_above_first'] / 1e6:.2f} MB above {GROWS_FROM} (limit {GROWTH / 1e6:.0f})"
        )
    if "full" in found:
        show_full(found["full"])


def show_full(part: dict[str, Any]) -> None:
    """Print the full size's table."""
    for run in part["runs"]:
        print(
            f"FULL, {run['updates']} updates, replay {run['fill']:.0%} full: peak resident {run['peak'] / 1e9:.2f} GB "
            f"(limit {PEAK / 1e9:.0f}), at the end {run['after'] / 1e9:.2f}"
        )
    for owner, size in part["owners"].items():
        if size >= 1e5:
            print(f"{size / 1e6:>10.1f} MB  {owner}")
    print(f"{part['owned'] / 1e6:>10.1f} MB  owned: {part['ratio']:.2f} x the floor of {part['floor'] / 1e9:.2f} GB")
    smaller = part["floor_of_our_networks"]
    print(f"{smaller / 1e6:>10.1f} MB  that floor with networks of our size: {part['owned'] / smaller:.2f} x")
    print(f"plan on the meta device == held: {part['plan_is_held']}")


def main() -> int:
    """Measure what was asked for, print it, compare it with the claims."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", choices=["transition", "growth"], default=["transition", "growth"])
    parser.add_argument("--full", action="store_true", help="the full size too: about 10 minutes of CPU, 4 GB")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--in-process", help=argparse.SUPPRESS)
    parser.add_argument("--updates", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.in_process:
        print(json.dumps(in_process(options.in_process, options.updates, options.folder)))
        return 0
    parts: dict[str, Callable[[], Any]] = {"transition": transition, "growth": growth, "full": full}
    wanted = [*options.parts, *(["full"] if options.full else [])]
    found = measure_parts(parts, wanted)
    return report_parts(found, show, failures, claims, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
