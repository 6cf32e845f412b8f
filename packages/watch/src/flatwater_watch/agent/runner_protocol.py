"""What a runner tells the processes that it watches: by variables, which no line of them sees, and by files."""

import os
from collections.abc import Mapping

FOLDER, UNIT, LIMIT = "FLATWATER_WATCH_FOLDER", "FLATWATER_WATCH_UNIT", "FLATWATER_WATCH_LIMIT"
PYTHONPATH, PACKAGE = "FLATWATER_WATCH_PYTHONPATH", "FLATWATER_WATCH_PACKAGE"
"""Variables by which the runner tells the program's process what to do; they are taken away before the program runs."""
CLAIM = "claim"
"""File in the folder of notes: a process is watched."""
RUNNER = "FLATWATER_WATCH_RUNNER"
"""Of a process that was entered: the folder that the runner writes to. That of notes may be another user's."""
STAY, PAGE = "stay", "page"
"""Files there: the watch goes on; the address of the page by which the process was entered."""
IN_TIME = "second"
"""The unit that asks for readings in time, whatever boundaries the program has."""
PAGE_BYTES = 4096
"""Mapped into a process that is entered, for a line of Python."""


def worker_environment(told: Mapping[str, str], before: str | None) -> dict[str, str]:
    """What the environment of a process must have for the watch to begin in it.

    Args:
        told: the runner's variables.
        before: PYTHONPATH without the watch.
    """
    inject = os.path.join(os.path.dirname(__file__), "inject")  # noqa: PTH118, PTH120  (programs replace what a Path is made of)
    own = {name: value for name, value in told.items() if name != PYTHONPATH}
    if before is None:
        return own | {"PYTHONPATH": inject}
    return own | {PYTHONPATH: before, "PYTHONPATH": os.pathsep.join((inject, before))}
