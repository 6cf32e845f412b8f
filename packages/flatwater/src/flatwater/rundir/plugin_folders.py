"""Folders besides runs that installed packages draw, or put side by side."""

from pathlib import Path

from flatwater.plugins import group_rows
from flatwater.rundir.layout import RunFolder


def plugin_folder_kind(group: str, folder: Path) -> str | None:
    """Return the kind of a folder: the name of the first row in a group whose file it has; None for other folders.

    Args:
        group: `pages` or `comparisons`, whose rows begin with a file's name.
        folder: any path.
    """
    if RunFolder(folder).config.is_file():  # a run is no such folder, but may have the same file, such as result.json
        return None
    # A row has the name of the file that marks its folders, and the path of a function.
    rows = group_rows(group)
    return next((kind for kind, (marker, _function) in rows.items() if (folder / marker).is_file()), None)
