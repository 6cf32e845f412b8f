"""The log of a run's looks at its holdout, which are evaluations on it.

Each look weakens the holdout as a test, for every run on the same data.
"""

import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from flatwater.checkpoints.catalogue import list_checkpoints
from flatwater.rundir.layout import RunFolder
from flatwater_watch.errors import FlatwaterError, RunError
from flatwater_watch.files.regular_files import append_regular, read_regular


def log_look(folder: RunFolder, round_: int) -> str:
    """Log a look at the run's holdout, before the holdout is played. Returns a sentence with the looks so far.

    Raises:
        RunError: the look cannot be logged, so the holdout must not be played.
    """
    line = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "round": round_}
    try:
        with append_regular(folder.looks) as file:
            file.write(json.dumps(line).encode() + b"\n")
        look_count = _count_looks(folder)  # from the file, so that looks by other processes count
    except OSError as error:
        raise RunError(
            f"{folder.looks}: cannot be written ({error.strerror}). Make the run folder writable: each look at the "
            "holdout must be logged."
        ) from error
    sentence = f"look number {look_count} at the holdout of this run, logged in {folder.looks.name}"
    looks_by_others = _count_looks_by_others(folder)
    if not looks_by_others:
        return sentence
    noun = "time" if looks_by_others == 1 else "times"
    return f"{sentence}; other runs in the same folder looked {looks_by_others} {noun} at the same data"


def _count_looks_by_others(folder: RunFolder) -> int:
    """Return the number of looks by runs next to this one that have the same data; 0 if data have no fingerprint."""
    fingerprint = _data_fingerprint(folder)
    if fingerprint is None:
        return 0
    look_count = 0
    with suppress(OSError):
        for path in folder.path.absolute().parent.iterdir():
            other_run = RunFolder(path)
            if (
                path != folder.path.absolute()
                and other_run.looks.is_file()
                and _data_fingerprint(other_run) == fingerprint
            ):
                look_count += _count_looks(other_run)
    return look_count


def _count_looks(folder: RunFolder) -> int:
    return len(read_regular(folder.looks, follow_links=False).splitlines())


def _data_fingerprint(folder: RunFolder) -> str | None:
    """Return the hash of a run's data in its newest checkpoint; None if there is none or it cannot be read."""
    with suppress(FlatwaterError, OSError):
        manifests = list_checkpoints(folder.checkpoints)  # the newest is last
        data: Any = manifests[-1].facts.get("data") if manifests else None
        return data.get("fingerprint") if isinstance(data, dict) else None
    return None
