"""What the operating system says of a process, against what was done to it."""

import mmap
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import psutil
import pytest

from flatwater_watch.meters.process import (
    allowed_cores,
    free_cores,
    load_elsewhere,
    read_clocks,
    resident_bytes,
    whole_cores,
)

MIB = 1 << 20


def test_resident_memory_is_what_psutil_reads() -> None:
    assert resident_bytes() == pytest.approx(psutil.Process().memory_info().rss, rel=0.02)


def test_touched_pages_are_resident_and_untouched_ones_are_not() -> None:
    """A mapping of its own: an array could be given memory that this process freed before and still holds."""
    before = resident_bytes()
    with mmap.mmap(-1, 64 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block:
        assert resident_bytes() - before < 8 * MIB
        for page in range(0, 64 * MIB, mmap.PAGESIZE):
            block[page] = 1
        # The kernel may take back cold pages of this process meanwhile, so the lower bound is loose.
        assert 40 * MIB < resident_bytes() - before < 72 * MIB


@contextmanager
def busy_process() -> Iterator[None]:
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE
    ) as spinning:
        assert spinning.stdout is not None
        spinning.stdout.readline()
        try:
            yield
        finally:
            spinning.kill()


def test_a_busy_process_elsewhere_is_seen() -> None:
    with busy_process():
        before = read_clocks()
        time.sleep(0.4)
        assert load_elsewhere(before, read_clocks()) > 0.4


def test_own_work_is_not_load_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """In 2 seconds all cores did 3 seconds of work, 2 of them for this process: half a core is taken."""

    def clocks(wall: float, busy: float, own: float) -> tuple[float, float]:
        now = SimpleNamespace(perf_counter=lambda: wall, process_time=lambda: own)
        monkeypatch.setattr("flatwater_watch.meters.process.time", now)
        monkeypatch.setattr("flatwater_watch.meters.process._busy_seconds", lambda: busy)
        return read_clocks()

    before = clocks(wall=50.0, busy=100.0, own=7.0)
    assert load_elsewhere(before, clocks(wall=52.0, busy=103.0, own=9.0)) == 0.5
    assert load_elsewhere(before, clocks(wall=52.0, busy=101.9, own=9.0)) == 0.0  # the clocks tick apart


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux binds processes to cores")
def test_cores_outside_the_affinity_mask_do_not_count() -> None:
    program = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from flatwater_watch.meters.process import *\n"
        "import sys; print(len(allowed_cores()), free_cores(), 'torch' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["1", "1", "False"]


def test_there_is_always_one_core_and_never_more_than_allowed() -> None:
    assert 1 <= free_cores(0.05) <= len(allowed_cores()) <= (os.cpu_count() or 1)


@pytest.mark.parametrize(
    ("allowed", "load", "quota", "cores"),
    [
        (8, 0.6, 2.5, 2),
        (8, 0.6, float("inf"), 7),
        (8, 0.4, float("inf"), 8),
        (2, 1.7, float("inf"), 1),
        (2, 2.0, 4.0, 1),
        (4, 0.0, 0.5, 1),
    ],
)
def test_load_is_rounded_and_a_quota_is_never_passed(allowed: int, load: float, quota: float, cores: int) -> None:
    assert whole_cores(allowed, load, quota) == cores
