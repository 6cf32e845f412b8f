"""Kill -9 a small run again and again, resume it each time, and compare it with one that nobody killed.

    python killed.py FOLDER KILLS KIND

Half of the kills fall on file operations in the run folder, evenly from the first to the last of the run (so among
the steps of saving), the others on random moments. Every run is a fork of this process, which has everything imported.
Prints one JSON object.
"""

import importlib
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
from conftest import OPTIONS, assert_same

from flatwater.cli.main import main

for heavy in ("flatwater.cli.outcome", "flatwater.runs.session", "flatwater.cli.resume"):
    importlib.import_module(heavy)

OPERATIONS = ("open", "os.rename", "os.remove", "os.mkdir")
ROUNDS = 3


def in_fork(work: Callable[[], int]) -> int:
    """Start `work` in a fork, silently; the fork's process id."""
    child = os.fork()
    if child == 0:
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        os._exit(work())
    return child


KIND = sys.argv[3]
importlib.import_module("flatwater.cli.train")


def train(folder: Path) -> int:
    return main(["train", KIND, *OPTIONS[KIND], "--rounds", str(ROUNDS), "--run", str(folder)])


def resume(folder: Path) -> int:
    return main(["resume", str(folder)])


def dying(work: Callable[[], int], folder: Path, at: int) -> Callable[[], int]:
    """The same work, which kills itself at its n-th file operation below the folder."""
    seen = 0

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        if event in OPERATIONS and str(arguments[0]).startswith(str(folder)):
            seen += 1
            if seen == at:
                os.kill(os.getpid(), signal.SIGKILL)

    def worked() -> int:
        sys.addaudithook(count)
        code = work()
        (folder / "operations").write_text(str(seen))
        return code

    return worked


def exit_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_run(folder: Path, operation: int | None, seconds: float) -> str:
    """Start a run that is killed; say where it was."""
    if operation is not None:
        code = exit_of(in_fork(dying(lambda: train(folder), folder, operation)))
    else:
        child = in_fork(lambda: train(folder))
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        code = exit_of(child)
    newest = max((folder / "checkpoints").glob("*.json"), default=None)
    return f"{code} {newest.stem if newest else 'none'}"


def kill_and_compare(folder: Path, kills: int) -> dict[str, object]:
    whole = folder / "whole"
    began = time.monotonic()
    assert exit_of(in_fork(dying(lambda: train(whole), whole, -1))) == 0
    took = time.monotonic() - began
    operations = int((whole / "operations").read_text())
    draw, places = random.Random(kills), []
    for n in range(kills):
        run = folder / "killed"
        place = (n + 1) * operations // (kills + 1) if n % 2 == 0 else None
        places.append(killed_run(run, place, draw.uniform(0.1, 0.9) * took))
        if run.is_dir() and (run / "config.toml").is_file():
            code = exit_of(in_fork(lambda run=run: resume(run)))
        else:
            code = exit_of(in_fork(lambda run=run: train(run)))
        assert code == 0, (n, places)
        assert_same(whole, run)
        shutil.rmtree(run)
    return {"operations": operations, "kills": len(places), "places": places}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(kill_and_compare(Path(sys.argv[1]).resolve(), int(sys.argv[2]))))
