"""The first line of a watch: never "nothing grows" beside memory that grew."""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from watched import GROWING, LEAK, MIB, rate_of, rows

from flatwater_watch.agent.census_history import HeldGrowth
from flatwater_watch.agent.conclusion import decide_outcome
from flatwater_watch.agent.growth import explained_share
from flatwater_watch.agent.open_causes import drop_native_in_roots
from flatwater_watch.agent.outcome import WORKERS_OWNER, Outcome, fails_build, split_by_share
from flatwater_watch.agent.summary import order_findings
from flatwater_watch.diagnose.evidence import unowned_evidence
from flatwater_watch.diagnose.garbage import Garbage
from flatwater_watch.diagnose.judge import make_findings
from flatwater_watch.faces.summary_lines import terminal_lines
from flatwater_watch.series.readings import Growth
from flatwater_watch.series.slope import Slope

WATCH = "import sys; from flatwater_watch.faces.main import main; sys.exit(main())"
SILENT = 50 * MIB
NATIVE = """
import ctypes, time
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p

def take(size):
    if size:
        ctypes.memset(libc.malloc(ctypes.c_size_t(size)), 1, size)
"""
SHAPES = {
    "straight": "for i in range(N): take(TOTAL // N); time.sleep(PAUSE)",
    "stairs": "for i in range(N): take(TOTAL // 4 if i % (N // 4) == N // 8 else 0); time.sleep(PAUSE)",
    "slowing": "for i in range(N): take(int(TOTAL / 12 / (i + 1) ** 0.5)); time.sleep(PAUSE)",
    "one jump": "for i in range(N): take(TOTAL if i == N // 2 else 0); time.sleep(PAUSE)",
    "beside a small owner": "LOG = []\nfor i in range(N): take(TOTAL // N); LOG.append(bytes(3000)); time.sleep(PAUSE)",
    "a handle of a library": (
        "import sqlite3\nbase = sqlite3.connect(':memory:')\nbase.execute('create table t (b blob)')\n"
        "for i in range(N): base.execute('insert into t values (?)', (bytes(TOTAL // N),)); time.sleep(PAUSE)"
    ),
    "a buffer behind a handle": (
        "import numpy as np\nkept = []\nfor i in range(N):\n"
        "    a = np.ones(TOTAL // N // 8); kept.append(ctypes.py_object(a)); time.sleep(PAUSE)"
    ),
    "a table of its own": (
        "for i in range(N):\n    if i == N * 3 // 4: TABLE = [bytearray(TOTAL // 8) for _ in range(8)]\n"
        "    time.sleep(PAUSE)"
    ),
    "a local of a library": "import library\nlibrary.learn(N, TOTAL, PAUSE)",
    "a coroutine": (
        "import asyncio\nasync def main():\n    seen = []\n"
        "    for i in range(N): seen.append(bytearray(TOTAL // N)); await asyncio.sleep(PAUSE)\nasyncio.run(main())"
    ),
}
LIBRARY = """
import time
def learn(steps, total, pause):
    predictions = []
    for _ in range(steps):
        predictions.append(bytearray(total // steps)); time.sleep(pause)
"""


def run_watched(
    folder: Path, shape: str, *, steps: int, total: int, pause: float, options: tuple[str, ...] = ()
) -> Any:
    """The JSON, the exit code and stderr of a program that grows so, under `flatwater watch`."""
    library = folder / "site-packages"
    library.mkdir()
    (library / "library.py").write_text(LIBRARY)
    program = folder / "grow.py"
    numbers = f"import sys\nsys.path.append({str(library)!r})\nN, TOTAL, PAUSE = {steps}, {total}, {pause}\n"
    program.write_text(numbers + NATIVE + SHAPES[shape])
    told = folder / "watch.json"
    ended = subprocess.run(
        [sys.executable, "-c", WATCH, "run", "--json", str(told), *options, "--", sys.executable, str(program)],
        capture_output=True, text=True, check=False, cwd=folder, timeout=120,
    )  # fmt: skip
    return json.loads(told.read_text()), ended.returncode, ended.stderr


def is_said(summary: Any) -> bool:
    """Whether something is said of growth: a finding, an open question, or that it has settled."""
    return summary["outcome"]["state"] not in {"flat", "unread"}


@pytest.mark.parametrize("shape", ["slowing", pytest.param("stairs", marks=pytest.mark.slow)])
def test_growth_without_a_cause_is_told_and_fails_a_build(shape: str, tmp_path: Path) -> None:
    found, code, told = run_watched(tmp_path, shape, steps=60, total=240 * MIB, pause=0.03, options=("--fail",))
    assert is_said(found), found["outcome"]
    assert found["findings"] or "no cause" in told
    assert "nothing grows ·" not in told
    assert code == 1


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_no_shape_of_growth_is_passed_over(shape: str, tmp_path: Path) -> None:
    found, code, _ = run_watched(tmp_path, shape, steps=100, total=300 * MIB, pause=0.03, options=("--fail",))
    assert is_said(found), found["outcome"]
    assert code == (0 if found["outcome"]["state"] == "settled" else 1)


def test_a_table_that_came_at_once_is_a_lead(tmp_path: Path) -> None:
    """It is reached, and did not grow from one census to the next: new since the beginning, and so worth a look."""
    found, code, _ = run_watched(
        tmp_path, "a table of its own", steps=60, total=150 * MIB, pause=0.03, options=("--fail",)
    )
    assert (found["findings"], found["outcome"]["state"], code) == ([], "unexplained", 1)
    assert re.search(r"grow\.TABLE: .*\b150", found["outcome"]["next"][0])


@pytest.mark.slow
def test_what_a_suspended_coroutine_keeps_is_named(tmp_path: Path) -> None:
    found, _, _ = run_watched(tmp_path, "a coroutine", steps=100, total=300 * MIB, pause=0.03)
    (first, *_) = found["findings"]
    assert (first["verdict"], first["owner"]) == ("leak", "main() in grow.py: seen")
    assert first["made_at"]["function"] == "main"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_fuzzed_growth_is_never_passed_over(seed: int, tmp_path: Path) -> None:
    draw = Random(seed)
    shape, steps = draw.choice(sorted(SHAPES)), draw.randrange(24, 120)
    total, pause = draw.randrange(80, 400) * MIB, draw.choice([0.005, 0.02, 0.05])
    found, _, _ = run_watched(tmp_path, shape, steps=steps, total=total, pause=pause)
    grown = found["series"]["resident_bytes"]
    if not grown:  # it was over before the first reading, which is said
        assert found["outcome"]["state"] == "unread"
        assert found["unseen"]
        return
    assert grown[-1] - grown[0] < SILENT or is_said(found), (shape, steps, total, pause, found["outcome"])


@given(st.lists(st.integers(0, 400 * MIB), min_size=2, max_size=60))
@settings(max_examples=300)
def test_whatever_grew_by_fifty_mebibytes_is_said(resident: list[int]) -> None:
    read = rows(resident)
    outcome = decide_outcome(read, [], explained_share(read, []))
    assert resident[-1] - resident[0] < SILENT or outcome.state in {"settled", "unexplained"}
    assert Outcome.from_json(json.loads(json.dumps(outcome.to_json()))) == outcome


@pytest.mark.slow
@given(st.lists(st.integers(0, 400 * MIB), min_size=2, max_size=60))
@settings(max_examples=5000)
def test_whatever_grew_by_fifty_mebibytes_is_said_in_thousands(resident: list[int]) -> None:
    read = rows(resident)
    outcome = decide_outcome(read, [], explained_share(read, []))
    assert resident[-1] - resident[0] < SILENT or outcome.state in {"settled", "unexplained"}


def test_the_states() -> None:
    straight = rows([100 * MIB + 4 * MIB * n for n in range(40)])
    assert decide_outcome([], [], 0.0).state == "unread"
    assert decide_outcome(rows([100 * MIB] * 40), [], 1.0).state == "flat"
    assert decide_outcome(rows([100 * MIB] * 4 + [180 * MIB] * 36), [], 1.0).state == "settled"
    assert decide_outcome(straight, [LEAK], 1.0) == Outcome("grows")
    open_ = decide_outcome(straight, [], 0.0, censuses=3, leads=[("train.TABLE", 100 * MIB), ("train.SMALL", MIB)])
    assert (open_.state, open_.bytes) == ("unexplained", 4 * 31 * MIB)
    (lead,) = (sentence for sentence in open_.next if "train." in sentence)
    assert re.search(r"train\.TABLE: .*\b100\.00 MiB", lead)
    blank = decide_outcome(straight, [], 0.0, censuses=3)
    assert any(re.search("3 censuses .*no container", sentence) for sentence in blank.known)
    beside = decide_outcome(straight, [LEAK], 0.25)
    assert (beside.state, beside.bytes) == ("grows", round(0.75 * 4 * 31 * MIB))
    assert "findings" in beside.unexplained_growth_sentence()


def test_garbage_that_is_freed_soon_is_said_and_is_no_finding() -> None:
    straight = rows([100 * MIB + 4 * MIB * n for n in range(40)])
    soon = Garbage(130 * MIB, 21, "21 × Request", None, collector_is_on=True, young_bytes=130 * MIB)
    told = decide_outcome(straight, [], 0.0, garbage=soon)
    assert (told.state, told.bytes, told.next) == ("flat", 0, ())
    assert re.match(r"130\.00 MiB in cycles .*\(21 × Request\): .*young", told.known[0])
    old = decide_outcome(straight, [], 0.0, garbage=soon._replace(young_bytes=60 * MIB))
    assert re.search(r"\(21 × Request\): .*full collection", old.known[0])
    rest = decide_outcome(straight, [], 0.0, garbage=soon._replace(bytes=40 * MIB))
    assert (rest.state, rest.bytes) == ("unexplained", (4 * 31 - 40) * MIB)
    assert rest.known[0].startswith("40.00 MiB in cycles")


def test_what_a_library_records_is_said_and_is_no_finding() -> None:
    straight = rows([100 * MIB + MIB // 2 * n for n in range(40)])
    names = ("main() in somelib: self.reports", "main() in somelib: self.times")
    told = decide_outcome(straight, [], 0.0, unsure_causes=[replace(GROWING, owner=name) for name in names])
    assert (told.state, told.next) == ("flat", ())
    assert re.match(r"main\(\) in somelib: self\.reports \(and 1 more\) .*library", told.known[0])
    native = replace(GROWING, verdict="native", owner="memory outside of Python", holders=())
    told = decide_outcome(straight, [], 0.0, unsure_causes=[native])
    assert (told.state, told.next) == ("flat", ())
    (known,) = told.known
    assert re.match(r"memory outside of Python .*no line .*\b32\.00 MiB", known)


def test_what_is_emptied_again_and_again_is_said_where_memory_grew() -> None:
    told = decide_outcome(
        rows([*range(100 * MIB, 200 * MIB, 4 * MIB)]), [], 0.0, refilled_paths=["main() in train.py: trace"]
    )
    assert told.state == "unexplained"
    assert re.match(r"main\(\) in train\.py: trace .*emptied", told.known[0])


def test_a_build_fails_on_what_does_not_end() -> None:
    filling = [replace(LEAK, verdict="filling")]
    passing = [(Outcome("flat"), []), (Outcome("settled", MIB), []), (Outcome("grows"), filling)]
    failing = [(Outcome("unexplained", MIB), []), (Outcome("grows"), [LEAK])]
    assert not any(fails_build(outcome, found) for outcome, found in passing)
    assert all(fails_build(outcome, found) for outcome, found in failing)


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        ({"state": "odd", "bytes": 0, "known": [], "next": []}, ValueError),
        ({"state": "flat", "bytes": "0", "known": [], "next": []}, TypeError),
        ({"state": "flat", "bytes": 0, "known": [1], "next": []}, TypeError),
        ({"state": "settled", "bytes": 0, "known": [], "next": [], "holders": 1}, TypeError),
        ({"state": "flat"}, KeyError),
    ],
)
def test_a_result_that_was_edited_is_checked(record: dict[str, Any], fault: type[Exception]) -> None:
    with pytest.raises(fault):
        Outcome.from_json(record)


def test_the_terminal_reads_the_state() -> None:
    summary: dict[str, Any] = {
        "unit": "second", "steps": 5, "seconds": 5.0, "readings": 20, "resident_growth_bytes": 90 * MIB,
        "explained_share": 0.0, "cost": {"cpu_share": 0.0, "bytes": 0}, "findings": [], "unseen": [],
        "outcome": Outcome("unexplained", 90 * MIB, ("no file",), ("run it longer", "try memray")).to_json(),
    }  # fmt: skip
    head, _, *rest = terminal_lines(summary)
    assert head.startswith("flatwater: memory grew, and the cause was not found · 5 seconds · ")
    assert rest == [
        "open: Memory grew by 90.00 MiB, and no cause was found.",
        "  known   no file.",
        "  try     run it longer.",
        "          try memray.",
    ]


def test_growth_that_is_over_is_said_once_with_its_holders() -> None:
    """An LRU cache of 80 MiB that was full after a tenth of the run."""
    samples = rows([100 * MIB] * 4 + [180 * MIB] * 36)
    full, level = HeldGrowth("train.tile", 50 * MIB, is_full=True), HeldGrowth("train.TABLE", 25 * MIB, is_full=False)
    assert decide_outcome(samples, [], 1.0, held_growth=[level]).holders == "", "less than half"
    both = decide_outcome(samples, [], 1.0, held_growth=[full._replace(bytes=30 * MIB), level])
    assert both.holders == "train.tile (full), train.TABLE (no longer grows)"
    outcome = decide_outcome(samples, [], 1.0, held_growth=[full, level])
    assert Outcome.from_json(json.loads(json.dumps(outcome.to_json()))) == outcome
    summary: dict[str, Any] = {
        "unit": "second", "steps": 5, "seconds": 5.0, "readings": 40, "resident_growth_bytes": 0,
        "explained_share": 1.0, "cost": {"cpu_share": 0.0, "bytes": 0}, "findings": [], "unseen": [],
        "outcome": outcome.to_json(),
    }  # fmt: skip
    head, _, *rest = terminal_lines(summary)
    assert head == "flatwater: nothing grows any more · 5 seconds · cost 0.0% CPU, 0 B"
    assert " ".join(line.strip() for line in rest) == (
        "Memory grew by 80.00 MiB at the beginning, and by next to nothing since: most of it is in train.tile (full)."
    )


def test_native_growth_is_not_told_where_roots_hold_what_has_come() -> None:
    """The record was sure of it before a census had seen a table that came at once, on a busy machine."""
    growing = Growth(60, 400 * MIB, None, Slope(3.0 * MIB, 2.0 * MIB, 4.0 * MIB), "boundary")
    native = unowned_evidence("native", growing.whole, growing)
    leak = replace(native, owner="grow.KEPT", verdict="leak")
    samples = rows([200 * MIB] * 4 + [352 * MIB] * 6)
    loaded: Any = LateCensus(0, [("grow.TABLE", 150 * MIB), ("grow.OTHER", 2 * MIB)])
    assert drop_native_in_roots(loaded, samples, [leak, native], None) == [leak]
    small: Any = LateCensus(0, [("grow.TABLE", 20 * MIB)])
    assert drop_native_in_roots(small, samples, [leak, native], None) == [leak, native]


class LateCensus:
    """A monitor whose first census was complete at a step, and what roots have gained since."""

    def __init__(self, first_census_end: int, gains: Sequence[tuple[str, int]] = ()) -> None:
        self.first_census_end, self._gains = first_census_end, gains

    def root_gains(self, _latest: object) -> Sequence[tuple[str, int]]:
        return self._gains


def test_native_growth_is_not_told_where_it_came_before_the_first_census_was_complete() -> None:
    """A table came at once while a busy machine was at the first census, which then had it from the beginning."""
    samples = rows([200 * MIB] * 4 + [350 * MIB] * 6)
    growing = Growth(90, 350 * MIB, None, Slope(3.0 * MIB, 2.0 * MIB, 4.0 * MIB), "boundary")
    native = unowned_evidence("native", growing.whole, growing)
    late: Any = LateCensus(first_census_end=50)
    assert drop_native_in_roots(late, samples, [native], None) == []
    early: Any = LateCensus(first_census_end=10)
    assert drop_native_in_roots(early, samples, [native], None) == [native]


def test_a_finding_has_what_its_root_holds_where_steps_bring_more_and_more() -> None:
    """Its rate is that of two early censuses: 22 % of a growth of which its root holds two thirds."""
    causes = [
        replace(GROWING, owner="train.monitor.curves", share=0.22),
        replace(GROWING, owner="train.monitors", share=0.2),
    ]

    def shares(*gains: tuple[str, int], gained: int = 300 * MIB) -> list[float]:
        growth = Growth(60, 400 * MIB, None, rate_of(float(MIB)), "boundary")
        return [found.share for found in make_findings(causes, growth, root_gains=gains, resident_gain=gained)]

    assert shares(("train.monitor", 200 * MIB), ("train.OTHER", 90 * MIB)) == pytest.approx([200 / 300, 0.2])
    assert shares(("train.monitor", 290 * MIB))[0] == pytest.approx(0.8)
    assert shares(("train.monitor", 30 * MIB)) == [0.22, 0.2]
    assert shares(("train.monitor", 30 * MIB), gained=0) == [0.22, 0.2]


def test_pages_of_files_are_no_open_question() -> None:
    """The system takes them back; "the cause was not found" beside "100 % explained" is a contradiction."""
    grown = rows([100 * MIB + 4 * MIB * i for i in range(40)])
    mapped = [row._replace(reading=row.reading._replace(file_mapped=row.resident - 100 * MIB)) for row in grown]
    assert decide_outcome(grown, [], 0.0).state == "unexplained"
    assert decide_outcome(mapped, [], 1.0).state != "unexplained"


def test_most_of_the_growth_is_told_first() -> None:
    """Whatever the rates say, which may be of other times; bytes of worker processes are no part of it."""
    small, large = (replace(LEAK, owner=name, share=share) for name, share in (("a", 0.28), ("b", 0.71)))
    workers = replace(LEAK, owner=WORKERS_OWNER, share=1.0)
    faster = replace(small, bytes_per_step=9.0 * MIB)
    assert order_findings([workers, faster, large]) == [large, faster, workers]


def test_small_findings_beside_a_large_one_are_one_row() -> None:
    """A program that compiles with numba: registries of the compiler had 1 % each."""
    small = [replace(LEAK, owner=f"numba.registry{n}", share=0.01) for n in range(5)]
    slower = replace(LEAK, owner="step", verdict="slowdown", share=0.0)
    large = replace(LEAK, owner="train.KEPT", share=0.9)
    summary: dict[str, Any] = {
        "unit": "update", "steps": 60, "seconds": 5.0, "readings": 20, "resident_growth_bytes": 90 * MIB,
        "explained_share": 0.95, "cost": {"cpu_share": 0.0, "bytes": 0}, "unseen": [],
        "findings": [found.to_json() for found in (large, *small, slower)],
        "outcome": Outcome("grows", 0, (), ()).to_json(),
    }  # fmt: skip
    lines = list(terminal_lines(summary))
    row = "and 5 smaller, 5% of the growth together: numba.registry0, numba.registry1, numba.registry2 and 2 more, in"
    assert " ".join(lines).count("numba.registry") == 3
    assert row in " ".join(line.strip() for line in lines)
    assert split_by_share([large, *small, slower]) == ([large, slower], small)
    assert split_by_share([*small, slower]) == ([*small, slower], [])


def test_a_small_leak_beside_a_large_buffer_stands_for_itself() -> None:
    leak = replace(LEAK, share=0.01)
    buffer = replace(LEAK, owner="train.REPLAY", verdict="filling", share=0.99)
    assert split_by_share([buffer, leak]) == ([buffer, leak], [])


def test_a_root_that_a_finding_names_is_no_lead() -> None:
    leads = [("train.monitor", 200 * MIB), ("train.OTHER", 90 * MIB)]
    found = replace(LEAK, owner="train.monitor.curves", share=0.2)
    series = rows([(100 + 30 * i) * MIB for i in range(20)])
    outcome = decide_outcome(series, [found], 0.2, censuses=5, leads=leads)
    (lead,) = (step for step in outcome.next if "train." in step)
    assert re.search(r"train\.OTHER: .*\b90\.00 MiB", lead)
    assert any("nothing else" in sentence for sentence in outcome.known)
    alone = decide_outcome(series, [found], 0.2, censuses=5, leads=leads[:1])
    assert any("no other container" in sentence for sentence in alone.known)
