"""Parts of file paths that are texts.

`pathlib` is not used: a watched program loads this module before its first line, and `pathlib` with all that it imports
takes 5 ms of CPU.
"""


def file_name(path: str) -> str:
    """Return the last part of a path."""
    return path.rpartition("/")[2]


def file_stem(path: str) -> str:
    """Return the last part of a path, without its last suffix."""
    name = file_name(path)
    stem, _, _ = name.rpartition(".")
    return stem or name


def parent_folder(path: str) -> str:
    """Return the path without its last part."""
    return path.rpartition("/")[0]
