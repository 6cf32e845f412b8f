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
from flatwater.metrics.lines import FollowedFile, read_appended_, rewind_if_replaced_
from flatwater.named_imports import importing_only_ours
from flatwater.recipe import read_rounds
from flatwater.rundir.description import read_description, read_settings
from flatwater.rundir.layout import RunFolder, open_folder
from flatwater.rundir.listing import run_state
from flatwater.rundir.statements import LedgerLine, alarm_texts, parse_finding, parse_ledger_line, read_plan
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
    metrics: Record = field(default_factory=dict)
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
    with importing_only_ours():  # the folder may be a stranger's: no code that it names is run
        config = read_settings(folder)
        recipe = read_description(folder, config)
    followed = FollowedRun(
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
    read_new_lines_(followed)
    return followed


def read_new_lines_(followed: FollowedRun) -> None:
    """Read the lines appended to the run's files since the last call, or all of a file that was replaced."""
    _forget_replaced_(followed)
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


def _forget_replaced_(followed: FollowedRun) -> None:
    """Forget all records of files that were replaced or cut, as by a resumed run; they are then read from the start."""
    if rewind_if_replaced_(followed.metrics_tail):
        followed.done, followed.metrics = 0, {}
        followed.last_seconds.clear()
        followed.timed_seconds, followed.timed_rounds = 0.0, 0
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
    """Add the newest line of metrics to the curves, the durations and the number of rounds."""
    followed.done, followed.metrics = record["round"], record
    followed.changed = followed.folder.metrics.stat().st_mtime  # a line has no time of its own
    for name in followed.recipe.curves.values():
        value = record.get(name)
        followed.history[name].append(nan if value is None else float(value))
    times = [value for name, value in record.items() if name.startswith("time/") and value is not None]
    if times:
        followed.last_seconds.append(sum(times))
        followed.timed_seconds += sum(times)
        followed.timed_rounds += 1


def seconds_left(followed: FollowedRun, now: float) -> float:
    """Return the seconds from `now` until the run's end, by the median time of its last rounds; NaN without any."""
    if not followed.last_seconds:
        return nan
    typical_seconds = median(followed.last_seconds)
    # Seconds spent in the current round; however long it lasts, it counts as one round.
    current_seconds = now - followed.changed if isfinite(followed.changed) else 0.0
    current_seconds = min(max(current_seconds, 0.0), typical_seconds)
    return max(0.0, typical_seconds * (followed.rounds - followed.done) - current_seconds)
