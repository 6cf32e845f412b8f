"""The summary of a watched program, in a file that is complete at any moment and outlives `kill -9`."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flatwater_watch.meters.system_calls import thread_seconds, write_whole

EVERY = 0.5
"""Minimum seconds between two writes, unless a finding is new: a program that a signal ends leaves the last write."""
SHARE = 1 / 400
"""Share of the time that writes may take: the summary of a long run takes 5 ms."""
PROGRAM, WORKER = ".json", ".worker.json"
"""Endings of the files of a command's first process, and of the workers that it starts."""

_as_json = json.JSONEncoder().encode
"""Bound here: a program may replace `json.dumps`."""


@dataclass(eq=False, repr=False)
class PeriodicReports:
    """Reports at regular times while a program runs."""

    every: float
    """Seconds from one report to the next."""
    tell: Callable[[dict[str, Any]], None]
    """Callback that gets the summary as it is now."""
    before: float = 0.0
    """Time of the last report, in seconds since the beginning."""

    def report_if_due(self, at: float, known: Callable[[], list[dict[str, Any]]]) -> None:
        """Report the summary of the first process as it is now, if `every` seconds have passed since the last report.

        Without the marks of its end, `ended` and `ended_at`: more reports may follow.

        Args:
            at: seconds since the beginning; becomes `before` if it reports.
            known: reads the summaries of all processes, the one that was watched longest first; called only if a report
                is due, and may give none.
        """
        if at >= self.before + self.every:
            self.before = at
            for summary in known()[:1]:
                self.tell({name: value for name, value in summary.items() if name not in {"ended", "ended_at"}})


def write_spool(path: str, known: Callable[[], dict[str, Any]]) -> float:
    """Replace the file by a new summary, in one step.

    Returns:
        Seconds until the next write, so that writes stay within their share of the time.
    """
    # Never synced to disk: the file must survive the process, not the machine.
    cpu = thread_seconds()
    write_whole(path, _as_json(known()))
    return max(EVERY, (thread_seconds() - cpu) / SHARE)


def unwatched_summary(program: str, why: str) -> dict[str, Any]:
    """The summary of a program that could not be read.

    Args:
        program: command of the program.
        why: sentence on the reason, reported as `unseen`.
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
