"""Records of a run for its page, read from its folder once.

A file that is not there (in an older run, or one in training) leaves its field empty, and the page says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from flatwater.checkpoints.catalogue import list_checkpoints
from flatwater.checkpoints.manifest import Manifest
from flatwater.description import Description
from flatwater.memory.planner import Plan
from flatwater.metrics.jsonl import records_to_columns
from flatwater.metrics.jsonl_lines import FollowedFile, read_appended_records_, read_records
from flatwater.named_imports import refuse_foreign_imports
from flatwater.recipe import read_rounds
from flatwater.rundir.description import MAXIMUM_SETTINGS, read_description, read_settings
from flatwater.rundir.inexact_reasons import read_inexact_reasons
from flatwater.rundir.layout import RunFolder, open_folder
from flatwater.rundir.listing import run_state
from flatwater.rundir.origin import origin_text
from flatwater.rundir.records import (
    AlarmSummary,
    LedgerLine,
    latest_findings,
    parse_finding,
    parse_ledger_line,
    read_plan,
    summarize_alarms,
)
from flatwater.rundir.results import earlier_round, read_result, result_round
from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.files.json_values import is_number
from flatwater_watch.files.regular_files import read_regular
from flatwater_watch.pages.chart_values import MAXIMUM_POINTS


@dataclass(frozen=True, kw_only=True)
class RunRecords:
    """One run, as its files describe it."""

    path: Path
    recipe: Description
    """Description of its recipe, for which nothing is imported."""
    state: str
    rounds: int
    """Number of rounds wanted in all."""
    done: int
    """Number of rounds recorded."""
    config: dict[str, Any]
    config_text: str
    read_at: datetime
    metrics: dict[str, list[float]]
    """Numbers by name; rounds thinned to `MAXIMUM_POINTS`."""
    crowned: list[tuple[float, float]]
    """Rounds that brought a new champion, with its validation value; thinned."""
    plan: Plan | None
    ledger: list[LedgerLine]
    """Lines of the ledger, thinned like the metrics, with the first and the last line."""
    findings: list[tuple[int, Finding]]
    """Findings about memory, each behind the round in which it was last reported."""
    alarms: list[AlarmSummary]
    result: dict[str, Any] | None
    holdout: dict[str, Any] | None
    """The result on the holdout, of its last use."""
    checkpoints: list[Manifest]
    origin: str = ""
    """Parent, round and changed settings of a fork; empty if the run is not a fork."""
    doubts: list[str] = field(default_factory=list)
    """Reasons why it cannot be resumed bit for bit; empty if it can."""

    def round_if_earlier(self, result: Mapping[str, Any] | None) -> int | None:
        """Return the round of a result, where the run has gone further; None if it has not, or without a result."""
        return earlier_round(result_round(result), self.done)


def read_run(path: Path) -> RunRecords:
    """Read a run's folder.

    Raises:
        RunError: there is no run in the folder, or one of its files is damaged.
        CheckpointError: a checkpoint was written by another version.
    """
    # Folders may come from strangers, so no code that a file names is imported.
    with refuse_foreign_imports():
        return _read_records(path, open_folder(path))


def _read_records(path: Path, folder: RunFolder) -> RunRecords:
    """Return all records of a run, thinned to the number that a page can show. Call it in `refuse_foreign_imports`."""
    config = read_settings(folder)
    recipe = read_description(folder, config)
    columns = read_course(folder)
    rounds = read_rounds(config, str(folder.config))
    recorded_rounds = columns.get("round", [])
    rounds_done = int(recorded_rounds[-1]) if recorded_rounds else 0
    return RunRecords(
        path=path,
        recipe=recipe,
        state=run_state(folder, rounds_done, rounds),
        rounds=max(rounds, rounds_done),  # a file of settings may ask for fewer than were recorded, or for none
        done=rounds_done,
        config=config,
        config_text=read_regular(folder.config, MAXIMUM_SETTINGS, follow_links=False).decode(
            "utf-8-sig", errors="replace"
        ),
        read_at=datetime.now().astimezone(),
        metrics=columns,
        crowned=_crowning_points(folder),
        plan=read_plan(folder.plan),
        ledger=[parse_ledger_line(record, folder.ledger) for record in read_records(folder.ledger, MAXIMUM_POINTS)],
        findings=latest_findings(
            parse_finding(record, folder.findings) for record in read_appended_records_(FollowedFile(folder.findings))
        ),
        alarms=summarize_alarms(read_appended_records_(FollowedFile(folder.alarms)), folder.alarms),
        result=read_result(folder.result, recipe),
        holdout=read_result(folder.holdout, recipe),
        checkpoints=_read_checkpoints(folder),
        origin=origin_text(folder, config),
        doubts=read_inexact_reasons(folder),
    )


def read_course(folder: RunFolder) -> dict[str, list[float]]:
    """Return the numbers of the rounds by name, thinned to `MAXIMUM_POINTS`: columns, NaN where a round has none.

    Raises:
        RunError: the file cannot be read, or one of the lines is damaged.
    """
    return records_to_columns(folder.metrics, read_records(folder.metrics, MAXIMUM_POINTS))


def _crowning_points(folder: RunFolder) -> list[tuple[float, float]]:
    """Return the rounds in which a new champion was found, each with its validation value.

    A round without a finite value is left out.
    """
    return [
        (float(record["round"]), float(record["validation/champion"]))
        for record in read_records(folder.metrics, MAXIMUM_POINTS, entry={"champion/crowned": 1.0})
        if is_number(record.get("validation/champion"))
    ]


def _read_checkpoints(folder: RunFolder) -> list[Manifest]:
    return list_checkpoints(folder.checkpoints) if folder.checkpoints.is_dir() else []
