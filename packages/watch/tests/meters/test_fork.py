"""A fork answers, and leaves nothing behind."""

import json
import mmap
import os
import sys
import threading
import time
import warnings
from itertools import count
from pathlib import Path

import pytest

from flatwater_watch.meters import fork
from flatwater_watch.meters.fork import DetachedFork, run_in_fork
from flatwater_watch.meters.proc import process_cpu_seconds

pytestmark = pytest.mark.usefixtures("_bears_forks")


def test_it_answers_from_another_process() -> None:
    assert run_in_fork(lambda: {"pid": os.getpid()})["pid"] != os.getpid()


def test_a_driver_is_unsafe_when_it_has_a_device_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`import torch` maps CUDA's driver: a search of garbage was given up in each program on a machine with a GPU."""
    for name in ("libcuda.so.1", "device0"):
        (tmp_path / name).write_bytes(bytes(mmap.PAGESIZE))
    monkeypatch.setattr(fork, "DEVICES", f"{tmp_path}/device")
    with (tmp_path / "libcuda.so.1").open("rb") as driver, mmap.mmap(driver.fileno(), 0, access=mmap.ACCESS_READ):
        assert fork.copy_unsafe_driver() is None
        with (tmp_path / "device0").open("rb"):
            assert fork.copy_unsafe_driver() == "CUDA"
        assert fork.copy_unsafe_driver() is None


REPLACED = {
    os: (
        *("pipe", "read", "write", "open", "close", "dup2", "closerange"),
        *("setsid", "waitpid", "getpid", "killpg", "_exit"),
    ),
    json: ("dumps", "loads"),
}


def test_a_program_may_have_replaced_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a program may that is watched: a search of garbage failed there, and the readings ended."""
    with monkeypatch.context() as replaced:
        for module, names in REPLACED.items():
            for name in names:
                replaced.setattr(module, name, lambda *_, **__: None)
        waited = run_in_fork(lambda: ["waited"])
        apart = DetachedFork(lambda: ["apart"])
        ended = apart.is_done(60)
        answer = apart.result()
        stopped = DetachedFork(lambda: time.sleep(60))
        stopped.stop()
    assert (waited, ended, answer) == (["waited"], True, ["apart"])


def refuse_fork() -> int:
    raise RuntimeError("can't fork at interpreter shutdown")


def test_it_answers_where_python_refuses_a_fork_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python 3.12.0 and 3.12.1 do: the last look of a watch failed there, and 150 MiB were told as flat."""
    monkeypatch.setattr("flatwater_watch.meters.fork.fork", refuse_fork)
    assert run_in_fork(os.getpid) != os.getpid()
    apart = DetachedFork(os.getpid)
    assert apart.is_done(60)
    assert apart.result() != os.getpid()


def test_what_it_changes_stays_there() -> None:
    found: list[int] = []

    def work() -> int:
        found.append(1)
        sys.modules["made.in.the.fork"] = sys
        return len(found)

    assert run_in_fork(work) == 1
    assert found == []
    assert "made.in.the.fork" not in sys.modules


def test_a_long_answer_does_not_block() -> None:
    assert len(run_in_fork(lambda: "x" * 300_000)) == 300_000


def test_a_failure_is_an_error_here(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="ended with 1"):
        run_in_fork(lambda: {}["missing"])
    assert "KeyError: 'missing'" in capfd.readouterr().err


def test_ctrl_c_prints_no_traceback_of_the_fork(capfd: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(RuntimeError):
        run_in_fork(interrupt)
    assert capfd.readouterr().err == ""


def test_a_fork_never_waits_for_a_thread_that_it_does_not_have() -> None:
    """Another thread asks for the interpreter's lock all the time, and is not in the fork to take it."""
    over, before = threading.Event(), sys.getswitchinterval()

    def work() -> None:
        for _ in count():
            if over.is_set():
                return

    thread = threading.Thread(target=work)
    thread.start()
    sys.setswitchinterval(1e-6)
    try:
        assert [run_in_fork(lambda: 1) for _ in range(30)] == [1] * 30
    finally:
        sys.setswitchinterval(before)
        over.set()
        thread.join()


def test_the_filters_of_warnings_are_as_they_were_and_what_was_warned_of_stays_known() -> None:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("default")
        before = list(warnings.filters)
        for _ in range(2):
            warnings.warn("once", UserWarning, stacklevel=1)
            run_in_fork(lambda: 1)
        assert list(warnings.filters) == before
    assert [str(warning.message) for warning in heard] == ["once"]


def test_its_end_is_waited_for_as_long_as_it_may_work() -> None:
    quick, idle = DetachedFork(lambda: ["done"]), DetachedFork(lambda: time.sleep(60))
    assert quick.wait_until_done(20)
    assert quick.result() == ["done"]
    assert not idle.wait_until_done(0.05)
    idle.stop()


def test_the_cpu_seconds_of_a_process_are_those_that_it_knows_itself() -> None:
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    before, told, after = sum(os.times()[:4]), process_cpu_seconds(os.getpid()), sum(os.times()[:4])
    tick = 1 / os.sysconf("SC_CLK_TCK")  # each of the four is told in whole ones
    assert before - 4 * tick <= told <= after + 4 * tick
    assert process_cpu_seconds(2**22 + 1) == 0
