"""CPU time and memory that the control groups above this process allow it, under version 1 and version 2."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_MOUNT = Path("/sys/fs/cgroup")
_SELF = Path("/proc/self/cgroup")
_NO_LIMIT = 1 << 60
"""Version 1 says "no limit" with a number beyond any machine."""


def quota_cores(mount: Path = _MOUNT, membership: Path = _SELF) -> float:
    """Cores that the tightest control group above this process pays for; infinity if none sets a quota.

    Args:
        mount: where the control groups are mounted.
        membership: the list of groups that the process is in, one `number:controllers:path` a line.
    """
    return min((_quota(folder) for folder in _groups("cpu", mount, membership)), default=float("inf"))


def memory_headroom(mount: Path = _MOUNT, membership: Path = _SELF) -> int | None:
    """Bytes that the tightest control group above this process still gives; None if none sets a limit."""
    free = [_headroom(folder) for folder in _groups("memory", mount, membership)]
    return min((size for size in free if size is not None), default=None)


def _groups(controller: str, mount: Path, membership: Path) -> Iterator[Path]:
    """Folders of the process's groups for a controller and of all groups above them, of version 2 and version 1."""
    if not membership.exists():
        return
    for line in membership.read_text().splitlines():
        _, controllers, inside = line.split(":", 2)
        roots = [mount] if not controllers else [mount / controllers] if controller in controllers.split(",") else []
        for root in roots:
            group = PurePosixPath(inside.lstrip("/"))
            # A container sees its own group as the root, so folders on the way to it may be missing.
            yield from (root / above for above in (group, *group.parents))


def _quota(group: Path) -> float:
    """Quota over period of one group (`cpu.max` in version 2, `cpu.cfs_*` in version 1); infinity without one."""
    if (group / "cpu.max").exists():
        quota, period = (group / "cpu.max").read_text().split()
    elif (group / "cpu.cfs_quota_us").exists():
        quota = (group / "cpu.cfs_quota_us").read_text().strip()
        period = (group / "cpu.cfs_period_us").read_text().strip()
    else:
        return float("inf")
    return int(quota) / int(period) if quota not in {"max", "-1"} else float("inf")


def _headroom(group: Path) -> int | None:
    """Bytes that a group leaves (`memory.max` or, in version 1, `memory.limit_in_bytes`); None without a limit."""
    for limit, usage in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
        if (group / limit).is_file() and (group / usage).is_file():
            text = (group / limit).read_text().strip()
            if text == "max" or int(text) > _NO_LIMIT:
                return None
            return max(0, int(text) - int((group / usage).read_text()) + _droppable(group / "memory.stat"))
    return None


def _droppable(stat: Path) -> int:
    """File pages that the kernel drops before it kills anyone."""
    if not stat.is_file():
        return 0
    numbers = dict(line.split()[:2] for line in stat.read_text().splitlines())
    return int(numbers.get("inactive_file", 0))
