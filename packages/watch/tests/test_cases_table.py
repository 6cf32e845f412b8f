"""What the answers of other memory tools to the cases are worth, on outputs as they write them."""

import sys
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).parents[0] / "cases"), str(Path(__file__).parents[3] / "benchmarks" / "watch")]
from cases_table import Answer, cases_table, fil_stacks, judge_answer, scalene_points_at, stacks_point_at, watch_answer
from expected_cases import marked_line, program_of
from watched_cases import Right

NAME = "kept_futures"
PROGRAM, LINE = str(program_of(NAME)), marked_line(NAME)
FIL = f"""\
{PROGRAM}:30 (<module>);{PROGRAM}:23 (main);/lib/threading.py:964 (start) 17176
{PROGRAM}:{LINE} (render);/lib/numpy/_core/numeric.py:385 (full) 2400000
<frozen importlib._bootstrap>:1176 (_find_and_load) 9000000
"""


def profile(leaks: dict[str, Any]) -> dict[str, Any]:
    """As scalene writes it."""
    lines = [{"lineno": 23, "n_peak_mb": 14.1}, {"lineno": LINE, "n_peak_mb": 18.3}]
    return {"files": {PROGRAM: {"leaks": leaks, "lines": lines}}}


def test_the_largest_stack_counts_by_its_innermost_line_of_the_program() -> None:
    answer = judge_answer(NAME, stacks_point_at(NAME, fil_stacks(FIL)))
    assert answer == Answer(found=True, owner=False, line=True, verdict=False, date=False, top=str(LINE))


def test_stacks_outside_of_the_program_find_nothing() -> None:
    assert stacks_point_at(NAME, fil_stacks(FIL.splitlines()[-1])) is None
    assert not judge_answer(NAME, None).found


def test_the_likeliest_leak_counts_before_the_highest_peak() -> None:
    leaks = {"24": {"likelihood": 0.96, "velocity_mb_s": 9.0}, "23": {"likelihood": 0.98, "velocity_mb_s": 1.0}}
    assert scalene_points_at(profile(leaks)) == (f"{PROGRAM}:23", True)
    assert scalene_points_at(profile({})) == (f"{PROGRAM}:{LINE}", False)


def test_a_report_of_a_leak_is_the_verdict_where_the_case_is_one() -> None:
    assert judge_answer(NAME, f"{PROGRAM}:{LINE}", leak=True).verdict
    assert not judge_answer("native_frames", f"{program_of('native_frames')}:1", leak=True).verdict


def test_a_line_of_a_library_and_a_builtin_type_are_nothing_of_the_program() -> None:
    for top in ("/lib/numpy/_core/numeric.py:385", "builtins.list"):
        answer = judge_answer(NAME, top)
        assert (answer.found, answer.owner, answer.line, answer.verdict) == (False,) * 4


def test_a_name_on_the_chain_is_the_owner() -> None:
    assert judge_answer(NAME, "builtins.list", ["futures"]).owner


def test_a_failure_counts_as_nothing_found_and_costs_nothing() -> None:
    right = Right(found=True, verdict=True, owner=True, line=True)
    made = {"file": PROGRAM, "line": LINE}
    finding = {"verdict": "leak", "owner": "futures", "made_at": made, "limit_step": 90, "plateau_step": None}
    told = watch_answer([finding], right)
    assert told.top == f"leak: futures, {NAME}.py:{LINE}"
    rows = [
        {"name": NAME, "tool": "alone", "cpu": 0.5, "peak": 100_000_000},
        {"name": NAME, "tool": "watch", "cpu": 1.0, "peak": 110_000_000, **vars(told)},
        {"name": NAME, "tool": "fil", "failed": "not done after 90 s"},
    ]
    table = cases_table(rows, ["watch", "fil"])
    assert table[2] == f"| {NAME} | 0.5 | FOLVD ×2.0 10 | failed |"
    assert "| **line** | | 1 of 1 | 0 of 1 |" in table
    assert table[-1] == "| **MB more, median** | | 10 |  |"
