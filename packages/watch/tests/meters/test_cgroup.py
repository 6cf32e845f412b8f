"""Control groups as files: the tightest group above the process counts, in both versions."""

from pathlib import Path

from flatwater_watch.meters.cgroup import memory_headroom, quota_cores


def group(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content)


def test_the_tightest_group_above_the_process_counts(tmp_path: Path) -> None:
    """Version 2: a quota of 4 cores at the top, 1.5 in the middle, none at the process's own group."""
    mount = tmp_path / "cgroup"
    group(mount, {})
    group(mount / "pod", {"cpu.max": "400000 100000\n"})
    group(mount / "pod/box", {"cpu.max": "150000 100000\n"})
    group(mount / "pod/box/work", {"cpu.max": "max 100000\n"})
    (tmp_path / "membership").write_text("0::/pod/box/work\n")
    assert quota_cores(mount, tmp_path / "membership") == 1.5


def test_version_1_groups_are_read_for_cpu_time_only(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    group(mount / "cpu,cpuacct/box", {"cpu.cfs_quota_us": "250000\n", "cpu.cfs_period_us": "100000\n"})
    group(mount / "memory/box", {"cpu.cfs_quota_us": "100000\n", "cpu.cfs_period_us": "100000\n"})
    (tmp_path / "membership").write_text("4:memory:/box\n1:cpu,cpuacct:/box\n")
    assert quota_cores(mount, tmp_path / "membership") == 2.5


def test_without_a_quota_there_is_no_bound(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    group(mount / "cpu", {"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"})
    (tmp_path / "membership").write_text("1:cpu:/\n0::/not/visible/here\n")
    assert quota_cores(mount, tmp_path / "membership") == float("inf")
    assert quota_cores(mount, tmp_path / "absent") == float("inf")


def test_the_tightest_memory_limit_above_the_process_counts(tmp_path: Path) -> None:
    """Version 2: 8 GB with 5 used at the top, 2 GB with 0.5 used in the middle, none below."""
    mount = tmp_path / "cgroup"
    group(mount / "pod", {"memory.max": "8000000000\n", "memory.current": "5000000000\n"})
    group(mount / "pod/box", {"memory.max": "2000000000\n", "memory.current": "500000000\n"})
    group(mount / "pod/box/work", {"memory.max": "max\n", "memory.current": "400000000\n"})
    (tmp_path / "membership").write_text("0::/pod/box/work\n")
    assert memory_headroom(mount, tmp_path / "membership") == 1_500_000_000


def test_file_pages_that_can_be_dropped_are_no_use_of_memory(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    files = {"memory.limit_in_bytes": "1000\n", "memory.usage_in_bytes": "900\n"}
    group(mount / "memory/box", files | {"memory.stat": "cache 700\ninactive_file 600\n"})
    group(mount / "cpu/box", {"memory.limit_in_bytes": "1\n", "memory.usage_in_bytes": "1\n"})
    (tmp_path / "membership").write_text("4:memory:/box\n1:cpu,cpuacct:/box\n")
    assert memory_headroom(mount, tmp_path / "membership") == 700


def test_without_a_memory_limit_there_is_no_bound(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    group(mount / "memory", {"memory.limit_in_bytes": "9223372036854771712\n", "memory.usage_in_bytes": "5\n"})
    (tmp_path / "membership").write_text("1:memory:/\n0::/not/visible/here\n")
    assert memory_headroom(mount, tmp_path / "membership") is None
    assert memory_headroom(mount, tmp_path / "absent") is None
