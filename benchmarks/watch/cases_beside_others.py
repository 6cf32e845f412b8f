"""Cases of the finder's tests under `flatwater watch`, other memory tools, and by themselves: answers, CPU and memory.

    python -m venv OTHERS && OTHERS/bin/pip install memray scalene filprofiler objgraph
    python benchmarks/watch/cases_beside_others.py --python OTHERS/bin/python --out answers.jsonl [NAME …]
        [--tools TOOL …]

Each program is run by itself and under each tool, one after the other; a line for each goes to `--out`, and what stands
there already is not run again. Then the table is printed; `cases_table.py` says how the answers are judged.
The other tools run in their own Python, with the libraries of this one in its path. FLATWATER_CASE_LIBRARIES as in
`bench_cases.py`, whose seen half is run where no name is given.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2] / "packages" / "watch" / "tests" / "cases"))
from cases_table import Answer, cases_table, fil_stacks, judge_answer, scalene_points_at, stacks_point_at, watch_answer
from expected_cases import growing, halves, needs, program_of
from watched_cases import WATCH, Said, environment, judge, missing

FOLDERS = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "packages" / "watch" / "tests" / "cases")]
LOOK = 0.2
"""Share of the program's time by itself that passes between two looks."""
RIVALS = str(Path(__file__).parent / "rivals.py")
RECORD = """
import runpy, sys
import memray
program, file = sys.argv[1:3]
sys.argv = [program]
with memray.Tracker(file, native_traces=True):
    runpy.run_path(program, run_name="__main__")
"""
READ = """
import sys
name, file, *path = sys.argv[1:]
sys.path += path
import memray
from cases_table import stacks_point_at
with memray.FileReader(file) as reader:
    records = reader.get_high_watermark_allocation_records(merge_threads=True)
    print(stacks_point_at(name, ((each.size, [frame[1:] for frame in each.stack_trace()]) for each in records)))
"""


@dataclass(frozen=True)
class Ran:
    """The cost of a command, its children with it, and its output."""

    cpu: float
    seconds: float
    peak: int
    """Bytes of its largest process."""
    text: str


@dataclass(frozen=True)
class Task:
    """The task of an adapter."""

    name: str
    """Name of the case."""
    folder: Path
    """An empty one."""
    seconds: float
    """Seconds that the program takes by itself."""
    python: Callable[..., Ran]
    """Runs the Python of the other tools, as `run_with` does: with arguments, and a folder that leads its path."""


Adapter = Callable[[Task], tuple[Answer, list[Ran]]]
"""A task -> the answer, and the runs: first the program's, then those that read what was recorded."""


def run(command: list[str], folder: Path, limit: float, path: str | None = None) -> Ran:
    """Run a command to its end.

    Raises:
        RuntimeError: if it fails, or is not done after `limit` seconds.
    """
    space = environment()
    if path is not None:
        space["PYTHONPATH"] = os.pathsep.join(part for part in (path, space["PYTHONPATH"]) if part)
    with tempfile.TemporaryFile("w+") as out:
        at = time.monotonic()
        began = subprocess.Popen(
            command, cwd=folder, env=space, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
        ended, status, used = os.wait4(began.pid, os.WNOHANG)
        while not ended and time.monotonic() < at + limit:
            time.sleep(0.05)
            ended, status, used = os.wait4(began.pid, os.WNOHANG)
        if not ended:
            os.killpg(began.pid, signal.SIGKILL)
            began.wait()
            raise RuntimeError(f"not done after {limit:.0f} s")
        seconds = time.monotonic() - at
        began.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read()
    if began.returncode:
        raise RuntimeError(f"ended with {began.returncode}: {text[-400:].strip()}")
    return Ran(used.ru_utime + used.ru_stime, seconds, used.ru_maxrss * 1024, text)


def run_with(python: str, folder: Path, limit: float, more: list[str], first: Path | None = None) -> Ran:
    """Run the Python of the other tools with the libraries of this one, and a folder before them."""
    path = [*([str(first)] if first else []), sysconfig.get_paths()["purelib"]]
    return run([python, *more], folder, limit, os.pathsep.join(path))


def with_memray(task: Task) -> tuple[Answer, list[Ran]]:
    """Ask memray: allocations at the peak, by stack, with native traces."""
    recorded = task.python(["-c", RECORD, str(program_of(task.name)), str(task.folder / "capture.bin")])
    read = task.python(["-c", READ, task.name, str(task.folder / "capture.bin"), *FOLDERS])
    return judge_answer(task.name, read.text.splitlines()[-1]), [recorded, read]


def with_fil(task: Task) -> tuple[Answer, list[Ran]]:
    """Ask Fil: allocations at the peak, by stack."""
    ran = task.python(["-m", "filprofiler", "-o", str(task.folder), "--no-browser", "run", str(program_of(task.name))])
    (file,) = task.folder.glob("*/peak-memory.prof")
    return judge_answer(task.name, stacks_point_at(task.name, fil_stacks(file.read_text()))), [ran]


def with_scalene(task: Task) -> tuple[Answer, list[Ran]]:
    """Its report of leaks, and where that is empty the line with the highest peak.

    It imports torch wherever that is there, profiles it too, and then neither it nor the program goes on (2.4.0, torch
    2.13.0). So torch is hidden from it in programs that do not need it.
    """
    hidden = None
    if "torch" not in needs(task.name):
        hidden = task.folder / "hidden"
        hidden.mkdir()
        (hidden / "torch.py").write_text("raise ImportError")
    profile = task.folder / "profile.json"
    ran = task.python(["-m", "scalene", "run", "-o", str(profile), str(program_of(task.name))], hidden)
    top, leak = scalene_points_at(json.loads(profile.read_text()))
    return judge_answer(task.name, top, leak=leak), [ran]


def asked_inside(tool: str) -> Adapter:
    """Tracemalloc and objgraph: asked by a thread while the program runs, the middle compared with the end."""

    def adapter(task: Task) -> tuple[Answer, list[Ran]]:
        every = f"{task.seconds * LOOK:.1f}"
        ran = task.python([RIVALS, tool, str(program_of(task.name)), "", str(task.folder / "said.json"), every])
        said: dict[str, Any] = json.loads((task.folder / "said.json").read_text())
        return judge_answer(task.name, said["top"], said["names"]), [ran]

    return adapter


OTHERS: dict[str, Adapter] = {
    "memray": with_memray,
    "fil": with_fil,
    "tracemalloc": asked_inside("tracemalloc"),
    "objgraph": asked_inside("objgraph"),
    "scalene": with_scalene,
}
WATCHED, ALONE = "watch", "alone"


def with_watch(name: str, folder: Path, limit: float) -> tuple[Answer, list[Ran]]:
    """The first finding of `flatwater watch`."""
    told = folder / "watch.json"
    ran = run([sys.executable, "-c", WATCH, "watch", "--json", str(told), "--", *alone(name)], folder, limit)
    found = json.loads(told.read_text())
    return watch_answer(found["findings"], judge(name, Said(found, ran.text))), [ran]


def alone(name: str) -> list[str]:
    """The command of a program by itself."""
    return [sys.executable, str(program_of(name))]


def measure_tool(name: str, tool: str, python: str, limit: float, seconds: float) -> dict[str, Any]:
    """One line of the file: what a tool says of a program, and what it takes."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        try:
            if tool == ALONE:
                answer, runs = None, [run(alone(name), folder, limit)]
            elif tool == WATCHED:
                answer, runs = with_watch(name, folder, limit)
            else:
                others = partial(run_with, python, folder, limit)
                answer, runs = OTHERS[tool](Task(name, folder, seconds, others))
        except (RuntimeError, OSError, ValueError) as error:
            return {"name": name, "tool": tool, "failed": str(error)}
    row = {
        "name": name,
        "tool": tool,
        "cpu": sum(each.cpu for each in runs),
        "peak": runs[0].peak,
        "seconds": runs[0].seconds,
    }
    return row | {"reading": max((each.peak for each in runs[1:]), default=0)} | (asdict(answer) if answer else {})


def in_fresh_process(of: Callable[..., dict[str, Any]], *arguments: object) -> dict[str, Any]:
    """Call a function in a fresh process: a program's peak is at least its parent's, and answers can be large."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(of, *arguments).result()


def main() -> None:
    """Measures what is not in the file yet, and prints the table of all that is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--python", default=sys.executable, help="Python in which the other tools are installed")
    parser.add_argument("--out", type=Path, required=True, help="file for the answers, a line of JSON each")
    parser.add_argument("--tools", nargs="+", choices=(WATCHED, *OTHERS), default=(WATCHED, *OTHERS))
    parser.add_argument("--limit", type=float, default=300, help="seconds for each run")
    given = parser.parse_args()
    rows = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    done = {(row["name"], row["tool"]) for row in rows}
    for name in given.names or [name for name in halves()[0] if name in growing()]:
        why = missing(name)
        if why:
            print(why, file=sys.stderr)
            continue
        for tool in (ALONE, *given.tools):
            if (name, tool) in done:
                continue
            seconds = max(
                (row.get("seconds", 0.0) for row in rows if (row["name"], row["tool"]) == (name, ALONE)), default=0.0
            )
            rows.append(in_fresh_process(measure_tool, name, tool, given.python, given.limit, seconds))
            with given.out.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    used = [tool for tool in (WATCHED, *OTHERS) if any(row["tool"] == tool for row in rows)]
    print("\n".join(cases_table(rows, used)))


if __name__ == "__main__":
    main()
