"""What a watched program knows of itself, in a file that is always whole: it outlives kill -9."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flatwater.memory.probes.bound import write_whole

PROGRAM, WORKER = ".json", ".worker.json"
"""Endings of the files of a command's first process, and of the workers that it starts."""

_as_json = json.JSONEncoder().encode
"""Bound here: a program may replace `json.dumps`."""


@dataclass
class Reports:
    """What is told while a program runs."""

    every: float
    """Seconds from one to the next."""
    tell: Callable[[dict[str, Any]], None]
    """Gets the summary as it is."""
    before: float = 0.0
    """Seconds at which the last one was told."""

    def look(self, at: float, known: Callable[[], list[dict[str, Any]]]) -> None:
        """Tell what is known, if so long has passed.

        Args:
            at: seconds since the beginning.
            known: what processes have written, the one that was watched longest first.
        """
        if at >= self.before + self.every:
            self.before = at
            for summary in known()[:1]:
                self.tell({name: value for name, value in summary.items() if name not in {"ended", "ended_at"}})


def write_spool(path: str, summary: dict[str, Any]) -> None:
    """Replace the file in one step. Not synced to disk: it must survive the process, not the machine."""
    write_whole(path, _as_json(summary))


def read_spools(folder: Path, ending: str = PROGRAM) -> list[dict[str, Any]]:
    """All summaries that the processes of one command left, the one that was watched longest first.

    Args:
        folder: the runner's.
        ending: of the files' names: of the program, or of its workers.

    Returns:
        With `ended_at`, the time of the last word, in seconds.
    """
    found = [
        {**json.loads(path.read_text(encoding="utf-8")), "ended_at": path.stat().st_mtime}
        for path in sorted(folder.glob("*.json"))
        if path.name.endswith(WORKER) == (ending == WORKER)
    ]
    return sorted(found, key=lambda summary: -float(summary["seconds"]))


def unwatched(program: str, why: str) -> dict[str, Any]:
    """The summary of a program of which nothing was read.

    Args:
        program: its command.
        why: told as not seen.
    """
    return {
        "program": program,
        "unit": "second",
        "steps": 0,
        "seconds": 0.0,
        "readings": 0,
        "resident_bytes": 0,
        "resident_growth_bytes": 0,
        "explained_share": 0.0,
        "outcome": {"state": "unread", "bytes": 0, "known": [], "next": []},
        "cost": {"cpu_share": 0.0, "cpu_seconds": 0.0, "bytes": 0},
        "processes": 0,
        "findings": [],
        "held": {},
        "unseen": [why],
        "series": {"seconds": [], "steps": [], "resident_bytes": [], "file_bytes": [], "freed_bytes": []},
    }
