"""A run whose files are read again and again, each time only their new lines.

Memory does not grow with the run: the last lines are kept, and a bounded history for the curves.
"""

from collections import deque
from dataclasses import dataclass, field
from math import isfinite, nan
from pathlib import Path
from statistics import median

from flatwater.description import Description
from flatwater.memory.planner import Plan
from flatwater.metrics.jsonl import Record, require_numbers
from flatwater.metrics.jsonl_lines import FollowedFile, read_appended_records_, rewind_if_replaced_
from flatwater.named_imports import refuse_foreign_imports
from flatwater.recipe import read_rounds
from flatwater.rundir.description import read_description, read_settings
from flatwater.rundir.layout import RunFolder, open_folder
from flatwater.rundir.listing import run_state
from flatwater.rundir.records import LedgerLine, alarm_texts, parse_finding, parse_ledger_line, read_plan
from flatwater_watch.diagnose.finding import Finding

HISTORY = 512
"""Most rounds that the curves show."""
ROUNDS_OF_PACE = 8
"""Number of last rounds whose median duration gives the time left."""


def _empty_history(recipe: Description) -> dict[str, deque[float]]:
    return {name: deque(maxlen=HISTORY) for name in (*recipe.curves.values(), "resident")}


@dataclass
class FollowedRun:
    """State of a run as far as its files have been read."""

    folder: RunFolder
    recipe: Description
    rounds: int
    """Number of rounds wanted in all."""
    data_and_device: str
    """Text with the data and the device of the run."""
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
    """Last line of the ledger; None before the first."""
    measured_before: int = 0
    """Round of the line before; the last line has the efforts of the rounds after it."""
    metrics: Record = field(default_factory=dict)
    """Numbers of the last round, by name."""
    history: dict[str, deque[float]] = field(init=False)
    """The last values of `resident`, and of each metric that its recipe has a curve of."""
    last_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=ROUNDS_OF_PACE))
    """Seconds of the last rounds."""
    timed_seconds: float = 0.0
    """Seconds of all `timed_rounds` together."""
    timed_rounds: int = 0
    """Number of rounds with a duration that were read: of a long run the last `HISTORY`, and all since."""
    findings: dict[str, tuple[int, Finding]] = field(default_factory=dict)
    """Findings by fingerprint, each with its round."""
    alarms: int = 0
    """Number of alarms."""
    alarm: str = ""
    """Text of the last alarm."""

    def __post_init__(self) -> None:
        self.history = _empty_history(self.recipe)

    @property
    def mean_seconds(self) -> float:
        """Seconds of a round, on average over all that were read."""
        return self.timed_seconds / self.timed_rounds


def follow_run(path: Path) -> FollowedRun:
    """Return the state of a run after a first read of its files.

    Raises:
        RunError: there is no run, or one of its files is damaged.
    """
    folder = open_folder(path)
    with refuse_foreign_imports():  # the folder may be a stranger's: no code that it names is run
        config = read_settings(folder)
        recipe = read_description(folder, config)
    run = FollowedRun(
        folder=folder,
        recipe=recipe,
        rounds=read_rounds(config, str(folder.config)),
        data_and_device=" · ".join(str(config[name]) for name in ("panel", "device") if config.get(name)),
        # Only the end of the files that grow with each round, so that the screen of a long run opens at once.
        metrics_tail=FollowedFile(folder.metrics, last_lines=HISTORY),
        ledger_tail=FollowedFile(folder.ledger, last_lines=HISTORY),
        findings_tail=FollowedFile(folder.findings),
        alarms_tail=FollowedFile(folder.alarms),
    )
    read_new_lines_(run)
    return run


def read_new_lines_(run: FollowedRun) -> None:
    """Read the lines appended to the run's files since the last call, or all of a file that was replaced."""
    _forget_replaced_files_(run)  # first, so that records of a new file are not added to those of the old one
    for record in read_appended_records_(run.metrics_tail):
        require_numbers(run.folder.metrics, record)
        _add_metrics_(run, record)
    for record in read_appended_records_(run.ledger_tail):
        run.measured_before = 0 if run.line is None else run.line.round
        run.line = parse_ledger_line(record, run.folder.ledger)
        run.history["resident"].append(float(run.line.resident))
    for record in read_appended_records_(run.findings_tail):
        round_, finding = parse_finding(record, run.folder.findings)
        run.findings[finding.fingerprint] = (round_, finding)
    for record in read_appended_records_(run.alarms_tail):
        texts = alarm_texts(record, run.folder.alarms)
        run.alarms += len(texts)
        run.alarm = texts[-1] if texts else run.alarm
    if run.plan is None:
        run.plan = read_plan(run.folder.plan)
    run.rounds = max(run.rounds, run.done)  # a resumed run may have been asked for more
    run.state = run_state(run.folder, run.done, run.rounds)


def _forget_replaced_files_(run: FollowedRun) -> None:
    """Forget all records of files that were replaced or cut, as by a resumed run; they are then read from the start."""
    if rewind_if_replaced_(run.metrics_tail):
        run.done, run.metrics = 0, {}
        run.last_seconds.clear()
        run.timed_seconds, run.timed_rounds = 0.0, 0
        for name in run.recipe.curves.values():
            run.history[name].clear()
    if rewind_if_replaced_(run.ledger_tail):
        run.line, run.measured_before = None, 0
        run.history["resident"].clear()
    if rewind_if_replaced_(run.findings_tail):
        run.findings.clear()
    if rewind_if_replaced_(run.alarms_tail):
        run.alarms, run.alarm = 0, ""


def _add_metrics_(run: FollowedRun, record: Record) -> None:
    """Add the newest line of metrics to the curves, the durations and the number of rounds."""
    run.done, run.metrics = record["round"], record
    run.changed = run.folder.metrics.stat().st_mtime  # a line has no time of its own
    for name in run.recipe.curves.values():
        value = record.get(name)
        run.history[name].append(nan if value is None else float(value))
    phase_seconds = [value for name, value in record.items() if name.startswith("time/") and value is not None]
    if phase_seconds:
        run.last_seconds.append(sum(phase_seconds))
        run.timed_seconds += sum(phase_seconds)
        run.timed_rounds += 1


def seconds_left(run: FollowedRun, now: float) -> float:
    """Return the seconds from `now` until the run's end, by the median time of its last rounds; NaN without any."""
    if not run.last_seconds:
        return nan
    typical_seconds = median(run.last_seconds)
    seconds_since_change = now - run.changed if isfinite(run.changed) else 0.0
    # Of the round under way; however long it lasts, it counts as one round.
    spent_seconds = min(max(seconds_since_change, 0.0), typical_seconds)
    return max(0.0, typical_seconds * (run.rounds - run.done) - spent_seconds)
