"""A run that is followed: its files are read again and again, each time only their new lines.

Memory does not grow with the run: it holds the last lines, and a bounded history for the curves.
"""

from collections import deque
from dataclasses import dataclass, field
from math import isfinite, nan
from pathlib import Path
from statistics import median

from flatwater.description import Description
from flatwater.memory.planner import Plan
from flatwater.metrics.jsonl import Record, require_numbers
from flatwater.metrics.lines import FollowedFile, read_appended_, rewind_if_replaced_
from flatwater.named_imports import importing_only_ours
from flatwater.recipe import read_rounds
from flatwater.rundir.description import read_description, read_settings
from flatwater.rundir.layout import RunFolder, open_folder
from flatwater.rundir.listing import run_state
from flatwater.rundir.statements import LedgerLine, alarm_texts, parse_finding, parse_ledger_line, read_plan
from flatwater_watch.diagnose.finding import Finding

HISTORY = 512
"""Rounds that the curves show."""
ROUNDS_OF_PACE = 8
"""Rounds whose median duration tells how long the rest will take."""


def _history(recipe: Description) -> dict[str, deque[float]]:
    return {name: deque(maxlen=HISTORY) for name in (*recipe.curves.values(), "resident")}


@dataclass
class FollowedRun:
    """State of a run as far as its files have been read."""

    folder: RunFolder
    recipe: Description
    rounds: int
    """Number of rounds wanted in all."""
    what: str
    """Data and device of the run, as text."""
    metrics_tail: FollowedFile
    ledger_tail: FollowedFile
    findings_tail: FollowedFile
    alarms_tail: FollowedFile
    state: str = "stopped"
    done: int = 0
    """Number of rounds recorded."""
    changed: float = nan
    """Time when the last round was recorded, in seconds since 1970."""
    plan: Plan | None = None
    line: LedgerLine | None = None
    metrics: Record = field(default_factory=dict)
    history: dict[str, deque[float]] = field(init=False)
    """The last values of the curves of its recipe and of `resident`."""
    took: deque[float] = field(default_factory=lambda: deque(maxlen=ROUNDS_OF_PACE))
    """Seconds of the last rounds."""
    spent: float = 0.0
    """Seconds of all `timed` rounds."""
    timed: int = 0
    """Rounds that were read and say how long they took: of a long run the last `HISTORY` and those since."""
    findings: dict[str, tuple[int, Finding]] = field(default_factory=dict)
    """Findings by fingerprint, with the round in which each was told."""
    alarms: int = 0
    alarm: str = ""
    """Text of the last alarm."""

    def __post_init__(self) -> None:
        self.history = _history(self.recipe)

    @property
    def mean_seconds(self) -> float:
        """Seconds of a round, on average over all that were read."""
        return self.spent / self.timed


def follow_run(path: Path) -> FollowedRun:
    """Begin to follow a run, and read its files so far.

    Raises:
        RunError: there is no run, or one of its files is damaged.
    """
    folder = open_folder(path)
    with importing_only_ours():  # a screen never runs the code that a folder names
        config = read_settings(folder)
        recipe = read_description(folder, config)
    followed = FollowedRun(
        folder=folder,
        recipe=recipe,
        rounds=read_rounds(config, str(folder.config)),
        what=" · ".join(str(config[name]) for name in ("panel", "device") if config.get(name)),
        # The end of the long files, and all of the short files: the screen opens at once over any run.
        metrics_tail=FollowedFile(folder.metrics, last_lines=HISTORY),
        ledger_tail=FollowedFile(folder.ledger, last_lines=HISTORY),
        findings_tail=FollowedFile(folder.findings),
        alarms_tail=FollowedFile(folder.alarms),
    )
    read_new_lines_(followed)
    return followed


def read_new_lines_(followed: FollowedRun) -> None:
    """Read the lines appended to the run's files since the last call, or all of a file that was replaced."""
    _begin_again_(followed)  # first: lines of a replaced file would follow those of the old file
    for record in read_appended_(followed.metrics_tail):
        require_numbers(followed.folder.metrics, record)
        _add_metrics_(followed, record)
    for record in read_appended_(followed.ledger_tail):
        followed.line = parse_ledger_line(record, followed.folder.ledger)
        followed.history["resident"].append(float(followed.line.resident))
    for record in read_appended_(followed.findings_tail):
        round_, finding = parse_finding(record, followed.folder.findings)
        followed.findings[finding.fingerprint] = (round_, finding)
    for record in read_appended_(followed.alarms_tail):
        texts = alarm_texts(record, followed.folder.alarms)
        followed.alarms += len(texts)
        followed.alarm = texts[-1] if texts else followed.alarm
    if followed.plan is None:
        followed.plan = read_plan(followed.folder.plan)
    followed.rounds = max(followed.rounds, followed.done)  # a resumed run may have been asked for more
    followed.state = run_state(followed.folder, followed.done, followed.rounds)


def _begin_again_(followed: FollowedRun) -> None:
    """Forget lines that a resumed run has cut off its files."""
    if rewind_if_replaced_(followed.metrics_tail):
        followed.done, followed.metrics = 0, {}
        followed.took.clear()
        followed.spent, followed.timed = 0.0, 0
        for name in followed.recipe.curves.values():
            followed.history[name].clear()
    if rewind_if_replaced_(followed.ledger_tail):
        followed.line = None
        followed.history["resident"].clear()
    if rewind_if_replaced_(followed.findings_tail):
        followed.findings.clear()
    if rewind_if_replaced_(followed.alarms_tail):
        followed.alarms, followed.alarm = 0, ""


def _add_metrics_(followed: FollowedRun, record: Record) -> None:
    """Take a line of metrics as the newest: its curves, its time and how far the run is."""
    followed.done, followed.metrics = record["round"], record
    followed.changed = followed.folder.metrics.stat().st_mtime  # the file's time, as a line has none
    for name in followed.recipe.curves.values():
        value = record.get(name)
        followed.history[name].append(nan if value is None else float(value))
    times = [value for name, value in record.items() if name.startswith("time/") and value is not None]
    if times:
        followed.took.append(sum(times))
        followed.spent, followed.timed = followed.spent + sum(times), followed.timed + 1


def seconds_left(followed: FollowedRun, now: float) -> float:
    """Return the seconds to the end of the run at the median pace of the last rounds; NaN where no pace is known."""
    if not followed.took:
        return nan
    pace = median(followed.took)
    round_seconds = now - followed.changed if isfinite(followed.changed) else 0.0
    # The round at work counts, though never as more than one.
    return max(0.0, pace * (followed.rounds - followed.done) - min(max(round_seconds, 0.0), pace))
