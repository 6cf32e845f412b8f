"""Train on a disk of its own that something else fills amid the run; make room, and resume.

    unshare --user --map-root-user --mount python on_a_small_disk.py FOLDER KIND ROUNDS

Leaves in FOLDER the run as it was when the disk was full (`full`) and at its end (`resumed`). Exits with the code of
the run that met the full disk, or 100 where the resumed one did not end.
"""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
from small_runs import OPTIONS

from flatwater.cli.main import main

BLOCKS = (1 << 20, 1 << 12)
"""Bytes written at a time: first much, then as little as a disk gives."""


def fill(disk: Path) -> None:
    """Write until nothing goes on the disk."""
    ballast = os.open(disk / "ballast", os.O_CREAT | os.O_WRONLY)
    for size in BLOCKS:
        try:
            while os.write(ballast, bytes(size)):
                pass
        except OSError as full:
            if full.errno != errno.ENOSPC:
                raise
    os.close(ballast)


def fill_at_the_first_round(disk: Path) -> None:
    """Fill the disk in the moment when the first round's checkpoint gets its name: what comes next finds no room."""

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if (
            event == "os.rename"
            and str(arguments[1]).endswith("000001.000000.json")
            and not (disk / "ballast").exists()
        ):
            fill(disk)

    sys.addaudithook(watch)


def train_on(disk: Path, folder: Path, kind: str, rounds: str) -> int:
    run = disk / "run"
    fill_at_the_first_round(disk)
    code = main(["train", kind, *OPTIONS[kind], "--rounds", rounds, "--run", str(run)])
    shutil.copytree(run, folder / "full")
    (disk / "ballast").unlink()
    ended = main(["resume", str(run)])
    shutil.copytree(run, folder / "resumed")
    return code if ended == 0 else 100


if __name__ == "__main__":
    place = Path(sys.argv[1])
    mounted = place / "disk"
    mounted.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(mounted)], check=True)
    sys.exit(train_on(mounted, place, sys.argv[2], sys.argv[3]))
