"""The protocol between a runner and the processes that it watches: environment variables, and files in folders.

The variables are removed before the first line of a program runs, so that the program does not see them.
"""

import os
from collections.abc import Mapping

FOLDER, UNIT, LIMIT = "FLATWATER_WATCH_FOLDER", "FLATWATER_WATCH_UNIT", "FLATWATER_WATCH_LIMIT"
USER_PYTHONPATH, PACKAGE = "FLATWATER_WATCH_PYTHONPATH", "FLATWATER_WATCH_PACKAGE"
"""Names of the variables with the runner's orders to the program's process; they are removed before the program runs.
The fourth keeps the user's PYTHONPATH, and the fifth the folder of this package."""
CLAIM = "claim"
"""Name of the file, in the folder of notes, that says that a process is watched."""
RUNNER_VARIABLE = "FLATWATER_WATCH_RUNNER"
"""Variable of a process that was entered: the folder that the runner writes to; that of notes may be another user's."""
STAY, MAPPED_PAGE_FILE = "stay", "page"
"""Files in that folder: while the first exists the watch goes on; the second has the address of the mapped page."""
TIME_UNIT = "second"
"""The unit that asks for readings at ticks, whatever boundaries the program has."""
PAGE_BYTES = 4096
"""Bytes mapped into a process that is entered, for a line of Python."""


def injected_environment(runner_variables: Mapping[str, str], user_pythonpath: str | None) -> dict[str, str]:
    """Return the environment variables with which the watch begins in a new process, before its program.

    Args:
        runner_variables: the runner's orders, by the names above.
        user_pythonpath: PYTHONPATH without the watch; None if it is not set.
    """
    # Python imports `sitecustomize` from the front of PYTHONPATH: that of `inject` starts the watch, and then gives the
    # program the user's PYTHONPATH back.
    inject_folder = os.path.join(os.path.dirname(__file__), "inject")  # noqa: PTH118, PTH120  (programs replace what a Path is made of)
    variables = {name: value for name, value in runner_variables.items() if name != USER_PYTHONPATH}
    if user_pythonpath is None:
        return variables | {"PYTHONPATH": inject_folder}
    return variables | {
        USER_PYTHONPATH: user_pythonpath,
        "PYTHONPATH": os.pathsep.join((inject_folder, user_pythonpath)),
    }
