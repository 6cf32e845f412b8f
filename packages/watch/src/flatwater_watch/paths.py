"""Names of files in paths that are texts.

Without `pathlib`: a watched program loads these modules before its first line, and `pathlib` with the modules that it
loads takes 5 ms of CPU.
"""


def file_name(path: str) -> str:
    """Return the last part of a path."""
    return path.rpartition("/")[2]


def file_stem(path: str) -> str:
    """Return the last part of a path, without its last suffix."""
    name = file_name(path)
    stem, _, _ = name.rpartition(".")
    return stem or name


def folder_of(path: str) -> str:
    """Return the path without its last part."""
    return path.rpartition("/")[0]
