"""Uses of holdout days; each makes them a little less a holdout, for every run on the same data."""

import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from flatwater.checkpoints.catalogue import list_checkpoints
from flatwater.rundir.layout import RunFolder
from flatwater_watch.errors import FlatwaterError, RunError
from flatwater_watch.files.safe_read import append_regular, read_regular


def log_look(folder: RunFolder, round_: int) -> str:
    """Append a line about this use, before the days are played. Returns their number so far, as a sentence.

    Raises:
        RunError: the look cannot be logged.
    """
    line = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "round": round_}
    try:
        with append_regular(folder.looks) as file:
            file.write(json.dumps(line).encode() + b"\n")
        own = _looks(folder)  # counted from the file, so that uses by other processes count
    except OSError as error:
        raise RunError(
            f"{folder.looks}: cannot be written ({error.strerror}). Make the run folder writable: the holdout is only "
            "played where the look is logged."
        ) from error
    said = f"look number {own} at the holdout of this run, logged in {folder.looks.name}"
    others = _beside(folder)
    return (
        f"{said}; runs beside it looked {others} {'time' if others == 1 else 'times'} at the same data"
        if others
        else said
    )


def _beside(folder: RunFolder) -> int:
    """Return the uses by other runs in the same folder that have the same data; 0 where data have no fingerprint."""
    fingerprint, found = _fingerprint(folder), 0
    if fingerprint is None:
        return 0
    with suppress(OSError):
        for path in folder.path.absolute().parent.iterdir():
            other = RunFolder(path)
            if path != folder.path.absolute() and other.looks.is_file() and _fingerprint(other) == fingerprint:
                found += _looks(other)
    return found


def _looks(folder: RunFolder) -> int:
    return len(read_regular(folder.looks, follow=False).splitlines())


def _fingerprint(folder: RunFolder) -> str | None:
    """Return the hash of the data, as the newest checkpoint has it."""
    with suppress(FlatwaterError, OSError):
        data: Any = next((saved.facts.get("data") for saved in reversed(list_checkpoints(folder.checkpoints))), None)
        return data.get("fingerprint") if isinstance(data, dict) else None
    return None
