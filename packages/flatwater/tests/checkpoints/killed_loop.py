"""Kill -9 a loop of somebody's own three times, at moments that are not chosen, beside one that nobody kills.

    python killed_loop.py SCRIPT FOLDER

SCRIPT is started with `--updates 8 --folder FOLDER/...`, each time in a fork of this process, which has imported what
it needs. Prints the lines of the loop that was not killed, and those after the last kill, as JSON.
"""

import json
import os
import runpy
import signal
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import IO

for heavy in (
    "gymnasium",
    "torch.distributions",
    "sympy",
    "flatwater.checkpoints.parts",
    "flatwater.envs.wrapped.resumable",
):
    import_module(heavy)


def start_loop(script: str, folder: Path) -> tuple[int, IO[str]]:
    """The process id of the loop, and what it prints."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writes, 1)
        sys.argv[1:] = ["--updates", "8", "--folder", str(folder)]
        code = 1
        try:
            runpy.run_path(script, run_name="__main__")
            sys.stdout.flush()
            code = 0
        finally:
            if code:
                traceback.print_exc()
            os._exit(code)
    os.close(writes)
    return child, os.fdopen(reads)


def run_to_the_end(script: str, folder: Path) -> list[str]:
    """All lines of a loop that nobody kills."""
    child, lines = start_loop(script, folder)
    with lines:
        said = lines.read().splitlines()
    assert os.waitpid(child, 0)[1] == 0
    return said


def kill_after(script: str, folder: Path, updates: int) -> None:
    """Begin or go on, and end the loop a moment after that many updates."""
    child, lines = start_loop(script, folder)
    with lines:
        for line in lines:
            if line.startswith(f"update {updates:>3}"):
                time.sleep(0.012 * updates)
                os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


if __name__ == "__main__":
    whole = run_to_the_end(sys.argv[1], Path(sys.argv[2], "whole"))
    for updates in (1, 3, 4):
        kill_after(sys.argv[1], Path(sys.argv[2], "killed"), updates)
    sys.stdout.write(json.dumps([whole, run_to_the_end(sys.argv[1], Path(sys.argv[2], "killed"))]))
