"""Saving and loading hold little beside the run, whatever its size: measured as the peak of resident memory."""

import subprocess
import sys
from pathlib import Path

import pytest

MIB = 1 << 20
LEAF = 40 * MIB
SLACK = 12 * MIB
"""The 4 MiB piece, the manifest, and what the allocators round up.
Beside it, a save holds a few KiB for the record of each leaf."""

PROGRAM = """
import sys
from pathlib import Path
import torch
from flatwater.checkpoints.config import CheckpointConfig
from flatwater.checkpoints.reader import newest_intact, restore_state_
from flatwater.checkpoints.writer import save_checkpoint

torch.set_num_threads(1)

def status(field):
    text = Path("/proc/self/status").read_text()
    return int(text.split(field + ":")[1].split()[0]) * 1024

def rise(action, *given):
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = status("VmRSS")
    action(*given)
    return status("VmHWM") - before

def save(folder, root, at):
    save_checkpoint(folder, root, round=at, step=0, facts={}, config=CheckpointConfig())

def load_(folder, root):
    restore_state_(root, newest_intact(folder, say=print))

def tree(kind, size):
    large = torch.full((size // 4 // 1024, 1024), 1.5)
    if kind == "small":
        return list(large.split(16))
    return [large.t() if kind == "turned" else large]

for kind in ("contiguous", "small", "turned"):
    folder, small, root = Path(sys.argv[1], kind), tree(kind, 1 << 20), tree(kind, int(sys.argv[2]))
    save(folder, small, 1)
    load_(folder, small)
    print(kind, rise(save, folder, root, 2), rise(save, folder, root, 3), rise(load_, folder, root))
"""


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's resettable peak")
def test_saving_and_loading_hold_at_most_what_must_be_copied(tmp_path: Path) -> None:
    """Nothing for contiguous leaves, one shard for many small ones, one leaf for one that is not contiguous."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(LEAF)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    bounds = {"contiguous": SLACK, "small": 8 * MIB + SLACK, "turned": LEAF + SLACK}
    for line in done.stdout.splitlines():
        kind, *rises = line.split()
        first_save, save_again, load = map(int, rises)
        assert max(first_save, save_again, load) <= bounds.pop(kind), line
    assert not bounds
