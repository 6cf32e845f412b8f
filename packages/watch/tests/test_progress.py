"""What takes long says how far it has come, to whoever waits, and to nobody else."""

import io
import re
import time
from collections.abc import Callable, Iterator

import pytest

from flatwater_watch import progress
from flatwater_watch.progress import ProgressPart, ProgressTrack, count_steps, is_due, track_progress
from flatwater_watch.terminal import Terminal

HOURS = 10 * 3600


def test_steps_are_the_items_whether_or_not_somebody_looks() -> None:
    assert [*count_steps("days", range(3))] == [0, 1, 2]
    with track_progress() as course:
        assert [*count_steps("days", range(3))] == [0, 1, 2]
        assert course.parts == ()


def test_the_line_names_every_part_from_the_outermost_on() -> None:
    with track_progress() as course:
        for _ in count_steps("folds", range(2)):
            for day in count_steps("days", range(5)):
                if day == 3:
                    assert course.line().startswith("folds ")
                    assert "days 3/5" in course.line()
    assert course.line() == ""


def test_what_ends_early_leaves_nothing_behind() -> None:
    def fails() -> Iterator[int]:
        for day in count_steps("days", range(5)):
            if day:
                raise ValueError
            yield day

    with track_progress() as course, pytest.raises(ValueError):  # noqa: PT011  (its own)
        [*fails()]
    assert course.parts == ()


def test_the_time_left_is_that_of_the_outermost_part() -> None:
    outer = ProgressPart("folds", 4, done=1, began=time.monotonic() - 30)
    assert ProgressTrack((outer, ProgressPart("days", 100))).line() == "folds 1/4, days 0/100, 1 min 30 s left"


def test_lines_are_10_seconds_apart_at_first_and_few_in_long_work() -> None:
    said, told = [], 0.0
    for second in range(HOURS):
        if is_due(second, 0, told):
            said.append(second)
            told = second
    assert said[:5] == [10, 20, 30, 40, 50]
    assert len(said) < 300


@pytest.fixture
def frequent_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line is due at each look, and looks are many."""
    monkeypatch.setattr(progress, "MINIMUM_LINE_SECONDS", 0.0)
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.001)


def until(done: Callable[[], bool]) -> None:
    """Wait until something has happened, four minutes at most."""
    end = time.monotonic() + 240
    while not done() and time.monotonic() < end:
        time.sleep(0.001)


@pytest.mark.usefixtures("frequent_lines")
def test_a_log_is_told_how_far_it_has_come() -> None:
    out = io.StringIO()
    with Terminal(file=out, width=100).status("playing [days] …"):
        for _ in count_steps("days", range(7)):
            until(lambda: "days 0/7" in out.getvalue())
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("playing [days] … ")
    assert any(line.endswith("days 0/7") for line in lines)


@pytest.mark.usefixtures("frequent_lines")
def test_how_long_it_took_does_not_run_into_the_time_that_is_left() -> None:
    out = io.StringIO()
    with Terminal(file=out, width=100).status("round 3 of 8, 2m left"):
        until(lambda: bool(out.getvalue()))
    assert re.fullmatch(r"round 3 of 8, 2m left, \S+ s so far", out.getvalue().splitlines()[0])


@pytest.mark.usefixtures("frequent_lines")
def test_a_terminal_keeps_one_line_and_a_quiet_console_none() -> None:
    out, nothing = io.StringIO(), io.StringIO()
    shown = Terminal(file=out, width=100, force_terminal=True)
    with Terminal(file=nothing, quiet=True).status("playing …"), shown.status("playing …"):
        for _ in count_steps("days", range(7)):
            until(lambda: "days 0/7" in out.getvalue())
    assert "days 0/7" in out.getvalue()
    assert nothing.getvalue() == ""


def test_nothing_is_said_of_what_takes_no_time() -> None:
    out = io.StringIO()
    with Terminal(file=out).status("reading …"):
        pass
    assert out.getvalue() == ""
