"""What becomes of freed memory. In processes of their own: the settings are the process's."""

import gc
import json
import os
import platform
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from flatwater.cli.main import main
from flatwater.state.garbage import freeze_gc

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")

MEGABYTE = 1 << 20
PROGRAM = """
import json, sys
import torch
from flatwater_watch.meters.process import resident_bytes
from flatwater.runs.machine import keep_freed_memory, release_freed_memory

keep, cycle = sys.argv[1] == "keep", sys.argv[2] == "cycle"
if keep:
    keep_freed_memory()
torch.ones(1000)  # the first operation of a process brings pages of code into memory
before = resident_bytes()
holder = {"block": torch.ones(16 << 20)}
above = torch.ones(1000)
if cycle:
    holder["itself"] = holder
del holder
freed = resident_bytes() - before
release_freed_memory()
print(json.dumps([freed, resident_bytes() - before]))
"""


def freed_and_released(*settings: str) -> list[int]:
    """Bytes above the start after 64 MiB were freed, and after they were released."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, *settings], check=True, capture_output=True, text=True)
    found: list[int] = json.loads(done.stdout)
    return found


@pytest.mark.long
def test_freed_memory_stays_for_reuse_until_it_is_released() -> None:
    freed, released = freed_and_released("keep", "plain")
    assert freed > 60 * MEGABYTE
    assert released < 4 * MEGABYTE


@pytest.mark.long
def test_by_itself_glibc_gives_each_large_block_back_at_once() -> None:
    freed, _ = freed_and_released("leave", "plain")
    assert freed < 4 * MEGABYTE


@pytest.mark.long
def test_what_only_a_cycle_holds_is_released_too() -> None:
    freed, released = freed_and_released("keep", "cycle")
    assert freed > 60 * MEGABYTE
    assert released < 4 * MEGABYTE


class Older:
    """Made before a run, and held by itself alone."""

    itself: "Older"


@pytest.mark.long
@pytest.mark.usefixtures("real_unfreeze")
def test_a_program_is_collected_again_when_its_run_has_ended() -> None:
    """A run that ends in an error is held by a cycle that is older than it, such as one of `pytest.raises`."""
    older = Older()
    older.itself, seen = older, weakref.ref(older)
    with freeze_gc():
        del older
        gc.collect()
        assert seen() is not None
    gc.collect()
    assert seen() is None


@pytest.mark.long
def test_a_run_whose_threads_wait_says_so(
    tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("flatwater.metrics.alarms.MINIMUM_ROUND_SECONDS", 0.0)
    monkeypatch.setattr("flatwater.metrics.alarms.MINIMUM_CORES", 1e6)
    monkeypatch.setattr("flatwater.runs.session.use_threads", lambda wanted: wanted)  # they would wait indeed
    run = tmp_path / "run"
    assert main(["train", "erl", *tiny, "--threads", "2", "--rounds", "1", "--run", str(run)]) == 0
    assert "2 threads had " in " ".join(capsys.readouterr().out.split())
    assert "threads wait: 2 threads had " in (run / "alarms.jsonl").read_text()


CUDA = """
import json, os
import torch
from flatwater_watch.errors import ConfigError
from flatwater.runs.machine import find_device

def settings():
    cudnn = torch.backends.cudnn
    return [
        os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32,
    ]

find_device("cpu")
before = settings()
torch.cuda.device_count = lambda: 1
found = str(find_device("cuda:0"))
print(json.dumps([before, found, settings()]))
"""


@pytest.mark.long
def test_a_cuda_device_repeats_itself() -> None:
    """In a process that has one, as far as it can tell."""
    environment = {name: value for name, value in os.environ.items() if name != "CUBLAS_WORKSPACE_CONFIG"}
    done = subprocess.run([sys.executable, "-c", CUDA], check=True, capture_output=True, text=True, env=environment)
    before, found, after = json.loads(done.stdout)
    assert before[:3] == [None, False, False]
    assert (found, after) == ("cuda:0", [":4096:8", True, True, True, False, False, False])
