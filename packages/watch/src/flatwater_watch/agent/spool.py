"""The spool: a file with the newest summary of a watched program, complete at any moment, which outlives `kill -9`."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flatwater_watch.meters.system_calls import thread_seconds, write_whole

MINIMUM_GAP_SECONDS = 0.5
"""Minimum seconds between two writes, unless a finding is new: a program that a signal ends leaves the last write."""
MAXIMUM_TIME_SHARE = 1 / 400
"""Share of the time that writes may take: the summary of a long run takes 5 ms."""
PROGRAM, WORKER = ".json", ".worker.json"
"""Endings of the files of a command's first process, and of the workers that it starts."""

_as_json = json.JSONEncoder().encode
"""Bound here: a program may replace `json.dumps`."""


@dataclass(eq=False, repr=False)
class PeriodicReports:
    """A callback for regular reports while a program runs, and the time of the last report."""

    every: float
    """Seconds from one report to the next."""
    report: Callable[[dict[str, Any]], None]
    """Callback that gets the summary as it is now."""
    last_report_time: float = 0.0
    """Time of the last report, in seconds since the beginning."""

    def report_if_due(self, seconds: float, make_summaries: Callable[[], list[dict[str, Any]]]) -> None:
        """Report the summary of the longest watch, if `every` seconds have passed since the last report.

        Args:
            seconds: seconds since the beginning.
            make_summaries: reads the summaries of all processes, that of the longest watch first; called only if a
                report is due. If there is none, nothing is reported.
        """
        if seconds < self.last_report_time + self.every:
            return
        self.last_report_time = seconds
        summaries = make_summaries()
        if summaries:
            # Without the keys that say that the watch is over, as more reports may follow.
            ending_keys = {"ended", "ended_at"}
            self.report({name: value for name, value in summaries[0].items() if name not in ending_keys})


def write_spool(path: str, make_summary: Callable[[], dict[str, Any]]) -> float:
    """Write a new summary in place of the file, in one step; return the minimum seconds until the next write.

    They keep writes within `MAXIMUM_TIME_SHARE` of the time.
    """
    # Never synced to disk: the file must survive the process, not the machine.
    previous_cpu = thread_seconds()
    write_whole(path, _as_json(make_summary()))
    return max(MINIMUM_GAP_SECONDS, (thread_seconds() - previous_cpu) / MAXIMUM_TIME_SHARE)


def unwatched_summary(program: str, reason: str) -> dict[str, Any]:
    """Return a summary without figures, for a program that could not be read, with a sentence on the reason."""
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
        "unseen": [reason],
        "series": {"seconds": [], "steps": [], "resident_bytes": [], "file_bytes": [], "freed_bytes": []},
    }


_EMPTY_SUMMARY = unwatched_summary("", "")
"""A summary with a value of its type for each key."""


def is_summary(record: Any) -> bool:  # noqa: ANN401  (JSON)
    """Return whether a value has all keys of a summary, with values of their types."""
    if type(record) is not dict:
        return False
    for name, value in _EMPTY_SUMMARY.items():
        kind = int | float if type(value) is float else type(value)  # JSON may have 0 for 0.0
        if name != "program" and not isinstance(record.get(name), kind):  # the runner adds the program
            return False
    columns = record["series"]
    has_columns = all(type(columns.get(name)) is list for name in _EMPTY_SUMMARY["series"])
    return has_columns and all(type(sentence) is str for sentence in record["unseen"])
