"""Folders besides runs that installed packages draw, or put side by side."""

from pathlib import Path

from flatwater.plugins import group_rows
from flatwater.rundir.layout import RunFolder


def plugin_folder_kind(group: str, folder: Path) -> str | None:
    """Return the kind of a folder: the first row of a group whose file it has; None for a run and for others.

    Args:
        group: `pages` or `comparisons`, whose rows begin with a file's name.
        folder: any path.
    """
    if RunFolder(folder).config.is_file():  # a run may have a file of the same name, such as result.json
        return None
    return next((kind for kind, (marker, _) in group_rows(group).items() if (folder / marker).is_file()), None)
