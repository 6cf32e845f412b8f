"""The findings so far of a process that a runner watches already, for a second command that asks for them."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from flatwater_watch.agent.runner_protocol import FOLDER
from flatwater_watch.faces.runner import collect_summary
from flatwater_watch.faces.runner_folder import read_summaries
from flatwater_watch.meters.proc import parent_pid, process_command
from flatwater_watch.meters.system_calls import read_text


def read_running_watch(pid: int, limit: int | None = None) -> dict[str, Any] | None:
    """Return the summary of a process that a runner watches, as its watch last wrote it; None if no runner does.

    Nothing enters or stops the process. `pid` may also be the runner's own number.
    """
    with suppress(OSError):  # the process has ended, or is another user's
        for candidate in _process_and_children(pid):
            folder = _runner_folder(candidate)
            if folder is not None and (summaries := read_summaries(folder)):
                written_at = time.strftime("%H:%M:%S", time.localtime(summaries[0]["ended_at"]))
                command = process_command(_first_process(candidate, folder))
                summary = collect_summary(summaries, folder, command, code=None, limit=limit)
                unseen = f"what it has done since {written_at}, when its own watch wrote this"
                return summary | {"unseen": [*summary["unseen"], unseen]}
    return None


def _process_and_children(pid: int) -> Iterator[int]:
    """Yield a process, and then its children, as the child of a runner is watched; not every kernel lists children."""
    yield pid
    yield from map(int, read_text(f"/proc/{pid}/task/{pid}/children").split())


def _first_process(pid: int, folder: Path) -> int:
    """Return the process that the runner of a folder started: `pid`, or the outermost process above it.

    Children inherit the variable with the runner's folder, so that all processes below the runner have it.
    """
    first = pid
    with suppress(OSError):  # the parent has ended, or is another user's
        parent = parent_pid(first)
        while _runner_folder(parent) == folder:  # the parent runs under the same runner
            first = parent
            parent = parent_pid(first)
    return first


def _runner_folder(pid: int) -> Path | None:
    """Return the folder in which a process leaves notes for its runner; None if no runner has started it."""
    # The kernel keeps the variables with which a process began, though the watch takes its own away from the program.
    words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    folders = [word.partition(b"=")[2] for word in words if word.startswith(f"{FOLDER}=".encode())]
    folder = Path(os.fsdecode(folders[0])) if folders else None
    # A runner names the whole path. Any other would lead from the folder in which this process happens to be.
    return folder if folder is not None and folder.is_absolute() else None
