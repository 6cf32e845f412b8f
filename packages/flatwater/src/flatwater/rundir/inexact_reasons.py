"""`not_exact.json`: the reasons why a run cannot be resumed bit for bit (`Run.doubts`); most runs have no such file."""

import json
from collections.abc import Sequence

from flatwater.rundir.layout import RunFolder
from flatwater_watch.files.directory import write_object
from flatwater_watch.files.regular_files import read_regular

MAXIMUM_BYTES = 1 << 16
"""Most bytes that are read of the file."""
_MAXIMUM_LETTERS = 500
"""Most letters of a reason."""
_MAXIMUM_REASONS = 20
"""Most reasons that are written, so that the file has at most `MAXIMUM_BYTES` bytes."""


def write_inexact_reasons(folder: RunFolder, doubts: Sequence[str]) -> None:
    """Write the reasons why the run is not exact, a sentence each.

    Raises:
        RunError: the disk is full or the folder read-only.
    """
    lines = [line[:_MAXIMUM_LETTERS] for line in doubts[:_MAXIMUM_REASONS]]
    write_object(folder.doubts, json.dumps({"exact": False, "why": lines}, indent=1).encode() + b"\n")


def read_inexact_reasons(folder: RunFolder) -> list[str]:
    """Return the reasons why the run is not exact; empty if it is. A file that cannot be read is a reason too."""
    try:
        content = json.loads(read_regular(folder.doubts, MAXIMUM_BYTES, follow_links=False))
        reasons = [line[:_MAXIMUM_LETTERS] for line in content["why"] if isinstance(line, str)]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # a folder may come from anybody
        return [f"{folder.doubts.name} cannot be read"]
    return reasons or ["the file gives no reason"]
