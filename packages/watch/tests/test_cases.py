"""Real leaks of public projects under `flatwater watch`: the seen half, and that the table is whole."""

import ast
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[0] / "cases"))
from expected_cases import CASES, FLAT, MARK, OPENED, growing, halves, marked_line, program_of, right_lines
from watched_cases import judge, missing, watch

QUICK = "kept_futures"
"""Run by default; the others are slow."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == QUICK else pytest.mark.slow)
        for name in sorted({*halves()[0], *OPENED, QUICK})
    ],
)
def test_a_case_is_answered_as_a_person_would(name: str, tmp_path: Path) -> None:
    why = missing(name)
    if why:
        pytest.skip(why)
    said = watch(name, tmp_path)
    assert judge(name, said).all, said.text


def test_every_case_is_expected_to_do_something() -> None:
    assert {path.stem: path for path in CASES.glob("*/*.py")} == {
        name: program_of(name) for name in (*growing(), *FLAT)
    }


def test_the_halves_share_nothing_and_leave_nothing_out() -> None:
    seen, unseen = halves()
    assert sorted([*seen, *unseen, *OPENED]) == sorted([*growing(), *FLAT])
    assert len(unseen) >= 0.4 * len([*growing(), *FLAT])


@pytest.mark.parametrize("name", sorted(growing()))
def test_a_case_names_its_thread_and_its_fix(name: str) -> None:
    text = program_of(name).read_text().split('"""')[1]
    assert "\nThread: https://" in text
    assert "\nLooks like: " in text
    assert "\nFix: " in text


@pytest.mark.parametrize("name", sorted(growing()))
def test_the_line_of_a_case_is_marked_where_there_is_one(name: str) -> None:
    if growing()[name].line or MARK in program_of(name).read_text():
        # A frame is at the line at which a call begins, not at the line of its last bracket.
        nodes = ast.walk(ast.parse(program_of(name).read_text()))
        starts = {node.lineno for node in nodes if isinstance(node, ast.expr | ast.stmt)}
        assert marked_line(name) in starts
        assert right_lines(name) <= starts
