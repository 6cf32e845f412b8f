"""Teaching at constant speed and in constant memory, and whether the student learns.

    python benchmarks/flatwater/bench_teaching.py [--parts memory pace loop rows learning] [--seeds 0 1 2] [--json]

memory: 20,000 steps of 16 agents are collected, in a fresh process: 16 kB of traced allocations are kept or less, and
resident memory grows by 1 MB or less. A second run without tracing tells the resident memory.
pace: 240 rounds of collecting and learning. Agent steps per CPU second over the last tenth are 0.95 of those over the
first tenth or more, each over the pace of a second run beside it, which learns the same first round again and again: a
shared machine is a quarter slower at one minute than at another.
loop: agent steps per CPU second of the whole loop, and of the same loop with lists that are stacked
(`listed_teaching.py`), in turns. No claim: it is told as it is.
rows: a step of a simulator of the foraging game and a copy of what it wrote, against binding it to the row it should
write to. This is why rows are copied.
learning: whole runs of `flatwater train teach`, about 500,000 agent steps each. The student gets half of what the
teacher gets or more, and 20 times what random actions get, on episodes that are not trained on.

Exits with 1 where a claim fails.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "shared"))

import numpy as np
import torch
from claims import Claim
from fresh import run_fresh
from listed_teaching import ListedTeaching
from parts import measure_parts, report_parts

from flatwater.config.mappings import from_mapping
from flatwater.envs.foraging.config import ForagingConfig
from flatwater.envs.foraging.game import Game
from flatwater.envs.foraging.search import SearchTeacher
from flatwater.envs.foraging.world import ForagingWorld
from flatwater.recipes.teach.config import TeachRunConfig
from flatwater.recipes.teach.run import TeachRun, compose
from flatwater.runs.machine import keep_freed_memory, release_freed_memory
from flatwater.state.tree import leaves
from flatwater.trainers.loop import train_
from flatwater_watch.meters.process import resident_bytes

PARTS = ("memory", "pace", "loop", "rows", "learning")
FLATWATER = [sys.executable, "-c", "import sys; from flatwater.cli.main import main; sys.exit(main())"]
STEPS, ROUNDS, TURNS = 20_000, 240, 9
TRACED, RESIDENT = 16e3, 1e6
EVEN = 0.95
OF_TEACHER, TIMES_RANDOM = 0.5, 20
FORAGE = {"world": "forage", "teacher": "search"}
TOLD = ("--world", "forage", "--teacher", "search")
SMALL: dict[str, Any] = {**FORAGE, "envs": 4, "block": 16, "threads": 1, "learner": {"minibatches": 4}}


class Deaf:
    """A watcher that counts CPU seconds of each round, and of what is done between two rounds."""

    def __init__(self, between: Callable[[], None] = release_freed_memory) -> None:
        self.rounds: list[float] = []
        self.pauses: list[float] = []
        self._between, self._since = between, time.process_time()

    def on_step(self, phase: str, done: int, total: int) -> None:
        """Nothing to show."""

    def on_round(self, round_: int, metrics: Mapping[str, float]) -> None:
        """A round has ended."""
        assert round_ == len(self.rounds) + 1
        assert metrics
        self.rounds.append(time.process_time() - self._since)
        self.pauses.append(cpu_seconds(self._between))
        self._since = time.process_time()

    def should_stop(self) -> bool:
        """Never."""
        return False


def compose_game(settings: dict[str, Any]) -> TeachRun:
    """A run of the foraging game."""
    return compose(from_mapping(TeachRunConfig, settings, "a benchmark"))


def collect_steps(*, traced: bool) -> dict[str, float]:
    """In a fresh process: what 20,000 steps leave behind, after two blocks."""
    collector = compose_game(SMALL).trainer.collector
    keep_freed_memory()

    def collect(steps: int) -> None:
        for step in range(steps):
            collector.step_(step % SMALL["block"])
        gc.collect()
        release_freed_memory()

    collect(1024)
    if traced:
        tracemalloc.start()
        collect(64)
        before, _ = tracemalloc.get_traced_memory()
        collect(STEPS)
        return {"kept": tracemalloc.get_traced_memory()[0] - before}
    before = resident_bytes()
    collect(STEPS)
    return {"kept": resident_bytes() - before}


def pace() -> dict[str, float]:
    """Agent steps per CPU second in the first and the last tenth of the rounds, and the same over the other run's."""
    run, watcher = compose_game(SMALL), Deaf(first_round_again())
    train_(run.trainer, ROUNDS + 1, watcher)
    tenth, steps = ROUNDS // 10, SMALL["block"] * run.trainer.setup.agents
    taken, beside = np.array(watcher.rounds)[1:], np.array(watcher.pauses)[1:]  # the first round has the baselines
    first, last = (steps / float(np.median(part)) for part in (taken[:tenth], taken[-tenth:]))
    slower = taken / beside
    ratio = float(np.median(slower[:tenth]) / np.median(slower[-tenth:]))
    return {"first": first, "last": last, "alone": last / first, "ratio": ratio}


def first_round_again() -> Callable[[], None]:
    """A run after its first round; the function learns from this round once more, from the same weights."""
    run = compose_game(SMALL)
    trainer = run.trainer
    train_(trainer, 1, Deaf())
    (learner,), learn = run.learners, trainer.phases[2]
    kept = [(leaf.value, leaf.value.clone()) for leaf in leaves(learner) if isinstance(leaf.value, torch.Tensor)]

    def again() -> None:
        for value, first in kept:
            value.copy_(first)
        for number in range(learn.steps()):
            learn.step_(number)

    return again


def loop() -> dict[str, float]:
    """CPU seconds of a round of the default size, here and with lists: medians of turns that alternate."""
    run = compose_game({"threads": 1})
    setup, trainer = run.trainer.setup, run.trainer
    world = ForagingWorld(ForagingConfig(), setup.config.envs)
    listed = ListedTeaching(run.config.learner, setup.network, run.learners[0].block, world, SearchTeacher(world))
    watcher = Deaf()
    train_(trainer, 1, watcher)
    listed.round(setup.config.block)

    def ours() -> None:
        for phase in trainer.phases[1:3]:
            for number in range(phase.steps()):
                phase.step_(number)

    turns = [(cpu_seconds(ours), cpu_seconds(lambda: listed.round(setup.config.block))) for _ in range(TURNS)]
    steps = setup.agents * setup.config.block
    block, lists = (steps / statistics.median(side) for side in zip(*turns, strict=True))
    return {"block": block, "lists": lists, "ratio": block / lists}


def rows() -> dict[str, float]:
    """Microseconds of a simulator's step, of the copy, and of binding it to another row; four agents."""
    config = ForagingConfig(steps=10**6)
    game, agents = Game(config), config.agents
    written = np.zeros((64, agents, game.tokens, 3), np.uint8)
    block = np.zeros((64, agents, config.tokens, 3), np.uint8)
    over, reward, actions = np.zeros((2, agents), np.bool_), np.zeros(agents, np.float32), np.zeros(agents, np.int32)
    simulator = game.begin(0)

    def bind(t: int) -> None:
        simulator.set_buffers(written[t], over[0], over[1], reward, actions)

    def copy(t: int) -> None:
        np.copyto(block[t], written[0, :, : config.tokens])

    bind(0)
    return {name: each(turn) for name, turn in (("step", lambda _: simulator.step()), ("copy", copy), ("bind", bind))}


def each(turn: Callable[[int], object]) -> float:
    """Microseconds of CPU time: the median of nine rounds over 64 rows, twenty times each."""

    def often() -> None:
        for _ in range(20):
            for t in range(64):
                turn(t)

    return statistics.median(cpu_seconds(often) for _ in range(TURNS)) / (20 * 64) * 1e6


def cpu_seconds(turn: Callable[[], None]) -> float:
    """Return the CPU seconds of a turn in this process, which has one thread."""
    began = time.process_time()
    turn()
    return time.process_time() - began


def learning(seed: int) -> dict[str, float]:
    """A whole run: returns, CPU seconds, agent steps."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(prefix="flatwater-teaching-") as place:
        folder = Path(place) / "run"
        words = ["train", "teach", *TOLD, "--seed", str(seed), "--threads", "1", "--run", str(folder)]
        subprocess.run([*FLATWATER, *words], check=True, stdout=subprocess.PIPE, env=env)
        result = json.loads((folder / "result.json").read_text())
        lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    spent = sum(phase["cpu_seconds"] for line in lines for phase in line["phases"].values() if "steps" in phase)
    student, resident = result["players"]["student"], [line["resident"] for line in lines]
    returns = {name: row["return"] for name, row in result["players"].items()}
    told = {"of_teacher": student["of_teacher"], "times_random": student["times_random"]}
    return returns | told | {"agent_steps": result["agent_steps"], "cpu": spent, "grown": resident[-1] - resident[9]}


def failures(found: dict[str, Any]) -> list[str]:
    """The claims that do not hold."""
    memory, wrong = found.get("memory", {}), []
    wrong += ["traced"] * (memory.get("traced", 0) > TRACED) + ["resident"] * (memory.get("resident", 0) > RESIDENT)
    wrong += ["pace"] * (found.get("pace", {}).get("ratio", 1) < EVEN)
    for seed, run in found.get("learning", {}).items():
        is_short = run["of_teacher"] < OF_TEACHER or run["times_random"] < TIMES_RANDOM
        wrong += [f"seed {seed}"] * is_short
    return wrong


SAID = {
    "memory": "20,000 steps keep {traced:,.0f} traced bytes, and {resident:+,.0f} of resident memory",
    "pace": "agent steps per CPU second: {first:,.0f} in the first tenth, {last:,.0f} in the last ({alone:.3f}); "
    "over the pace of the run that stands still: {ratio:.3f}",
    "loop": "agent steps per CPU second: {block:,.0f} in a block, {lists:,.0f} with lists: {ratio:.2f} x",
    "rows": "µs for four agents: {step:.1f} a step, {copy:.2f} a copy, {bind:.1f} to bind to another row",
}


def claims(found: dict[str, Any]) -> Iterator[Claim]:
    """Yield the claims of each part."""
    if kept := found.get("memory"):
        grown, name = kept["resident"], "growth of resident memory over 20,000 steps of 16 taught agents"
        wanted, right = f"≤ {RESIDENT / 1e6:.0f} MB", grown <= RESIDENT
        yield Claim("flatwater", "memory", name, f"{grown / 1e6:.2f} MB", wanted, right)
    if part := found.get("pace"):
        ratio, name = part["ratio"], "pace of teaching, last over first tenth of 240 rounds"
        yield Claim("flatwater", "pace", name, f"{ratio:.3f}", f"≥ {EVEN}", ratio >= EVEN)
    if part := found.get("loop"):
        name, rival = "agent steps per CPU second of teaching", f"{part['lists']:,.0f} (the same with lists)"
        yield Claim("flatwater", "loop", name, f"{part['block']:,.0f}", rival=rival)
    if runs := found.get("learning"):
        shares = [run["of_teacher"] for run in runs.values()]
        name = "a taught student's return, of its teacher's, each seed"
        listed, right = ", ".join(f"{share:.0%}" for share in shares), min(shares) >= OF_TEACHER
        yield Claim("flatwater", "learning", name, listed, f"≥ {OF_TEACHER:.0%}", right)


def show(found: dict[str, Any]) -> None:
    """Print what was measured."""
    for part, said in SAID.items():
        if part in found:
            print(f"{part}: {said.format(**found[part])}")
    for seed, run in found.get("learning", {}).items():
        print(
            f"seed {seed}: student {run['student']:.1f}, teacher {run['teacher']:.1f}, random {run['random']:.2f}: "
            f"{run['of_teacher']:.0%} and {run['times_random']:.0f} x after {run['agent_steps']:,} agent steps, "
            f"{run['cpu']:.0f} CPU s; resident from round 10 on {run['grown'] / 1e6:+.1f} MB"
        )


def main() -> int:
    """Measure what was asked for, print it, compare it with the claims."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--in-process", choices=["traced", "resident"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.in_process:
        print(json.dumps(collect_steps(traced=options.in_process == "traced")))
        return 0
    parts: dict[str, Callable[[], Any]] = {
        "memory": lambda: {how: run_fresh(__file__, ["--in-process", how])["kept"] for how in ("traced", "resident")},
        "pace": pace,
        "loop": loop,
        "rows": rows,
        "learning": lambda: {seed: learning(seed) for seed in options.seeds},
    }
    found = measure_parts(parts, options.parts)
    return report_parts(found, show, failures, claims, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
