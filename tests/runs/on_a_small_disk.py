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
import threading
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
from conftest import OPTIONS

from flatwater.cli.main import main

BLOCK = bytes(1 << 12)


def fill(disk: Path, first: Path) -> None:
    """Write until nothing goes on the disk, as soon as the first round is saved."""
    while not first.exists():
        time.sleep(0.0005)
    ballast = os.open(disk / "ballast", os.O_CREAT | os.O_WRONLY)
    try:
        while os.write(ballast, BLOCK):
            pass
    except OSError as full:
        if full.errno != errno.ENOSPC:
            raise
    finally:
        os.close(ballast)


def train_on(disk: Path, folder: Path, kind: str, rounds: str) -> int:
    run = disk / "run"
    filler = threading.Thread(target=fill, args=(disk, run / "checkpoints" / "000001.000000.json"))
    filler.start()
    code = main(["train", kind, *OPTIONS[kind], "--rounds", rounds, "--run", str(run)])
    filler.join()
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
