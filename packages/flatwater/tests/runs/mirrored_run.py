"""A run folder whose checkpoints hold a few numbers, and a mirror of it.

    python mirrored_run.py        for each line `FOLDER URL` that it reads, starts a process that saves and sends round
                                  after round until it is killed, and prints its number

The processes are forks of one that never asks a store for anything: the threads of a store's client do not survive a
fork.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import torch

from flatwater.checkpoints.catalogue import list_checkpoints
from flatwater.checkpoints.config import CheckpointConfig
from flatwater.checkpoints.remote import find_shard_problem, list_stored_files, read_remote
from flatwater.checkpoints.writer import save_checkpoint
from flatwater.mirror.sender import MirrorSender
from flatwater.mirror.uploader import Mirror
from flatwater.rundir.layout import RunFolder
from flatwater.storage.objects import QUICK_RETRIES, StoredObjects, open_objects

KEEP = CheckpointConfig(keep=3)


class MirroredRun:
    """The folder and the mirror."""

    def __init__(self, path: Path, url: str, identity: str = "run") -> None:
        self.folder = RunFolder(path)
        path.mkdir(parents=True, exist_ok=True)
        self.folder.config.write_text("rounds = 9\n")
        self.objects: StoredObjects = open_objects(url, QUICK_RETRIES)
        self.mirror = Mirror(lambda step, say: MirrorSender(self.objects, self.folder, identity, KEEP, step, say))

    def save(self, round_: int, numbers: int = 1000) -> Path:
        """Save, as a run does, and offer it."""
        tree = {"shared": torch.zeros(500), "own": torch.full((numbers,), float(round_))}
        with self.folder.metrics.open("a") as lines:
            lines.write(json.dumps({"round": round_}) + "\n")
        protected = self.mirror.protected_manifests()
        saved = save_checkpoint(
            self.folder.checkpoints, tree, round=round_, step=0, facts={}, config=KEEP, protected_files=protected
        )
        self.mirror.offer(saved)
        return saved

    def wait(self, until: Callable[[dict[str, float]], bool]) -> None:
        """Until the mirror's numbers are so; four minutes are for a machine that does much else."""
        ends = time.monotonic() + 240
        while not until({name.removeprefix("mirror/"): v for name, v in self.mirror.metrics().items()}):
            assert time.monotonic() < ends, (self.mirror.status_line(), self.mirror.state.trouble)
            time.sleep(0.01)

    def rounds(self) -> list[int]:
        """Of the checkpoints that are whole at the store."""
        names, sizes = list_stored_files(self.objects)
        found = [read_remote(self.objects, name) for name in names]
        return [m.round for m in found if not find_shard_problem(m, sizes)]


def keep_saving(folder: Path, url: str) -> NoReturn:
    """Save and send round after round."""
    run = MirroredRun(folder, url)
    run.mirror.start()
    first = max((m.round for m in list_checkpoints(run.folder.checkpoints)), default=-1) + 1
    for round_ in range(first, first + 1_000_000):
        run.save(round_)
        time.sleep(0.01)
    os._exit(0)


def serve() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who is killed is gone at once
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            keep_saving(*(kind(word) for kind, word in zip((Path, str), line.split(), strict=True)))
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
