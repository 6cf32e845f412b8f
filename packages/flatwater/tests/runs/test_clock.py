"""A wall clock that jumps by hours all the while: the run is the same run, and no duration is told that was not."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from small_runs import OPTIONS, entries

from flatwater.cli.main import main

Same = Callable[[Path, Path], None]
FLATWATER = (sys.executable, "-c", "import sys; from flatwater.cli.main import main; sys.exit(main())")
HOUR = 3600
DURATIONS = ("time/", "mirror/seconds_since_ok")

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the clock is replaced by a compiled library")


@pytest.fixture
def jumping(tmp_path: Path) -> dict[str, str]:
    """The environment of a process whose wall clock jumps."""
    library = tmp_path / "clock.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(Path(__file__).parent / "clock.c"), "-ldl"],
        check=True,
    )
    return {**os.environ, "LD_PRELOAD": str(library)}


def test_the_clock_jumps(jumping: dict[str, str]) -> None:
    """The library does what the other tests rely on."""
    program = (
        "import time; at = [time.time() for _ in range(30)]; print(max(at) - min(at) > 3600 * 20, time.monotonic())"
    )
    said = subprocess.run([sys.executable, "-c", program], env=jumping, capture_output=True, text=True, check=True)
    assert said.stdout.startswith("True")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["erl", "grow", "teach"])
def test_a_run_under_a_clock_that_jumps(
    kind: str, jumping: dict[str, str], tmp_path: Path, same: Same, capsys: pytest.CaptureFixture[str]
) -> None:
    run, whole, store = tmp_path / "run", tmp_path / "whole", tmp_path / "store"
    store.mkdir()
    services = ("--trackers", "tensorboard", "--mirror", f"file://{store}")
    first = ("train", kind, *OPTIONS[kind], *services, "--rounds", "2", "--run", str(run))
    for arguments in (first, ("resume", str(run), "--rounds", "4"), ("resume", str(run), "--rounds", "5")):
        ended = subprocess.run([*FLATWATER, *arguments], env=jumping, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        assert "mirror: everything" in ended.stdout
    assert main(["train", kind, *OPTIONS[kind], "--rounds", "5", "--run", str(whole)]) == 0
    same(whole, run)

    lines = entries(run / "metrics.jsonl")
    durations = {name: line[name] for line in lines for name in line if name.startswith(DURATIONS)}
    assert len(durations) >= 4
    assert all(0 <= seconds < HOUR for seconds in durations.values()), durations
    efforts = [effort for line in entries(run / "ledger.jsonl") for effort in line["phases"].values()]
    assert all(0 <= effort["seconds"] < HOUR for effort in efforts)
    assert not [line for line in entries(run / "findings.jsonl") if line["verdict"] == "slowdown"]

    kept = sorted(path.name for path in (run / "checkpoints").glob("*.json"))
    assert kept == ["000003.000000.json", "000004.000000.json", "000005.000000.json"]
    sent = store / "run" / "checkpoints"
    assert sorted(path.name for path in sent.glob("*.json")) == kept
    assert_events_in_order(run / "tensorboard")
    capsys.readouterr()
    top = subprocess.run(
        [*FLATWATER, "top", str(run), "--once"], env=jumping, capture_output=True, text=True, check=False
    )
    assert top.returncode == 0, top.stderr
    listed = subprocess.run(
        [*FLATWATER, "runs", str(tmp_path)], env=jumping, capture_output=True, text=True, check=False
    )
    assert listed.returncode == 0, listed.stderr


def assert_events_in_order(folder: Path) -> None:
    """The files are in the order of their names as they were written, which is how TensorBoard reads them."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    starts = []
    for path in sorted(folder.iterdir()):
        steps = [event.step for event in EventFileLoader(str(path)).Load() if event.HasField("session_log")]
        starts += steps
    assert starts == [1, 3, 5]
