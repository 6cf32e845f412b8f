"""A shell inside a program, whose cells end with the array that they made.

Thread: https://github.com/ipython/ipython/issues/11204
Looks like: memory climbs with the cells that show an array, and `del` of its name does not help.
Fix: a semicolon at the end of the cell, or `InteractiveShell.cache_size = 0`.
"""

import sys
import tempfile
import time

import numpy as np
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config


def measure(day: int) -> np.ndarray:
    return np.full(250_000, float(day))  # <- here


def main(rounds: int) -> None:
    config = Config({"HistoryManager": {"enabled": False}})
    with tempfile.TemporaryDirectory() as folder:
        shell = InteractiveShell(config=config, ipython_dir=folder, user_ns={"measure": measure})
        for day in range(rounds):
            shell.run_cell(f"measure({day})", store_history=True)
            time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
