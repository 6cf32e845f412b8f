"""A fork answers, and leaves nothing behind."""

import os
import sys

import pytest

from flatwater.memory.probes.fork import in_fork


def test_it_answers_from_another_process() -> None:
    assert in_fork(lambda: {"pid": os.getpid()})["pid"] != os.getpid()


def test_what_it_changes_stays_there() -> None:
    found: list[int] = []

    def work() -> int:
        found.append(1)
        sys.modules["made.in.the.fork"] = sys
        return len(found)

    assert in_fork(work) == 1
    assert found == []
    assert "made.in.the.fork" not in sys.modules


def test_a_long_answer_does_not_block() -> None:
    assert len(in_fork(lambda: "x" * 300_000)) == 300_000


def test_a_failure_is_an_error_here(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="ended with 1"):
        in_fork(lambda: {}["missing"])
    assert "KeyError: 'missing'" in capfd.readouterr().err
