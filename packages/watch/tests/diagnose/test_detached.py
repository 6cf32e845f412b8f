"""Work that goes on in a fork: not waited for, no child of the program, and nothing of it left when it is stopped."""

import os
import time
from contextlib import suppress

import psutil
import pytest

from flatwater_watch.meters.fork import DetachedFork

pytestmark = pytest.mark.usefixtures("_bears_forks")


def wait_for_ever() -> None:
    time.sleep(600)


def test_it_answers_when_it_has_ended() -> None:
    fork = DetachedFork(lambda: {"pid": os.getpid()})
    assert fork.is_done(60)
    assert fork.result()["pid"] != os.getpid()


def test_it_is_not_waited_for() -> None:
    fork = DetachedFork(wait_for_ever)
    assert not fork.is_done()
    fork.stop()
    assert fork.is_done()


def test_it_is_no_child_of_the_program() -> None:
    """Which may wait for its own, whichever ends first, or count them."""
    children = psutil.Process().children()
    fork = DetachedFork(wait_for_ever)
    assert psutil.Process().children() == children
    with pytest.raises(ChildProcessError):
        os.waitpid(fork._pid, os.WNOHANG)
    fork.stop()


def test_it_is_gone_when_it_is_stopped_with_forks_of_its_own() -> None:
    def work() -> None:
        os.fork()
        wait_for_ever()

    fork = DetachedFork(work)
    fork.stop()
    until = time.monotonic() + 240
    while fork._pid in groups() and time.monotonic() < until:
        time.sleep(0.01)
    assert fork._pid not in groups()


def groups() -> set[int]:
    """The groups of the processes that live; one that ends meanwhile has none."""
    found = set[int]()
    for process in psutil.process_iter(["status"]):
        if process.info["status"] != psutil.STATUS_ZOMBIE:
            with suppress(ProcessLookupError):
                found.add(os.getpgid(process.pid))
    return found


def test_it_holds_no_file_of_the_program_open() -> None:
    """A reader at the other end of a pipe would wait for its end."""
    reads, writes = os.pipe()
    fork = DetachedFork(wait_for_ever)
    os.close(writes)
    assert os.read(reads, 1) == b""
    os.close(reads)
    fork.stop()


def test_a_long_answer_is_read_in_pieces() -> None:
    fork = DetachedFork(lambda: "x" * 300_000)
    assert fork.is_done(60)
    assert len(fork.result()) == 300_000


def test_a_fork_that_still_works_has_no_result_yet() -> None:
    """It said that the fork had ended."""
    fork = DetachedFork(wait_for_ever)
    with pytest.raises(RuntimeError, match="the fork still works: wait for `is_done`"):
        fork.result()
    fork.stop()
    with pytest.raises(RuntimeError, match="ended without an answer"):
        fork.result()


def test_a_failure_is_an_error_here(capfd: pytest.CaptureFixture[str]) -> None:
    fork = DetachedFork(lambda: {}["missing"])
    assert fork.is_done(60)
    with pytest.raises(RuntimeError, match="without an answer"):
        fork.result()
    assert capfd.readouterr() == ("", "")  # the terminal is the program's


def test_a_fork_of_the_program_forgets_it_and_leaves_it_alone() -> None:
    fork = DetachedFork(lambda: time.sleep(0.5) or "done")
    child = os.fork()
    if child == 0:
        fork.stop()
        os._exit(0 if fork.is_done() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert fork.is_done(60)
    assert fork.result() == "done"


def test_it_leaves_no_descriptor_behind() -> None:
    before = psutil.Process().num_fds()
    for _ in range(5):
        fork = DetachedFork(lambda: 1)
        fork.is_done(60)
        DetachedFork(wait_for_ever).stop()
    assert psutil.Process().num_fds() == before
