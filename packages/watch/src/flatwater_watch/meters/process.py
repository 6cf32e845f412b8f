"""Figures of this process from the operating system: resident bytes, and the cores that are really free for it.

Cores are fewer than the machine has where an affinity mask or a container's quota says so, and again where other
processes are busy: with two torch threads and another busy process, tiny networks fell from 542 to 4 updates a second.
"""

import os
import platform
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from flatwater_watch.meters.cgroup import quota_cores
from flatwater_watch.meters.mappings import footprint
from flatwater_watch.meters.proc import busy_core_ticks


def resident_bytes() -> int:
    """Bytes of this process that are in RAM now, shared pages included; takes a few microseconds."""
    return footprint().resident


def private_bytes(pids: Iterable[int]) -> int:
    """Anonymous resident bytes of other processes together; a process that has ended has 0."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            total += footprint(pid).anonymous
    return total


def free_cores(window: float = 0.2) -> int:
    """Whole cores that this process can use without waiting for another process; at least 1.

    Args:
        window: seconds over which the load of other processes is sampled; the call takes that long.
    """
    before = read_cpu_sample()
    time.sleep(window)
    return whole_cores(len(allowed_cores()), load_elsewhere(before, read_cpu_sample()), quota_cores())


def whole_cores(allowed: int, load: float, quota: float) -> int:
    """Number of cores to use, at least 1: the `allowed` cores without the `load` of others, and at most `quota`."""
    # Idle cores are a measurement, so they are rounded; a quota is a law, and running past it means being stopped.
    return max(1, int(min(round(allowed - load), quota)))


def allowed_cores() -> set[int]:
    """Numbers of the cores that the affinity mask leaves to this process."""
    return os.sched_getaffinity(0)


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name for itself, or its architecture if it has none."""
    names = ("model name", "cpu model", "Hardware", "Processor")  # x86; MIPS; ARM boards
    try:
        pairs = [
            line.split(":", maxsplit=1) for line in cpuinfo.read_text(errors="replace").splitlines() if ":" in line
        ]
    except OSError:
        pairs = []
    fields = {name.strip(): " ".join(value.split()) for name, value in reversed(pairs)}
    return next((fields[name] for name in names if fields.get(name)), platform.machine() or "unknown")


class CpuSample(NamedTuple):
    """Clocks of one moment, in seconds."""

    wall: float
    busy: float
    """CPU seconds of all processes on the cores allowed to this process."""
    own: float
    """CPU seconds of this process."""


def read_cpu_sample() -> CpuSample:
    """The clocks now."""
    return CpuSample(wall=time.perf_counter(), busy=_busy_seconds(), own=time.process_time())


def load_elsewhere(before: CpuSample, after: CpuSample) -> float:
    """Cores' worth of work that other processes did between two samples, on the cores of this process."""
    return max(0.0, (after.busy - before.busy) - (after.own - before.own)) / (after.wall - before.wall)


def _busy_seconds() -> float:
    """Seconds since boot in which the allowed cores were busy, summed over them."""
    cores = allowed_cores()
    busy_ticks = sum(busy for core, busy in busy_core_ticks().items() if core in cores)
    return busy_ticks / os.sysconf("SC_CLK_TCK")
