"""How much memory this process can come to: by the machine, by its container, and by the shell's limits."""

import resource

from flatwater_watch.meters.cgroup import memory_headroom
from flatwater_watch.meters.proc import available_bytes, read_kib_counters
from flatwater_watch.meters.process import resident_bytes


def memory_limits() -> dict[str, int]:
    """Resident bytes at which this process would meet each limit there is, if nothing else on the machine changed.

    `RAM` is what it has now and what the system has free. `cgroup` is the tightest control group above it, and
    `ulimit -v` and `ulimit -d` are the shell's limits on addresses and data; each is left out where nothing is set.
    """
    resident = resident_bytes()
    found = {"RAM": resident + available_bytes()}
    group = memory_headroom()
    if group is not None:
        found["cgroup"] = resident + group
    used_of = read_kib_counters("/proc/self/status")
    for name, kind, used in (
        ("ulimit -v", resource.RLIMIT_AS, used_of["VmSize"]),
        ("ulimit -d", resource.RLIMIT_DATA, used_of["VmData"]),
    ):
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY:
            found[name] = resident + max(0, soft - used)
    return found
