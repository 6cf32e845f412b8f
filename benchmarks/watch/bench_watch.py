"""What `flatwater watch` costs, what it explains, and what other tools say of the same programs.

    python benchmarks/watch/bench_watch.py [--parts NAME …] [--pairs 5] [--only PROGRAM …] [--json]

Parts:
  overhead  CPU seconds of three flat programs under watch over those without, in pairs, without what one round of each
            takes: 1.01 or less, as the median; the bytes that the watch takes: 30 MB or less. Beside it what the watch
            takes of one round, which is its start, and the CPU seconds counted inside. Those leave out the hook at each
            boundary, and what a census leaves behind.
  steps     the hook and a census, in one process, for steps of 8 µs: 1.01 or less. 400 pairs of 40 and 40 ms. Beside
            them the hook's wrapper alone, and what a watch leaves alone: the dicts of instances, a thread that often
            wakes up.
  census    one census of a heap of a million objects, once as a list of records and once as a tree that cannot be
            sampled: 2 CPU seconds or less. Then a watched program with that heap, until it was counted: no boundary
            takes more than 100 ms, and a search for cyclic garbage begins within that. A census visits 200,000
            objects at most; how many it did stands beside.
  holes     a leak in a heap with 600,000 holes, which the allocator visits at each answer: 5 % of the CPU or less.
  zoo       each program of packages/watch/tests/zoo: verdict, owner, line, and the share of the growth explained,
            90 % or more.
  rivals    the growing programs under watch, memray, tracemalloc, objgraph and pympler (extra `compare`): what each
            tool says, and its CPU seconds over those of the program by itself. `rivals_table.py` says how it is judged.

Every program is a fresh process. Exits with 1 where a claim fails; the rivals claim nothing.
"""

import argparse
import gc
import json
import os
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "shared"))

from claims import Claim
from fresh import run_fresh
from parts import measure_parts, report_parts
from rivals_table import RIVALS, answer, own_answer, rivals_claim, rivals_table

from flatwater_watch.agent.process import ProcessWatch
from flatwater_watch.diagnose.garbage import GarbageSearch
from flatwater_watch.heap.census import take_census
from flatwater_watch.heap.roots import Roots

ZOO = runpy.run_path(str(Path(__file__).parents[2] / "packages" / "watch" / "tests" / "zoo" / "expected.py"))
OVERHEAD, TAKEN, EXPLAINED = 1.01, 30_000_000, 0.9
CENSUS_CPU, CENSUS_PAUSE = 2.0, 0.1
HOLES_CPU, HOLES_SECONDS = 0.05, 25.0
FLAT_ROUNDS = {"torch_loop": 120, "vector_env": 80, "cleanrl_ppo": 200}
"""The programs whose overhead is measured, with the rounds that make them last for 15 seconds or more."""
STEP_PAIRS = 400
OBJECTS = 1_000_000
ROUND = 0.01
"""Seconds of work between two boundaries of the program whose pauses are measured."""
WATCHED = 40.0
"""Seconds after which that program ends: beyond its credit an investigation gets one slice in 10 s."""
HEAP: list[Any] = []
"""Objects that the census part counts."""
WATCH = [sys.executable, "-c", "import sys; from flatwater.cli.main import main; sys.exit(main())", "watch"]


def cpu_of(command: list[str]) -> float:
    """CPU seconds of a command and of all that it waits for; its output is not shown."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    _, status, used = os.wait4(started.pid, 0)
    started.returncode = os.waitstatus_to_exitcode(status)
    if started.returncode:
        raise SystemExit(f"{' '.join(command)} failed with {started.returncode}")
    return used.ru_utime + used.ru_stime


def plain(name: str, rounds: int) -> list[str]:
    """The command of a program by itself."""
    return [sys.executable, str(ZOO["program_of"](name)), str(rounds)]


def run_watched(name: str, rounds: int) -> tuple[float, dict[str, Any]]:
    """CPU seconds and result of a program under watch."""
    with tempfile.TemporaryDirectory(prefix="flatwater-watch-") as folder:
        told = Path(folder) / "watch.json"
        cpu = cpu_of([*WATCH, "--json", str(told), "--", *plain(name, rounds)])
        found: dict[str, Any] = json.loads(told.read_text())
    return cpu, found


def bench_overhead(pairs: int, only: list[str]) -> dict[str, Any]:
    """Pairs of runs, in alternating order."""
    wanted = [name for name in FLAT_ROUNDS if not only or name in only]
    return {name: overhead_of(name, FLAT_ROUNDS[name], pairs) for name in wanted}


def overhead_of(name: str, rounds: int, pairs: int) -> dict[str, Any]:
    """Measure what watching a program costs at its start, and from its second round on."""
    ratios, starts, inside, taken = [], [], [], []
    for n in range(pairs):
        order = [True, False] if n % 2 else [False, True]
        one, all_ = ({watching: run_of(name, count, watching) for watching in order} for count in (1, rounds))
        ratios.append((all_[True][0] - one[True][0]) / (all_[False][0] - one[False][0]))
        starts.append(one[True][0] - one[False][0])
        inside.append(all_[True][1]["cpu_share"])
        taken.append(all_[True][1]["bytes"])
    middle = {"median": median(ratios), "start": median(starts), "inside": median(inside)}
    return middle | {"ratios": ratios, "bytes": max(taken)}


def run_of(name: str, rounds: int, watching: bool) -> tuple[float, dict[str, Any]]:  # noqa: FBT001
    """CPU seconds of a run, and what a watch says of its own cost."""
    if not watching:
        return cpu_of(plain(name, rounds)), {}
    cpu, found = run_watched(name, rounds)
    return cpu, found["cost"]


class Branch:
    """A node of a tree that no sample stands for."""

    def __init__(self, depth: int) -> None:
        self.below = (Branch(depth - 1), Branch(depth - 1)) if depth else None


def census_of(heap: str) -> dict[str, float]:
    """In a fresh process: one census of a million objects at once, and those of a watched program with such a heap."""
    if heap == "records":
        HEAP.extend({"at": float(n), "reward": n * 0.1} for n in range(OBJECTS // 3))
    else:
        HEAP.append(Branch(OBJECTS.bit_length() - 2))
    gc.collect()
    cpu = time.process_time()
    census = take_census(Roots())
    spent = time.process_time() - cpu
    return {"cpu": spent, "at_once": census.seconds, "visited": census.visited} | watched_pause()


def watched_pause() -> dict[str, float]:
    """The longest boundary of a program with 10 ms between two, until its first census is done, or for 40 s."""
    watch = ProcessWatch(unit="round")
    pauses = []
    until = time.monotonic() + WATCHED
    while not watch.censuses and time.monotonic() < until:
        ends = time.perf_counter() + ROUND
        while time.perf_counter() < ends:
            pass
        began = time.perf_counter()
        watch.step("round")
        pauses.append(time.perf_counter() - began)
    watch.close(conclude=False)
    began = time.perf_counter()
    search = GarbageSearch(Roots())
    forked = time.perf_counter() - began
    search.is_done(WATCHED)
    return {"pause": max(pauses), "rounds": len(pauses), "done": watch.censuses, "fork": forked}


def bench_census() -> dict[str, Any]:
    """Both heaps."""
    return {heap: run_fresh(__file__, ["--in-process", heap]) for heap in ("records", "tree")}


def bench_zoo(only: list[str]) -> dict[str, Any]:
    """Judge what the watch says of each program, against what it must say."""
    judged = {}
    for name in only or [*ZOO["GROWING"], *ZOO["FLAT"]]:
        _, found = run_watched(name, ZOO["ROUNDS"])
        findings, expected = found["findings"], ZOO["GROWING"].get(name)
        row: dict[str, Any] = {"explained": found["explained_share"], "told": [f["owner"] for f in findings]}
        if expected is None:
            row["right"] = not findings
        else:
            first: dict[str, Any] = findings[0] if findings else {"verdict": None, "owner": "", "made_at": None}
            made = first["made_at"]
            row["verdict"] = first["verdict"] == expected.verdict
            row["owner"] = expected.owner in first["owner"] and bool(findings)
            near = made is not None and abs(made["line"] - ZOO["marked_line"](name)) <= expected.near
            row["line"] = near if expected.line else None
            row["right"] = row["verdict"] and row["owner"] and row["line"] is not False
        judged[name] = row
    return judged


def bench_rivals(only: list[str]) -> dict[str, Any]:
    """Each growing program under each tool: what the tool names, and its CPU over that of the program alone."""
    table: dict[str, Any] = {}
    for name in only or ZOO["GROWING"]:
        began = time.monotonic()
        alone = cpu_of(plain(name, ZOO["ROUNDS"]))
        cpu, found = run_watched(name, ZOO["ROUNDS"])
        table[name] = {"flatwater": own_answer(name, found["findings"]) | {"cpu_ratio": cpu / alone}}
        for tool in RIVALS:
            cpu, said = run_other_tool(tool, name)
            table[name][tool] = answer(name, said) | {"cpu_ratio": cpu / alone}
        print(f"  {name} [{time.monotonic() - began:.0f} s]", file=sys.stderr, flush=True)
    return table


def run_other_tool(tool: str, name: str) -> tuple[float, dict[str, Any]]:
    """CPU seconds of a program under another tool, and what the tool says."""
    script = str(Path(__file__).with_name("rivals.py"))
    with tempfile.TemporaryDirectory(prefix="flatwater-rivals-") as folder:
        told = Path(folder) / "watch.json"
        arguments = [tool, str(ZOO["program_of"](name)), str(ZOO["ROUNDS"]), str(told)]
        cpu = cpu_of([sys.executable, script, *arguments])
        said: dict[str, Any] = json.loads(told.read_text())
    return cpu, said


def failures(found: dict[str, Any]) -> list[str]:
    """The claims that do not hold."""
    wrong = []
    for name, row in found.get("overhead", {}).items():
        wrong += [f"overhead of {name}"] * (row["median"] > OVERHEAD)
        wrong += [f"bytes of {name}"] * (row["bytes"] > TAKEN)
    for what, row in found.get("steps", {}).items():
        claimed = what in {"census", "hook"} and row["ratio"][1] > OVERHEAD
        wrong += [f"steps of 8 µs, {what}"] * (claimed or not row.get("counted", True))
    for heap, row in found.get("census", {}).items():
        longest = max(row["pause"], row["fork"])
        wrong += [f"census of {heap}"] * (row["cpu"] > CENSUS_CPU or longest > CENSUS_PAUSE or not row["done"])
    if "holes" in found:
        wrong += ["a heap with holes"] * (found["holes"]["share"] > HOLES_CPU or not found["holes"]["found"])
    for name, row in found.get("zoo", {}).items():
        wrong += [f"zoo: {name}"] * (not row["right"])
        wrong += [f"explained: {name}"] * (name in ZOO["GROWING"] and row["explained"] < EXPLAINED)
    return wrong


def claims(found: dict[str, Any]) -> Iterator[Claim]:
    """Yield the claims of each part."""
    yield from claims_of_cost(found)
    if rows := found.get("zoo"):
        right = sum(bool(row["right"]) for row in rows.values())
        name = "programs made to leak, or to be flat, told right"
        yield Claim("watch", "zoo", name, f"{right} of {len(rows)}", "all", right == len(rows))
    if rows := found.get("rivals"):
        yield rivals_claim(rows)


def claims_of_cost(found: dict[str, Any]) -> Iterator[Claim]:
    """Yield the claims of what a watch costs."""
    if rows := found.get("overhead"):
        ratios = {name: row["median"] for name, row in rows.items()}
        name = f"CPU seconds of flat programs, watched over alone: {', '.join(rows)}"
        listed, right = ", ".join(f"{ratio:.2f}" for ratio in ratios.values()), max(ratios.values()) <= OVERHEAD
        yield Claim("watch", "overhead", name, listed, f"≤ {OVERHEAD}", right)
    if rows := found.get("steps"):
        (_, ratio, _), (_, more, _) = rows["hook"]["ratio"], rows["hook"]["more"]
        name = "CPU time of steps of 8 µs, watched over alone"
        yield Claim("watch", "steps", name, f"{ratio:.3f} (+{more:.2f} µs a step)", f"≤ {OVERHEAD}", ratio <= OVERHEAD)
    if rows := found.get("census"):
        cpu, pause = (max(row[what] for row in rows.values()) for what in ("cpu", "pause"))
        name = "a look at a million objects: CPU seconds; longest pause"
        wanted = f"≤ {CENSUS_CPU} s; {CENSUS_PAUSE * 1e3:.0f} ms"
        right = cpu <= CENSUS_CPU and pause <= CENSUS_PAUSE
        yield Claim("watch", "census", name, f"{cpu:.2f} s; {pause * 1e3:.0f} ms", wanted, right)
    if row := found.get("holes"):
        share, name = row["share"], "share of the CPU that a watch takes in a heap with 600,000 holes"
        yield Claim("watch", "holes", name, f"{share:.1%}", f"≤ {HOLES_CPU:.0%}", share <= HOLES_CPU)


def show(found: dict[str, Any]) -> None:
    """Print what was measured."""
    for name, row in found.get("overhead", {}).items():
        listed = " ".join(f"{ratio:.3f}" for ratio in row["ratios"])
        print(
            f"overhead of {name}: median {row['median']:.3f} ({listed}), counted inside {row['inside']:.2%}, ", end=""
        )
        print(f"{row['bytes'] / 1e6:.1f} MB; at its start {row['start']:.2f} CPU seconds")
    for what, row in found.get("steps", {}).items():
        quarters = "{:.3f} ({:.3f} to {:.3f})".format(*(row["ratio"][at] for at in (1, 0, 2)))
        switches = f", {row['switches']:.0f} switches of threads each time" if "switches" in row else ""
        print(f"steps of 8 µs, {what}: ratio {quarters}, {row['more'][1]:.2f} µs a step{switches}")
    for heap, row in found.get("census", {}).items():
        print(f"census of a million objects, {heap}: {row['cpu']:.3f} CPU seconds, visits {row['visited']}; ", end="")
        told = f"{row['done']} done, longest pause of {row['rounds']} boundaries {row['pause'] * 1e3:.0f} ms"
        print(f"at once {row['at_once']:.2f} s; watched, {told}; garbage search begun in {row['fork'] * 1e3:.0f} ms")
    if "holes" in found:
        row = found["holes"]
        print(f"a heap with holes: {row['share']:.1%} of the CPU, longest pause {row['pause'] * 1e3:.0f} ms")
    for name, row in found.get("zoo", {}).items():
        parts = {part: row[part] for part in ("verdict", "owner", "line") if part in row}
        said = ", ".join(row["told"]) or "nothing"
        print(f"{name:<20} {'right' if row['right'] else 'WRONG'} {parts} explained {row['explained']:.0%}: {said}")
    if "rivals" in found:
        print("\n".join(rivals_table(found["rivals"])))


def main() -> int:
    """Measure what was asked for, print it, compare it with the claims."""
    names = ["overhead", "steps", "census", "holes", "zoo", "rivals"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", choices=names, default=names)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[], help="programs of the zoo")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--in-process", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.in_process:
        print(json.dumps(census_of(options.in_process)))
        return 0
    parts: dict[str, Callable[[], Any]] = {
        "overhead": lambda: bench_overhead(options.pairs, options.only),
        "steps": lambda: run_fresh(str(Path(__file__).with_name("watched_steps.py")), [str(STEP_PAIRS)]),
        "census": bench_census,
        "holes": lambda: run_fresh(str(Path(__file__).with_name("watched_holes.py")), [str(HOLES_SECONDS)]),
        "zoo": lambda: bench_zoo(options.only),
        "rivals": lambda: bench_rivals([name for name in options.only if name in ZOO["GROWING"]]),
    }
    found = measure_parts(parts, options.parts)
    return report_parts(found, show, failures, claims, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
