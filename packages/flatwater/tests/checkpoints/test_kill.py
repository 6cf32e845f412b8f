"""A process killed while it saves leaves a checkpoint that can be loaded, wherever in the save it was killed."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[4] / "benchmarks" / "flatwater" / "bench_kill_while_saving.py"

PROGRAM = """
import os, sys
from pathlib import Path
import torch
from flatwater.checkpoints.config import CheckpointConfig
from flatwater.checkpoints.reader import list_checkpoints, newest_intact, restore_state_
from flatwater.checkpoints.writer import save_checkpoint

torch.set_num_threads(1)
CHANGES = ("os.rename", "os.remove", "os.mkdir", "open")
calls, dies_at = 0, -1

def count(event, arguments):
    global calls
    if event in CHANGES and str(arguments[0]).startswith(sys.argv[1]):
        calls += 1
        if calls == dies_at:
            os._exit(9)

def tree(at):
    return {"a": torch.full((30,), float(at)), "b": torch.full((30,), float(at)), "still": torch.ones(30), "at": at}

def save(folder, at):
    save_checkpoint(folder, tree(at), round=at, step=0, facts={}, config=CheckpointConfig(keep=2, shard_bytes=128))

def loaded(folder):
    root, intact = tree(0), newest_intact(folder, say=lambda text: None)
    restore_state_(root, intact)
    assert {float(root["a"].unique()), float(root["b"].unique()), root["at"]} == {intact.manifest.round}, root
    return intact.manifest.round

sys.addaudithook(count)
found = []
while True:
    folder = Path(sys.argv[1], str(len(found)))
    for at in (1, 2):
        save(folder, at)
    child = os.fork()
    if child == 0:
        calls, dies_at = 0, len(found) + 1
        save(folder, 3)
        os._exit(0)
    killed = os.waitpid(child, 0)[1] != 0
    found.append(loaded(folder))
    save(folder, 3)
    assert loaded(folder) == 3
    kept = list_checkpoints(folder)
    assert [manifest.round for manifest in kept] == [2, 3]
    names = {f"{shard.sha256}.safetensors" for manifest in kept for shard in manifest.shards}
    assert names == {path.name for path in (folder / "objects").iterdir()}
    if not killed:
        break
print(*found)
"""


@pytest.mark.long
def test_killed_at_each_change_to_the_disk_in_turn(tmp_path: Path) -> None:
    """A save changes the disk in some tens of steps; the process dies just before the first, the second, and so on."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = [int(number) for number in done.stdout.split()]
    assert len(found) > 20
    assert found == sorted(found), "once the new checkpoint is there, it stays"
    assert (found[0], found[-1]) == (2, 3)


def test_killed_at_any_moment_nothing_is_unloadable_torn_or_lost() -> None:
    """Inside a write as well. The benchmark makes more tries, on a larger state, beside a peer."""
    command = [sys.executable, str(BENCHMARK), "--tries", "8", "--megabytes", "2", "--only", "flatwater"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].split() == ["flatwater", "0", "0", "0", "0"]
