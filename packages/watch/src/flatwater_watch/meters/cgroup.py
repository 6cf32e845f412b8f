"""CPU time and memory that the control groups above this process allow it, under version 1 and version 2.

`mount` is the folder of the control groups' file system, and `membership` the file that names this process's groups.
"""

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
    """Return the cores that the tightest control group above this process allows; infinity if none sets a quota."""
    return min((_group_quota(folder) for folder in _group_folders("cpu", mount, membership)), default=float("inf"))


def memory_headroom(
    mount: str | PathLike[str] = _CGROUP_MOUNT, membership: str | PathLike[str] = _MEMBERSHIP_FILE
) -> int | None:
    """Return the bytes that the control groups above this process still let it take; None if none sets a limit."""
    headrooms = [_group_headroom(folder) for folder in _group_folders("memory", mount, membership)]
    return min((size for size in headrooms if size is not None), default=None)


def _group_folders(controller: str, mount: str | PathLike[str], membership: str | PathLike[str]) -> Iterator[str]:
    """Yield the folders of this process's groups for a controller (`cpu`, `memory`), and of all groups above them.

    Some of them may be missing, as a container sees its own group as the root.
    """
    for line in (_read_stripped_text(f"{membership}") or "").splitlines():
        _, controllers, group_path = line.split(":", 2)  # `4:cpu,cpuacct:/a/b` in version 1, `0::/a/b` in version 2
        # A group of version 2, which names no controllers, has them all.
        if controllers and controller not in controllers.split(","):
            continue
        root = f"{mount}/{controllers}" if controllers else f"{mount}"  # version 1 has a folder for each line
        names = [name for name in group_path.split("/") if name]
        # The process's own group first, the root last.
        yield from ("/".join((root, *names[:depth])) for depth in range(len(names), -1, -1))


def _read_stripped_text(path: str) -> str | None:
    """Return the text of a file, without blanks around it; None if there is no such file."""
    try:
        return read_text(path).strip()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _group_quota(group: str) -> float:
    """Return the cores that one group allows, its quota over its period; infinity if it sets no quota.

    `group` is its folder.
    """
    quota_and_period = _read_stripped_text(f"{group}/cpu.max")  # version 2: `200000 100000`
    if quota_and_period is not None:
        quota, period = quota_and_period.split()
    else:
        quota_v1 = _read_stripped_text(f"{group}/cpu.cfs_quota_us")
        if quota_v1 is None:
            return float("inf")
        quota, period = quota_v1, read_text(f"{group}/cpu.cfs_period_us")
    has_quota = quota not in {"max", "-1"}  # the words of version 2 and version 1 for none
    return int(quota) / int(period) if has_quota else float("inf")


def _group_headroom(group: str) -> int | None:
    """Return the bytes that the processes of a group may still take; None without a limit, or without its files."""
    names_v2, names_v1 = ("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")
    for limit_name, usage_name in (names_v2, names_v1):
        limit_bytes = _read_stripped_text(f"{group}/{limit_name}")
        used_bytes = _read_stripped_text(f"{group}/{usage_name}")
        if limit_bytes is not None and used_bytes is not None:
            if limit_bytes == "max" or int(limit_bytes) > _NO_LIMIT:
                return None
            return max(0, int(limit_bytes) - int(used_bytes) + _reclaimable_bytes(f"{group}/memory.stat"))
    return None


def _reclaimable_bytes(stat_path: str) -> int:
    """Return the bytes in pages of files, in a `memory.stat`, that the kernel drops before it kills a process."""
    numbers = dict(line.split()[:2] for line in (_read_stripped_text(stat_path) or "").splitlines())
    return int(numbers.get("inactive_file", 0))
