"""A copy of the process tells the allocator's totals, and the program sees nothing of it."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from flatwater_watch.meters import allocator, allocator_clone, allocator_meter
from flatwater_watch.meters.allocator import allocator_totals, note_seconds
from flatwater_watch.meters.allocator_clone import ProcessCopy
from flatwater_watch.meters.allocator_meter import SLOW_QUERY_SECONDS, AllocatorMeter
from flatwater_watch.meters.fork import DetachedFork, run_in_fork
from flatwater_watch.meters.mappings import descendant_memory
from flatwater_watch.meters.proc import WAIT_ALL_CHILDREN, descendant_pids, is_stopped, is_waiting

pytestmark = pytest.mark.usefixtures("_bears_forks")

MINIMUM_FREE = 8 << 20


def a_clone() -> ProcessCopy:
    try:
        return ProcessCopy()
    except OSError as refused:
        pytest.skip(str(refused))


Begin = Callable[[], ProcessCopy]


def hanging(monkeypatch: pytest.MonkeyPatch) -> ProcessCopy:
    """One that waits for ever, as it does for a lock which another thread held when it was made."""
    monkeypatch.setattr(allocator_clone, "_query_function", lambda libc: libc.pause)
    clone = a_clone()
    wait_until(lambda: is_waiting(clone._pid))
    return clone


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """Makes copies that are not done, as a signal has stopped them."""
    made: list[ProcessCopy] = []

    def begin_stopped() -> ProcessCopy:
        made.append(hanging(monkeypatch))
        os.kill(made[-1]._pid, signal.SIGSTOP)
        wait_until(lambda: is_stopped(made[-1]._pid))
        return made[-1]

    yield begin_stopped
    for clone in made:
        clone.stop()


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 240
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.001)


def waited_for(apart: ProcessCopy) -> ProcessCopy:
    wait_until(apart.is_done)
    return apart


def exists(pid: int) -> bool:
    """Whether there is such a process, a zombie too."""
    return Path(f"/proc/{pid}").exists()


def test_it_says_what_this_process_would() -> None:
    """In a fork, where no other thread allocates; and all is as it was when it began, whatever comes while it works."""

    def equal() -> bool:
        kept = [bytes(700) for _ in range(40_000)]
        del kept[::2]
        block = ctypes.create_string_buffer(1 << 16)  # below the mmap threshold: the end of the heap is not empty
        waited_for(ProcessCopy())  # what the first one imports and keeps
        told = [(ProcessCopy(), allocator_totals()) for _ in range(3)]
        more = [bytes(900) for _ in range(50_000)]
        found = [(waited_for(clone).result()[:2], here) for clone, here in told]
        return len(kept) + len(more) + len(block) > 0 and all(
            here is not None
            and abs(in_use - here.in_use) < 1 << 16
            and abs(free - here.free) < 1 << 16
            and here.free > MINIMUM_FREE
            for (in_use, free), here in found
        )

    a_clone().stop()
    assert run_in_fork(equal)


UNTOUCHED = """
import ctypes
from flatwater_watch.meters import allocator
from flatwater_watch.meters.allocator_clone import ProcessCopy

first = ProcessCopy()  # what it imports and keeps lies before the block, not behind it
while not first.is_done():
    pass
libc = ctypes.CDLL(None)
libc.mallopt(-1, 1 << 30)  # M_TRIM_THRESHOLD: keep the end
libc.mallopt(-2, 64 << 20)  # M_TOP_PAD: have so much more at once
libc.mallopt(-3, 1 << 25)  # M_MMAP_THRESHOLD: blocks lie in the heap
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
_, end = allocator.main_heap()
block = libc.malloc(8 << 20)
while block + (8 << 20) <= end:  # a hole had room for it
    block = libc.malloc(8 << 20)
clone = ProcessCopy()
ctypes.memset(block, 1, 8 << 20)
libc.free(ctypes.c_void_p(block))
ctypes.memset(block + (1 << 20), 1, 8 << 20)  # meanwhile the end is touched
while not clone.is_done():
    pass
keepcost = allocator.Mallinfo2.from_buffer_copy(clone._shared_memory).keepcost
print(keepcost, clone._touched_bytes(keepcost))
"""


def test_of_what_is_free_at_the_end_of_the_heap_untouched_pages_are_left_out() -> None:
    """In a process of its own: a request that malloc refuses has its thread use another heap from then on."""
    a_clone().stop()
    told = subprocess.run([sys.executable, "-c", UNTOUCHED], capture_output=True, text=True, check=True).stdout
    keepcost, touched = map(int, told.split())
    assert keepcost > 32 << 20
    assert touched < 1 << 20


def test_the_programs_own_waits_see_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a fork, which begins without children."""
    a_clone().stop()

    def observe() -> list[Any]:
        heard: list[int] = []
        signal.signal(signal.SIGCHLD, lambda number, _frame: heard.append(number))
        hung = hanging(monkeypatch)
        told = [
            has_no_child(os.wait),
            has_no_child(lambda: os.waitpid(-1, os.WNOHANG)),
            list(descendant_pids()),
            descendant_memory().count,
        ]
        hung.stop()
        monkeypatch.setattr(allocator_clone, "_query_function", asks)
        waited_for(ProcessCopy()).result()
        return [*told, heard, has_no_child(lambda: os.waitpid(-1, WAIT_ALL_CHILDREN))]

    asks = allocator_clone._query_function
    assert run_in_fork(observe) == [True, True, [], 0, [], True]


def has_no_child(wait: Callable[[], object]) -> bool:
    try:
        wait()
    except ChildProcessError:
        return True
    return False


def test_nothing_is_left_of_it() -> None:
    for _ in range(3):
        clone = a_clone()
        pid = clone._pid
        waited_for(clone).result()
        assert not exists(pid)


def test_it_is_gone_when_it_is_stopped(begin: Begin) -> None:
    hung = begin()
    pid = hung._pid
    assert not hung.is_done()
    assert exists(pid)
    hung.stop()
    assert hung.is_done()
    assert not exists(pid)
    with pytest.raises(RuntimeError, match="without an answer"):
        hung.result()


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> AllocatorMeter:
    """Asks for what takes long, in a copy."""
    monkeypatch.setattr(allocator, "_last_query_seconds", 2 * SLOW_QUERY_SECONDS)
    monkeypatch.setattr(allocator_meter, "CLONE_SECONDS_PER_BYTE", 0.0)
    return AllocatorMeter()


@pytest.mark.parametrize("why", ["it waits for a lock", "it takes too long"])
def test_one_that_hangs_is_killed_and_the_next_answer_is_a_direct_one(
    asking: AllocatorMeter, begin: Begin, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    if why == "it takes too long":
        monkeypatch.setattr(allocator_clone, "MINIMUM_KILL_SECONDS", 0.0)
        monkeypatch.setattr(allocator_clone, "KILL_RATIO", 0.0)
        monkeypatch.setattr(allocator_meter, "ProcessCopy", begin)
    else:
        monkeypatch.setattr(allocator_meter, "ProcessCopy", lambda: hanging(monkeypatch))
    assert asking.newest_totals_() is None
    clone = asking._query_process
    assert isinstance(clone, ProcessCopy)
    pid = clone._pid
    assert exists(pid)
    assert asking.newest_totals_() is None
    assert not exists(pid)
    assert asking.newest_totals_() is not None
    assert asking._query_process is None


def test_an_answer_that_is_waited_for_no_more_leaves_nothing(
    asking: AllocatorMeter, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocator_meter, "ProcessCopy", begin)
    assert asking.awaits_first_answer_()
    clone = asking._query_process
    assert isinstance(clone, ProcessCopy)
    pid = clone._pid
    asking.close()
    assert not exists(pid)


def test_one_that_ends_by_itself_otherwise_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under another code than 0."""
    begun = allocator_clone._start_copy
    monkeypatch.setattr(allocator_clone, "_query_function", lambda libc: libc.toupper)
    monkeypatch.setattr(allocator_clone, "_start_copy", lambda libc, shared: begun(libc, shared + 7))
    clone = a_clone()
    with pytest.raises(RuntimeError, match="without an answer"):
        waited_for(clone).result()


def test_somebody_else_may_have_waited_for_it(begin: Begin) -> None:
    hung = begin()
    os.kill(hung._pid, signal.SIGKILL)
    os.waitpid(hung._pid, WAIT_ALL_CHILDREN)
    assert hung.is_done()
    with pytest.raises(RuntimeError, match="without an answer"):
        hung.result()


def test_a_fork_of_the_program_forgets_it_and_leaves_it_alone(begin: Begin) -> None:
    hung = begin()
    pid = hung._pid
    child = os.fork()
    if child == 0:
        hung.stop()
        os._exit(0 if hung.is_done() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not hung.is_done()
    assert psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_it_hears_no_signal_and_the_program_hears_its_own_again(begin: Begin) -> None:
    """As of Ctrl-C, which goes to the whole group: a handler of the program's would run in the copy too."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    hung = begin()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCONT):
        os.kill(hung._pid, number)
    wait_until(lambda: is_waiting(hung._pid))
    pending, blocked = (mask_of(hung._pid, name) for name in ("ShdPnd", "SigBlk"))
    assert pending & ~blocked == 0
    assert pending != 0


def mask_of(pid: int, name: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith(name))


def test_a_file_that_the_program_closes_is_closed(begin: Begin) -> None:
    """A reader at the other end of a pipe would wait for its end."""
    reads, writes = os.pipe()
    begin()
    os.close(writes)
    assert os.read(reads, 1) == b""
    os.close(reads)


@pytest.mark.long
def test_no_mapping_is_left_by_an_answer() -> None:
    def mappings() -> int:
        return Path("/proc/self/maps").read_text(encoding="utf-8").count("/dev/zero")

    def count_new_mappings() -> list[int]:
        before, new = mappings(), []  # a fork has those of tests before this one
        for count in (3, 20):
            for _ in range(count):
                waited_for(ProcessCopy()).result()
                ProcessCopy().stop()
            new.append(mappings() - before)
        return new

    a_clone().stop()
    assert run_in_fork(count_new_mappings) == [0, 0]


@pytest.mark.parametrize("cause", ["another machine", "forbidden", "a driver"])
def test_where_none_can_be_made_a_fork_is_asked(monkeypatch: pytest.MonkeyPatch, cause: str) -> None:
    if allocator_totals() is None:
        pytest.skip("this C library does not tell")
    if cause == "another machine":
        monkeypatch.setattr(allocator_clone, "_load_libc", lambda: None)
    elif cause == "forbidden":
        a_clone().stop()
        monkeypatch.setattr(allocator_clone, "CLONE_FLAGS", 0x00000800)  # CLONE_SIGHAND alone: EINVAL
    else:
        monkeypatch.setattr(allocator_clone, "copy_unsafe_driver", lambda: "CUDA")
    monkeypatch.setattr(allocator_meter, "CLONE_SECONDS_PER_BYTE", 0.0)
    monkeypatch.setattr(allocator_meter, "FORK_SECONDS_PER_BYTE", 0.0)
    monkeypatch.setattr(allocator, "_last_query_seconds", None)
    note_seconds(2 * SLOW_QUERY_SECONDS)
    with pytest.raises(OSError):  # noqa: PT011  (of any number)
        ProcessCopy()
    asking = AllocatorMeter()
    assert asking.awaits_first_answer_()
    assert isinstance(asking._query_process, DetachedFork)
    asking.close()
