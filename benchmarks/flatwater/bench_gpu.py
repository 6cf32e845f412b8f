"""Traders on a CUDA device: does it wait, how far is it from the floor, is it held as planned, does it repeat itself?

    python benchmarks/flatwater/bench_gpu.py [--sizes S M FULL] [--rounds 50] [--json]

Each size once for each question, all members of a generation on one device:

waits      0 in every phase that computes (`torch.cuda.set_sync_debug_mode("error")`): a wait ends the phase. Selection
           and the choice of the champion read one number a generation, and are left out
kernels    started in a phase, and the share of its time in which none ran; wanted: at most 0.3 idle at FULL
seconds    of a phase by the device's events; `floor` is the time in which the device copies what learning must read and
           write at least: each update's observations ten times. Wanted: learn within 2 x its floor
bytes      asked of the allocator when the run is built, less planned: 0 or below
repeats    two runs of the same seed have the same bits
reserved   bytes that torch's allocator has after the last of many generations over those after the tenth: 1.0

Where there is no CUDA device it says so and ends with 0. --device cpu tries the program itself out, without questions
that only CUDA can answer; its numbers mean nothing. Exit status 1 where an answer is not the one that is wanted.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "shared"))

import torch
from claims import Claim, record_claims
from sizes import Silent, config_of

from flatwater.state.tree import leaves
from flatwater.trainers.loop import Phase, train_
from flatwater_trading.recipe.run import ErlRun, compose
from flatwater_trading.training.batch_sizes import window_bytes
from flatwater_trading.training.executor import LocalTileExecutor

PASSES = 10
"""Times that an update reads or writes its observations at least: gathered three times, and read seven times."""


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    """Time some work, by the device's clock where it has one."""
    if device.type != "cuda":
        began = time.perf_counter()
        work()
        return time.perf_counter() - began
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]  # type: ignore[no-untyped-call]
    marks[0].record()
    work()
    marks[1].record()
    marks[1].synchronize()
    return float(marks[0].elapsed_time(marks[1])) / 1000


def bytes_per_second(device: torch.device) -> float:
    """Read and written by a copy of 256 MiB."""
    source = torch.ones(64 << 20, device=device)
    target = torch.empty_like(source)
    target.copy_(source)
    return 2 * source.nbytes / seconds_of(lambda: target.copy_(source), device)


def build_run(size: str, device: torch.device, seed: int = 0) -> ErlRun:
    """A run of a size on the device."""
    return compose(replace(config_of(size, seed=seed), device=str(device)))


def steps_of(phase: Phase) -> Callable[[], None]:
    """All steps of a phase."""

    def work() -> None:
        for step in range(phase.steps()):
            phase.step_(step)

    return work


def kernels_of(work: Callable[[], object]) -> tuple[int, float]:
    """Kernels that were started, and the share of the time in which none ran."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        work()
        torch.cuda.synchronize()
    spans = sorted((e.time_range.start, e.time_range.end) for e in profile.events())
    if not spans:
        return 0, 1.0
    busy, last = 0.0, spans[0][0]
    for start, end in spans:
        busy += max(0.0, end - max(start, last))
        last = max(last, end)
    return len(spans), 1 - busy / (last - spans[0][0])


def phases(size: str, device: torch.device) -> list[dict[str, Any]]:
    """Measure the phases of a generation: the first one warms up, the second is timed, and later ones are looked at."""
    run = build_run(size, device)
    train_(run.trainer, 1, Silent())
    setup, rows = run.setup, []
    executor = LocalTileExecutor(setup, run.trainer.run)
    learnt = setup.config.learner.own.updates * setup.members * window_bytes(setup.config, run.trainer.run.market)
    floor = PASSES * learnt / bytes_per_second(device)
    for phase in run.trainer.phases:
        work = steps_of(phase)
        row: dict[str, Any] = {"size": size, "phase": phase.name, "seconds": seconds_of(work, device)}
        if phase.name == "learn":
            row["floor"] = floor
        if device.type == "cuda" and phase.name != "evolve":  # selection reads the fitness, once a generation
            row["waits"] = waits_in(work if phase.name != "validate" else partial(judge, executor, phase.steps()))
            row["kernels"], row["idle"] = kernels_of(work)
        rows.append(row)
    return rows


def judge(executor: LocalTileExecutor, tiles: int) -> None:
    """Compute what `validate` does, whose last step also crowns the champion, for which it reads a number."""
    for tile in range(tiles):
        executor.validate(tile)


def waits_in(work: Callable[[], object]) -> str:
    """The first wait for the device; empty where there is none."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        work()
    except RuntimeError as waited:
        return str(waited)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return ""


def more_than_planned(size: str, device: torch.device) -> int:
    """Bytes that building the run asks for, less planned. What the allocator gives is more: it rounds."""
    if device.type != "cuda":
        return 0
    before = torch.cuda.memory_stats(device)["requested_bytes.all.current"]
    run = build_run(size, device)
    asked: int = torch.cuda.memory_stats(device)["requested_bytes.all.current"] - before
    return asked - run.plan.total_bytes


def bits_of(run: ErlRun) -> str:
    """A hash of everything that the run keeps."""
    digest = sha256()
    for leaf in leaves(run.trainer.run):
        if isinstance(leaf.value, torch.Tensor):
            digest.update(leaf.value.cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def repeats(size: str, device: torch.device) -> bool:
    """Whether two runs of a generation have the same bits."""
    found = set()
    for _ in range(2):
        run = build_run(size, device)
        train_(run.trainer, 1, Silent())
        found.add(bits_of(run))
    return len(found) == 1


def growth_of_reserved(rounds: int, device: torch.device) -> float:
    """Measure the growth of reserved memory at size S, from the tenth generation to the last."""
    if device.type != "cuda":
        return 1.0
    run = build_run("S", device)
    train_(run.trainer, min(10, rounds), Silent())
    early = torch.cuda.memory_reserved(device)
    train_(run.trainer, rounds, Silent())
    return torch.cuda.memory_reserved(device) / early


def answers(options: argparse.Namespace, device: torch.device) -> tuple[dict[str, Any], bool]:
    """All of them, and whether they are those wanted. Times are told and not judged: they are the reader's to judge."""
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "torch": torch.__version__,
        "phases": [row for size in options.sizes for row in phases(size, device)],
        "more_than_planned": {size: more_than_planned(size, device) for size in options.sizes},
        "repeats": {size: repeats(size, device) for size in options.sizes},
        "growth_of_reserved": growth_of_reserved(options.rounds, device),
    }
    good = (
        not any(row.get("waits") for row in found["phases"])
        and max(found["more_than_planned"].values()) <= 0
        and all(found["repeats"].values())
        and found["growth_of_reserved"] <= 1
    )
    return found, good


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["S", "M", "FULL"], choices=["S", "M", "FULL"])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("This machine has no CUDA device that torch can use: nothing was measured.")
        return 0
    found, good = answers(options, device)
    waiting, phases_ = sum(bool(row.get("waits")) for row in found["phases"]), len(found["phases"])
    name = f"phases that wait for the device ({found['device']})"
    record_claims([Claim("flatwater", "waits", name, f"{waiting} of {phases_}", "0", waiting == 0)])
    if options.json:
        print(json.dumps(found, indent=1))
        return 0 if good else 1
    print(f"{found['device']}, torch {found['torch']}")
    print("size  phase       seconds     floor  kernels   idle  waits")
    for row in found["phases"]:
        floor, idle = (f"{row[name]:.3f}" if name in row else "-" for name in ("floor", "idle"))
        waits = row.get("waits", "-") or "none"
        print(
            f"{row['size']:<6}{row['phase']:<10}{row['seconds']:>9.3f}{floor:>10}"
            f"{row.get('kernels', '-'):>9}{idle:>7}  {waits}"
        )
    for name in ("more_than_planned", "repeats", "growth_of_reserved"):
        print(f"{name.replace('_', ' ')}: {found[name]}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
