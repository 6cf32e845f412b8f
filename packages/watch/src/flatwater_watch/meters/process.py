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

from flatwater_watch.meters.cgroup import quota_cores
from flatwater_watch.meters.mappings import footprint
from flatwater_watch.meters.proc import busy_core_ticks


def resident_bytes() -> int:
    """Return the bytes of this process in RAM, shared pages included; the call takes a few microseconds."""
    return footprint().resident


def private_bytes(pids: Iterable[int]) -> int:
    """Return the sum of the anonymous resident bytes of processes; a process that has ended has 0."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            total += footprint(pid).anonymous
    return total


def free_cores(window: float = 0.2) -> int:
    """Return the number of whole cores that this process can use without waiting for another process; at least 1.

    The load of other processes is sampled for `window` seconds.
    """
    earlier = read_clocks()
    time.sleep(window)
    load = load_elsewhere(earlier, read_clocks())
    return whole_cores(len(allowed_cores()), load=load, quota=quota_cores())


def whole_cores(allowed_cores: int, load: float, quota: float) -> int:
    """Return the number of cores to use, at least 1.

    Args:
        allowed_cores: number of cores on which this process may run.
        load: mean number of them that other processes keep busy.
        quota: cores that the container allows; infinite without a quota.
    """
    # Idle cores are a measurement, and are rounded; a quota is cut off, as the kernel stops a process that exceeds it.
    return max(1, int(min(round(allowed_cores - load), quota)))


def allowed_cores() -> set[int]:
    """Return the numbers of the cores on which the affinity mask lets this process run."""
    return os.sched_getaffinity(0)


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's model from /proc/cpuinfo; its architecture if the file names no model."""
    field_names = ("model name", "cpu model", "Hardware", "Processor")  # x86; MIPS; ARM boards
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    # Lines such as `model name : AMD EPYC`, for one core after the other.
    pairs = [line.split(":", maxsplit=1) for line in lines if ":" in line]
    # Reversed, so that the first core's value of each field stays.
    fields = {name.strip(): " ".join(value.split()) for name, value in reversed(pairs)}
    models = [fields[name] for name in field_names if fields.get(name)]
    if models:
        return models[0]
    return platform.machine() or "unknown"


def read_clocks() -> tuple[float, float]:
    """Return the time, and the CPU seconds so far of other processes on the cores allowed to this process."""
    return time.perf_counter(), _busy_seconds() - time.process_time()


def load_elsewhere(earlier: tuple[float, float], later: tuple[float, float]) -> float:
    """Return the mean number of allowed cores that other processes kept busy between two results of `read_clocks`."""
    (earlier_time, earlier_cpu_seconds), (later_time, later_cpu_seconds) = earlier, later
    return max(0.0, later_cpu_seconds - earlier_cpu_seconds) / (later_time - earlier_time)


def _busy_seconds() -> float:
    """Return the seconds since boot in which the allowed cores were busy, summed over these cores."""
    cores = allowed_cores()
    busy_ticks = sum(busy for core, busy in busy_core_ticks().items() if core in cores)
    return busy_ticks / os.sysconf("SC_CLK_TCK")
