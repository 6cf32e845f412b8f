"""Folders into which libraries are installed.

A watched program loads this module before its first line, so no `pathlib` is used, as in `paths`.
"""

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from itertools import islice

from flatwater_watch.paths import parent_folder

_INSTALL_FOLDERS = ("site-packages", "dist-packages")
_MAXIMUM_ENTRIES = 10_000
"""Maximum number of names that are read in a folder: 5 ms."""


def is_library_folder(folder: str) -> bool:
    """Return whether installed libraries lie in a folder, or in one above it; all other folders count as the user's.

    Args:
        folder: absolute path.
    """
    path = f"{folder}{os.sep}"
    if any(f"{os.sep}{name}{os.sep}" in path for name in _INSTALL_FOLDERS):
        return True
    entries = _absolute_folders(entry for entry in list(sys.path) if type(entry) is str)
    # The entry of `sys.path` that modules of this folder come from: of nested entries the innermost.
    entry = max((entry for entry in entries if path.startswith(f"{entry}{os.sep}")), key=len, default=None)
    # The program's own folder is the user's even if libraries are installed beside it, as those of a cloud's function.
    return entry is not None and entry not in _program_folders() and _holds_installed_libraries(entry)


def _program_folders() -> list[str]:
    """Return the folder of the main program and the working folder."""
    main_file = vars(sys.modules["__main__"]).get("__file__") if "__main__" in sys.modules else None
    files = [main_file] if type(main_file) is str else []
    return _absolute_folders(("", *map(parent_folder, files)))


def _absolute_folders(folders: Iterable[str]) -> list[str]:
    """Return the absolute paths of folders, without those below a working folder that was removed."""
    paths = []
    for folder in folders:
        with suppress(OSError):
            paths.append(os.path.abspath(folder))  # noqa: PTH100  a Path costs more
    return paths


@lru_cache(maxsize=256)
def _holds_installed_libraries(folder: str) -> bool:
    """Return whether a folder holds a `NAME.dist-info/RECORD`, the list of files that `pip install --target` leaves.

    A source tree may have metadata too, but no RECORD.
    """
    try:
        with os.scandir(folder) as names:
            infos = [name.path for name in islice(names, _MAXIMUM_ENTRIES) if name.name.endswith(".dist-info")]
    except (OSError, ValueError):  # no folder, such as an archive; or no path
        return False
    return any(os.path.isfile(f"{info}{os.sep}RECORD") for info in infos)  # noqa: PTH113  a Path costs more
