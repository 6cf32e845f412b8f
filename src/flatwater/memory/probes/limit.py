"""How much memory this process can come to: by the machine, by its container, and by the shell's limits."""

import resource
import sys

import psutil

from flatwater.memory.probes.cgroup import memory_headroom
from flatwater.memory.probes.process import resident_bytes


def limits() -> dict[str, int]:
    """Resident bytes at which this process would meet each limit there is, if nothing else on the machine changed.

    `RAM` is what it has now and what the system has free. `cgroup` is the tightest control group above it, and
    `ulimit -v` and `ulimit -d` are the shell's limits on addresses and data; each is left out where nothing is set.
    """
    resident = resident_bytes()
    found = {"RAM": resident + int(psutil.virtual_memory().available)}
    group = memory_headroom()
    if group is not None:
        found["cgroup"] = resident + group
    memory = psutil.Process().memory_info()
    for name, kind, used in (
        ("ulimit -v", resource.RLIMIT_AS, memory.vms),
        ("ulimit -d", resource.RLIMIT_DATA, memory.data if sys.platform == "linux" else memory.rss),
    ):
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY:
            found[name] = resident + max(0, soft - int(used))
    return found
