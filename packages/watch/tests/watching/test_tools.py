"""Debuggers, profilers and coverage tools work in a watched program as they do without the watch."""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent

import pytest

from flatwater_watch.meters.suspended_tracing import frameless_callable, run_untraced

SOURCE = Path(__file__).parents[2] / "src"
MAIN = "import sys; from flatwater_watch.faces.main import main; sys.exit(main())"
PROGRAM = """
import sys, time

class Thing:
    def __init__(self, n):
        self.n, self.data = n, [n]

THINGS = [Thing(n) for n in range(COUNT)]
KEPT = []

def work():
    total = 0
    for k in range(500):
        total += k
    return total

def main():
    for _ in range(ROUNDS):
        KEPT.append(bytearray(1 << 20))
        work()
        time.sleep(0.02)
    print("kept", len(KEPT))
    sys.exit(3)
"""
LAST = 1 + PROGRAM[: PROGRAM.index("print(")].count("\n")
"""Where a debugger stops for the end: when the program has ended it begins anew, and what was kept is gone."""
TRACED = """
def tracer(frame, event, given):
    if "flatwater" in frame.f_code.co_filename:
        print("the tracer sees", frame.f_code.co_filename)
    return tracer

sys.settrace(tracer)
"""
COVERED = "import coverage; print(*sorted(coverage.CoverageData('.coverage').measured_files()))"


def ran(folder: Path, words: list[str], *, watched: bool, typed: str | None = None) -> tuple[int, str]:
    """Exit code and output of a program in a folder."""
    line = [sys.executable, *words]
    if watched:
        line = [sys.executable, "-c", MAIN, "run", "--json", "out.json", "--", *line]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        line, cwd=folder, capture_output=True, text=True, check=False, env=environment, timeout=120, input=typed
    )
    return done.returncode, done.stdout


def write_program(folder: Path, source: str, *, objects: int = 1000, rounds: int = 60) -> Path:
    (folder / "train.py").write_text(dedent(source).replace("COUNT", str(objects)).replace("ROUNDS", str(rounds)))
    return folder


@pytest.mark.parametrize(("objects", "rounds"), [(1000, 60), pytest.param(100_000, 300, marks=pytest.mark.slow)])
def test_a_program_with_a_trace_function_ends_and_its_tracer_never_sees_the_watch(
    tmp_path: Path, objects: int, rounds: int
) -> None:
    """Python 3.11 hung for ever where a pending call waited while another one was under way in traced code."""
    folder = write_program(tmp_path, PROGRAM + TRACED + "main()\n", objects=objects, rounds=rounds)
    assert ran(folder, ["train.py"], watched=True) == (3, f"kept {rounds}\n")
    assert '"owner": "train.KEPT"' in (folder / "out.json").read_text()


@pytest.mark.slow
@pytest.mark.skipif(find_spec("coverage") is None, reason="coverage is not installed")
def test_coverage_measures_the_same(tmp_path: Path) -> None:
    folder = write_program(tmp_path, PROGRAM + "main()\n", objects=100_000)

    def measure(*, watched: bool) -> tuple[int, str, str, str]:
        code, out = ran(folder, ["-m", "coverage", "run", "--branch", "train.py"], watched=watched)
        report = ran(folder, ["-m", "coverage", "json", "-q", "-o", "-", "--pretty-print"], watched=False)[1]
        lines = [line for line in report.splitlines() if "timestamp" not in line]
        return code, out, "\n".join(lines), ran(folder, ["-c", COVERED], watched=False)[1]

    assert measure(watched=True) == measure(watched=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "typed"),
    [
        (["-m", "cProfile", "-o", "profile.out", "train.py"], None),
        (["-m", "trace", "--count", "--missing", "--coverdir", "counted", "train.py"], None),
        (["-m", "trace", "--trace", "train.py"], None),
        (["-c", "import runpy; runpy.run_path('train.py', run_name='__main__')"], None),
        (["-m", "pdb", "train.py"], f"b work\nc\nn\nn\ns\nw\nclear 1\ntbreak {LAST}\nc\nq\n"),
    ],
)
def test_a_tool_of_the_standard_library_says_the_same(tmp_path: Path, words: list[str], typed: str | None) -> None:
    folder = write_program(tmp_path, PROGRAM + "main()\n")
    alone = ran(folder, words, watched=False, typed=typed)
    counted = {file.name: file.read_text() for file in folder.glob("counted/train*")}
    assert ran(folder, words, watched=True, typed=typed) == alone
    assert '.KEPT"' in (folder / "out.json").read_text()
    assert {file.name: file.read_text() for file in folder.glob("counted/train*")} == counted


@pytest.mark.slow
def test_a_debugger_that_only_lets_the_program_run_says_the_same(tmp_path: Path) -> None:
    """The program ends past pdb, which would begin it anew with an empty module: what grew would be gone."""
    at_once = PROGRAM.replace("sys.exit(3)", "sys.stdout.flush(); os._exit(3)").replace("import sys", "import os, sys")
    folder = write_program(tmp_path, at_once + "main()\n", rounds=300)
    words = ["-m", "pdb", "-c", "continue", "train.py"]
    assert ran(folder, words, watched=True) == ran(folder, words, watched=False) == (3, "kept 300\n")
    assert '"owner": "__main__.KEPT"' in (folder / "out.json").read_text()


@pytest.mark.parametrize("call", [run_untraced, lambda work: frameless_callable(work)()], ids=["untraced", "hidden"])
def test_work_is_not_traced_and_the_tracer_is_the_one_before(call: Callable[[Callable[[], None]], object]) -> None:
    events = list[str]()

    def tracer(_frame: object, event: str, _given: object) -> object:
        events.append(event)
        return tracer

    def work() -> None:
        events.append("work")

    def fault() -> None:
        raise KeyError("mine")

    before = sys.gettrace()
    sys.settrace(tracer)  # type: ignore[arg-type]
    try:
        call(work)
        seen = events[: events.index("work") + 1]
        with pytest.raises(KeyError, match="mine"):
            call(fault)
        events.clear()
        dedent("traced again")
        kept = sys.gettrace()
    finally:
        sys.settrace(before)
    assert kept is tracer
    assert "call" in events
    assert seen.count("work") == 1
    assert seen[-1] == "work"
