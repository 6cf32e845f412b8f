"""Everything about a run that its page shows, read from its folder once.

A file that is not there (an older run, a run in training) leaves its field empty, and the page says so.
"""

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from flatwater.checkpoints.catalogue import list_checkpoints
from flatwater.checkpoints.manifest import Manifest
from flatwater.description import Description
from flatwater.imported import importing_only_ours
from flatwater.memory.planner import Plan
from flatwater.metrics.jsonl import columns_of
from flatwater.metrics.lines import Tail, read_appended_, read_records
from flatwater.recipe import rounds_of
from flatwater.rundir.description import MOST_SETTINGS, read_description, read_settings
from flatwater.rundir.doubts import read_doubts
from flatwater.rundir.layout import RunFolder, open_folder
from flatwater.rundir.listing import state_of
from flatwater.rundir.results import read_result
from flatwater.rundir.statements import (
    AlarmKind,
    LedgerLine,
    finding_of,
    kinds_of_alarms,
    line_of,
    newest,
    read_plan,
)
from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.files.content import is_number
from flatwater_watch.files.regular import read_regular
from flatwater_watch.pages.chart import MOST_POINTS


@dataclass(frozen=True, kw_only=True)
class RunRecords:
    """One run, as its files say."""

    path: Path
    recipe: Description
    """What is known of it, without importing it."""
    state: str
    rounds: int
    """Wanted in all."""
    done: int
    """Rounds recorded."""
    config: dict[str, Any]
    config_text: str
    read_at: datetime
    metrics: dict[str, list[float]]
    """By name; rounds thinned to `MOST_POINTS`."""
    crowned: list[tuple[float, float]]
    """Rounds that brought a new champion, with its validation value; thinned."""
    plan: Plan | None
    ledger: list[LedgerLine]
    """Thinned like the metrics, with the first and the last line."""
    findings: list[tuple[int, Finding]]
    alarms: list[AlarmKind]
    result: dict[str, Any] | None
    holdout: dict[str, Any] | None
    """The result on the holdout, of the last look."""
    checkpoints: list[Manifest]
    doubts: list[str] = field(default_factory=list)
    """Why it cannot be resumed bit for bit; empty where it can."""


def read_run(path: Path) -> RunRecords:
    """Read a run's folder.

    Raises:
        RunError: there is no run, or one of its files is damaged.
        CheckpointError: a checkpoint was written by another version.
    """
    with importing_only_ours():
        return _read(path, open_folder(path))


def _read(path: Path, folder: RunFolder) -> RunRecords:
    config = read_settings(folder)
    recipe = read_description(folder, config)
    columns = read_course(folder)
    rounds, seen = rounds_of(config, str(folder.config)), columns.get("round", [])
    done = int(seen[-1]) if seen else 0
    return RunRecords(
        path=path,
        recipe=recipe,
        state=state_of(folder, done, rounds),
        rounds=max(rounds, done),
        done=done,
        config=config,
        config_text=read_regular(folder.config, MOST_SETTINGS, follow=False).decode("utf-8-sig", errors="replace"),
        read_at=datetime.now().astimezone(),
        metrics=columns,
        crowned=_crowned(folder),
        plan=read_plan(folder.plan),
        ledger=[line_of(record, folder.ledger) for record in read_records(folder.ledger, MOST_POINTS)],
        findings=newest(finding_of(record, folder.findings) for record in read_appended_(Tail(folder.findings))),
        alarms=kinds_of_alarms(read_appended_(Tail(folder.alarms)), folder.alarms),
        result=read_result(folder.result, recipe),
        holdout=read_result(folder.holdout, recipe),
        checkpoints=_checkpoints(folder),
        doubts=read_doubts(folder),
    )


def read_course(folder: RunFolder) -> dict[str, list[float]]:
    """The numbers of the rounds by name, thinned to `MOST_POINTS`: columns, NaN where a round has none.

    Raises:
        RunError: the file cannot be read, or one of the lines is damaged.
    """
    return columns_of(folder.metrics, read_records(folder.metrics, MOST_POINTS))


def _crowned(folder: RunFolder) -> list[tuple[float, float]]:
    return [
        (float(record["round"]), float(record["validation/champion"]))
        for record in read_records(folder.metrics, MOST_POINTS, mark=b'"champion/crowned": 1')
        if record.get("champion/crowned") == 1 and is_number(record.get("validation/champion"))
    ]


def _checkpoints(folder: RunFolder) -> list[Manifest]:
    return list_checkpoints(folder.checkpoints) if folder.checkpoints.is_dir() else []
