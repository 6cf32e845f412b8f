"""What a watched program knows of itself, in a file that is always whole: it outlives kill -9."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flatwater_watch.meters.system_calls import thread_seconds, write_whole

EVERY = 0.5
"""Seconds between two states on disk, at least, unless a finding is new: what a signal ends leaves the last one."""
SHARE = 1 / 400
"""Part of the time that writing them may take: of a long run one takes 5 ms."""
PROGRAM, WORKER = ".json", ".worker.json"
"""Endings of the files of a command's first process, and of the workers that it starts."""

_as_json = json.JSONEncoder().encode
"""Bound here: a program may replace `json.dumps`."""


@dataclass
class PeriodicReports:
    """What is told while a program runs."""

    every: float
    """Seconds from one to the next."""
    tell: Callable[[dict[str, Any]], None]
    """Gets the summary as it is."""
    before: float = 0.0
    """Seconds at which the last one was told."""

    def report_if_due(self, at: float, known: Callable[[], list[dict[str, Any]]]) -> None:
        """Tell what is known, if so long has passed.

        Args:
            at: seconds since the beginning.
            known: what processes have written, the one that was watched longest first.
        """
        if at >= self.before + self.every:
            self.before = at
            for summary in known()[:1]:
                self.tell({name: value for name, value in summary.items() if name not in {"ended", "ended_at"}})


def write_spool(path: str, known: Callable[[], dict[str, Any]]) -> float:
    """Replace the file in one step. Not synced to disk: it must survive the process, not the machine.

    Returns:
        Seconds after which it is worth while again.
    """
    cpu = thread_seconds()
    write_whole(path, _as_json(known()))
    return max(EVERY, (thread_seconds() - cpu) / SHARE)


def unwatched_summary(program: str, why: str) -> dict[str, Any]:
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
