"""Limits on the memory of this process: those of the machine, its container, and the shell."""

import resource

from flatwater_watch.meters.cgroup import memory_headroom
from flatwater_watch.meters.mappings import footprint
from flatwater_watch.meters.proc import available_bytes, read_kib_counters


def memory_limits() -> dict[str, int]:
    """Return the resident bytes at which this process would meet each limit, if nothing else on the machine changed.

    The keys are `RAM`, the sum of its resident bytes and the memory that the system has free; `cgroup`, the tightest
    control group above it; `ulimit -v` and `ulimit -d`, the shell's limits on addresses and data. Limits that are not
    set are left out.
    """
    resident = footprint().resident
    limits = {"RAM": resident + available_bytes()}
    group_headroom = memory_headroom()
    if group_headroom is not None:
        limits["cgroup"] = resident + group_headroom
    process_bytes = read_kib_counters("/proc/self/status")
    for name, kind, used_bytes in (
        ("ulimit -v", resource.RLIMIT_AS, process_bytes["VmSize"]),
        ("ulimit -d", resource.RLIMIT_DATA, process_bytes["VmData"]),
    ):
        soft_limit, _ = resource.getrlimit(kind)
        if soft_limit != resource.RLIM_INFINITY:
            limits[name] = resident + max(0, soft_limit - used_bytes)
    return limits
