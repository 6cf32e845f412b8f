"""Limits on memory that the machine does not show: told with their names before anything is allocated, exit 3."""

import os
import resource
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

FLATWATER = (sys.executable, "-c", "import sys; from flatwater.cli.main import main; sys.exit(main())")
LIMIT = 1 << 30
LARGE = ("--replay.generations", "600000")
GROUPS = Path("/sys/fs/cgroup")
DATA = pytest.param("RLIMIT_DATA", "ulimit -d", marks=pytest.mark.slow)


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of this process's own, with a limit."""
    version_1 = (GROUPS / "memory").is_dir()
    folder = (GROUPS / "memory" if version_1 else GROUPS) / f"flatwater-{secrets.token_hex(4)}"
    try:
        folder.mkdir()
        (folder / ("memory.limit_in_bytes" if version_1 else "memory.max")).write_text(str(LIMIT))
    except OSError as refused:
        pytest.skip(f"no control group can be made here: {refused}")
    yield folder
    folder.rmdir()


def refusal_text(replayed: list[str], run: Path, bound: Callable[[], object]) -> str:
    command = [*FLATWATER, "train", "erl", *replayed, *LARGE, "--run", str(run)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=bound)
    assert ended.returncode == 3, (ended.returncode, ended.stderr[-2000:])
    assert not run.exists()
    return ended.stderr


@pytest.mark.long
@pytest.mark.parametrize(("kind", "name"), [("RLIMIT_AS", "ulimit -v"), DATA])
def test_a_limit_of_the_shell_is_told_before_the_start(
    kind: str, name: str, replayed: list[str], tmp_path: Path
) -> None:
    size = 6 * LIMIT if kind == "RLIMIT_AS" else 2 * LIMIT  # torch reserves addresses that it never uses
    number = vars(resource)[kind]
    said = refusal_text(replayed, tmp_path / "run", lambda: resource.setrlimit(number, (size, size)))
    assert name in said
    assert "replay" in said


@pytest.mark.long
def test_a_limit_of_a_control_group_is_told_before_the_start(group: Path, replayed: list[str], tmp_path: Path) -> None:
    said = refusal_text(replayed, tmp_path / "run", lambda: (group / "cgroup.procs").write_text(str(os.getpid())))
    assert "cgroup" in said
    assert "replay" in said
