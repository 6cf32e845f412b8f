"""CPU time and memory that the control groups above this process allow it, under version 1 and version 2."""

from collections.abc import Iterator
from os import PathLike

from flatwater_watch.meters.system_calls import read_text

_CGROUP_MOUNT = "/sys/fs/cgroup"
_MEMBERSHIP_FILE = "/proc/self/cgroup"
_NO_LIMIT = 1 << 60
"""Version 1 says "no limit" with a number beyond any machine."""


def quota_cores(
    mount: str | PathLike[str] = _CGROUP_MOUNT, membership: str | PathLike[str] = _MEMBERSHIP_FILE
) -> float:
    """Cores that the tightest control group above this process pays for; infinity if none sets a quota.

    Args:
        mount: folder in which the control groups are mounted.
        membership: the list of groups that the process is in, one `number:controllers:path` a line.
    """
    return min((_group_quota(folder) for folder in _group_folders("cpu", mount, membership)), default=float("inf"))


def memory_headroom(
    mount: str | PathLike[str] = _CGROUP_MOUNT, membership: str | PathLike[str] = _MEMBERSHIP_FILE
) -> int | None:
    """Bytes that the tightest control group above this process still gives; None if none sets a limit."""
    free = [_group_headroom(folder) for folder in _group_folders("memory", mount, membership)]
    return min((size for size in free if size is not None), default=None)


def _group_folders(controller: str, mount: str | PathLike[str], membership: str | PathLike[str]) -> Iterator[str]:
    """Folders of the process's groups for a controller and of all groups above them, of version 2 and version 1."""
    for line in (_read_stripped(f"{membership}") or "").splitlines():
        _, controllers, inside = line.split(":", 2)
        names = [name for name in inside.split("/") if name]
        if controllers and controller not in controllers.split(","):
            continue
        root = f"{mount}/{controllers}" if controllers else f"{mount}"
        # A container sees its own group as the root, so folders on the way to it may be missing.
        yield from ("/".join((root, *names[:depth])) for depth in range(len(names), -1, -1))


def _read_stripped(path: str) -> str | None:
    """The text of a file, without blanks around it; None if there is no such file."""
    try:
        return read_text(path).strip()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _group_quota(group: str) -> float:
    """Quota over period of one group (`cpu.max` in version 2, `cpu.cfs_*` in version 1); infinity without one."""
    if (both := _read_stripped(f"{group}/cpu.max")) is not None:
        quota, period = both.split()
    elif (only := _read_stripped(f"{group}/cpu.cfs_quota_us")) is not None:
        quota, period = only, read_text(f"{group}/cpu.cfs_period_us")
    else:
        return float("inf")
    return int(quota) / int(period) if quota not in {"max", "-1"} else float("inf")


def _group_headroom(group: str) -> int | None:
    """Bytes that a group leaves (`memory.max` or, in version 1, `memory.limit_in_bytes`); None without a limit."""
    for limit, usage in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
        limit_bytes = _read_stripped(f"{group}/{limit}")
        used = _read_stripped(f"{group}/{usage}")
        if limit_bytes is not None and used is not None:
            if limit_bytes == "max" or int(limit_bytes) > _NO_LIMIT:
                return None
            return max(0, int(limit_bytes) - int(used) + _reclaimable_bytes(f"{group}/memory.stat"))
    return None


def _reclaimable_bytes(stat: str) -> int:
    """File pages that the kernel drops before it kills anyone."""
    numbers = dict(line.split()[:2] for line in (_read_stripped(stat) or "").splitlines())
    return int(numbers.get("inactive_file", 0))
