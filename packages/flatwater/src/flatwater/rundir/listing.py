"""The lines of `flatwater runs`, read from small files of each run's folder, without torch or a checkpoint."""

import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from difflib import get_close_matches
from itertools import islice
from math import inf, isfinite
from pathlib import Path
from typing import Any

from flatwater.description import Description
from flatwater.metrics.last_records import read_last
from flatwater.named_imports import refuse_foreign_imports
from flatwater.recipe import read_rounds
from flatwater.rundir.description import read_description, read_settings
from flatwater.rundir.inexact_reasons import read_inexact_reasons
from flatwater.rundir.layout import RunFolder
from flatwater.rundir.origin import origin_text
from flatwater.rundir.results import MAXIMUM_RESULT, earlier_result_note, earlier_result_round, read_result
from flatwater.rundir.seeds import begun_runs
from flatwater_watch.errors import ConfigError, FlatwaterError, RunError
from flatwater_watch.files.json_values import is_number
from flatwater_watch.files.regular_files import open_regular
from flatwater_watch.sanitize import escape_controls, short_repr

MAXIMUM_FILES = 100_000
"""Most files of a folder whose sizes are summed or whose times are compared."""
MAXIMUM_PROBLEM = 1_000
"""Most characters of the message about an unreadable run."""
LATEST_TIME = 4e10
"""Latest time in seconds since 1970: a file may claim a year that no calendar has."""


@dataclass(frozen=True)
class RunLine:
    """One run in a list of runs."""

    name: str
    state: str
    """State: training, finished, stopped (it can be resumed), or unreadable."""
    trainer: str
    """Name of its recipe: `erl`."""
    done: int
    """Number of rounds recorded so far."""
    rounds: int
    """Number of the run's rounds in all."""
    measured: str
    """Title of `score`. Of a finished run it is the result's number, such as `return`, which compares with other runs
    on the same data; before, it is the recipe's main curve, such as `champion`."""
    score: float | None
    """Number by which the run is judged; None if there is none yet."""
    shown: str
    """Title and score as text: `return +18.4%`."""
    bytes: int
    """Bytes of the files in the folder."""
    changed: str
    """Date and time of the last change."""
    tag: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Metrics of its last round, by name."""
    result: Mapping[str, float] = field(default_factory=dict)
    """Numbers of the trained policy, where the run has finished."""
    problem: str = ""
    """Reason why it is unreadable."""
    origin: str = ""
    """Parent, round and changed settings of a fork; empty if the run is not a fork."""
    doubt: str = ""
    """Reason why it is not exact, so that a resume ends with other numbers; empty if it is bit for bit."""
    result_round: int | None = None
    """Round of the result in its folder, where the run has gone further; None if it has not, or has no result."""

    @property
    def result_note(self) -> str:
        """Words about a result of an earlier round; empty if there is none."""
        return "" if self.result_round is None else earlier_result_note(self.result_round, self.done)


def list_runs(folder: Path) -> list[RunLine]:
    """Return a line for every run directly below `folder`, and in groups of seeds there; the latest change is last.

    Raises:
        RunError: there is no such folder.
    """
    if not folder.is_dir():
        raise RunError(f"{folder}: the folder does not exist. Give a folder, such as . for the runs here.")
    try:
        folders = [run_path for path in folder.iterdir() for run_path in _run_folders(path)]
    except OSError as error:
        raise RunError(f"{folder}: cannot be read: {error.strerror}. Make the folder readable.") from error
    lines = ((path, read_run_line(RunFolder(path))) for path in sorted(folders, key=_last_change))
    return [replace(line, name=str(path.relative_to(folder))) for path, line in lines]


def _run_folders(path: Path) -> list[Path]:
    """Return the folders of the runs in a group of seeds; of another folder, itself if it is a run, else nothing."""
    with suppress(RunError, OSError):  # a folder that cannot be read must not end the list
        if runs := begun_runs(path):
            return runs
    return [path] if _is_run(RunFolder(path)) else []


def filter_by_tag(lines: Iterable[RunLine], tag: str) -> list[RunLine]:
    """Return the lines that have the tag."""
    return [line for line in lines if tag in line.tag]


def named_number(line: RunLine, name: str) -> float | None:
    """Return a run's number `name`: of its result, else of the last round's metrics; None if neither has it.

    The name `score` is the score of a finished run; before the end, scores of runs do not compare.
    """
    if name == "score":
        return line.score if line.state == "finished" else None
    return line.result.get(name, line.metrics.get(name))


def rank_runs(lines: Sequence[RunLine], name: str) -> list[RunLine]:
    """Return the runs sorted by the number `name`, the highest first; runs without the number are last.

    Raises:
        ConfigError: no run has such a number.
    """
    names = sorted({"score"}.union(*(line.metrics.keys() | line.result.keys() for line in lines)))
    if lines and all(named_number(line, name) is None for line in lines):
        similar = get_close_matches(name, names, n=3, cutoff=0.5) or names[:8]  # some examples, if none is similar
        raise ConfigError(
            f"--sort {short_repr(name)}: no run in the folder has this number. Give a metric, such "
            f"as {', '.join(similar)}."
        )
    # A missing number counts as the lowest. The sort is stable: runs with equal numbers keep their order.
    numbers = [-inf if (number := named_number(line, name)) is None else number for line in lines]
    order = sorted(range(len(lines)), key=lambda index: -numbers[index])
    return [lines[index] for index in order]


def shown_score(line: RunLine, sort: str | None) -> str:
    """Return the text of a run's number: the number `sort`, by which a list is sorted; for None, its score with title.

    Empty if the run has no such number.
    """
    if sort is not None:
        return "" if (number := named_number(line, sort)) is None else f"{number:.4g}"
    return line.shown


def newest_run(folder: Path, *states: str) -> Path:
    """Return the folder of the run that changed last; runs in the first state come before those in the second.

    Args:
        folder: a folder with runs.
        states: values of `RunLine.state`, the preferred state first; other runs are left out.

    Raises:
        RunError: no run is in any of the states.
    """
    lines = list_runs(folder) if folder.is_dir() else []
    for state in states:
        if names := [line.name for line in lines if line.state == state]:
            return folder / names[-1]  # a list ends with the latest change
    state_names = " or ".join(states)
    raise RunError(
        f"{folder}: no run in this folder is {state_names}. Give a run's folder; `flatwater runs FOLDER` lists runs."
    )


def _is_run(folder: RunFolder) -> bool:
    """Return whether a folder is a run: a config.toml alone may be another program's. True if it cannot be read."""
    try:
        # `lexists`, so that a dangling link is listed as an unreadable run and not left out.
        return os.path.lexists(folder.config) and (folder.checkpoints.is_dir() or os.path.lexists(folder.metrics))
    except OSError:  # a folder that nobody may look into
        return True


def read_run_line(folder: RunFolder) -> RunLine:
    """Return a run's line; that of an unreadable run says what is wrong, so that a list shows the other runs."""
    try:
        with refuse_foreign_imports():  # a list never imports the code that a folder names
            return describe_run(folder)
    except (FlatwaterError, OSError) as error:
        return unreadable_line(folder.path.name, _format_date(_last_change(folder.path)), str(error))
    except Exception as error:  # noqa: BLE001  (the edge to files of anybody's making: one bad run costs its own row)
        return unreadable_line(
            folder.path.name, _format_date(_last_change(folder.path)), f"{type(error).__name__}: {error}"
        )


def unreadable_line(name: str, changed_at: str, problem: str) -> RunLine:
    """Return the line of a run that cannot be read, with the problem as a message."""
    return RunLine(
        name=name,
        state="unreadable",
        trainer="",
        done=0,
        rounds=0,
        measured="",
        score=None,
        shown="",
        bytes=0,
        changed=changed_at,
        # A message may quote the file, whose control characters must not reach the terminal.
        problem=escape_controls(problem).replace("\n", " ")[:MAXIMUM_PROBLEM],
    )


def describe_run(folder: RunFolder) -> RunLine:
    """Return one run's line; only the ends of its files are read, so that the cost does not grow with the run."""
    settings = read_settings(folder)
    recipe = read_description(folder, settings)
    rounds = read_rounds(settings, str(folder.config))
    _title, metric = recipe.judged_curve
    record, curve_value = read_last(folder.metrics, metric)  # the last round, and the curve's last number
    numbers: Mapping[str, float] = {} if record is None else record
    rounds_done = int(numbers.get("round", 0))
    # The state is read first: a run that was resumed still has the result of its earlier end.
    state = run_state(folder, rounds_done, rounds)
    result = _read_numbers(folder, recipe) if state == "finished" else {}
    score_title, score, score_text = _headline_result(recipe, result, curve_value)
    return RunLine(
        name=folder.path.name,
        state=state,
        trainer=recipe.name,
        done=rounds_done,
        rounds=rounds,
        measured=score_title,
        score=score,
        shown=score_text,
        bytes=sum(islice(_file_sizes(folder.path), MAXIMUM_FILES)),  # a lower bound where there are more
        changed=_format_date(_last_change(folder.path)),
        tag=_read_tag(settings, folder),
        metrics={name: value for name, value in numbers.items() if is_number(value) and isfinite(value)},
        result=result,
        origin=origin_text(folder, settings),
        doubt=next(iter(read_inexact_reasons(folder)), ""),  # the first reason
        result_round=earlier_result_round(folder, rounds_done),
    )


def _file_sizes(path: Path) -> Iterator[int]:
    """Yield the size in bytes of each file below a folder. Links are not followed, so that a loop of links is safe."""
    folders = [os.fspath(path)]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                with suppress(OSError):  # a run that trains may have removed the file by now
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        yield entry.stat(follow_symlinks=False).st_size


def _read_tag(settings: Mapping[str, object], folder: RunFolder) -> tuple[str, ...]:
    """Return the tag of a run, as its settings have it.

    Raises:
        ConfigError: the tag is not a list of words.
    """
    tag = settings.get("tag", [])
    if not isinstance(tag, list) or not all(isinstance(word, str) for word in tag):
        raise ConfigError(f"{folder.config}: tag = {short_repr(tag)}: expected a list of words")
    return tuple(tag)


def _headline_result(
    recipe: Description, result: Mapping[str, float], curve_value: float | None
) -> tuple[str, float | None, str]:
    """Return a run's score as title, number, and text of both: that of its result, or before of its main curve.

    Without either, the number is None and the text is empty.
    """
    headline = recipe.headline
    if headline.key in result:
        value = result[headline.key]
        # The title of the number in the table of results, if it is there.
        title = next((number.title for number in recipe.numbers if number.key == headline.key), headline.title)
        return title, value, f"{title} {headline.write(value)}"
    title, _ = recipe.judged_curve
    return (title, None, "") if curve_value is None else (title, curve_value, f"{title} {curve_value:.3g}")


def _read_numbers(folder: RunFolder, recipe: Description) -> dict[str, float]:
    """Return the trained policy's numbers in `result.json`; empty if it is damaged, which the run's page reports."""
    try:
        result = read_result(folder.result, recipe, MAXIMUM_RESULT)
    except RunError:
        return {}
    row: Mapping[str, Any] = {} if result is None else result[recipe.players].get(recipe.trained, {})
    return {name: value for name, value in row.items() if is_number(value) and isfinite(value)}


def run_state(folder: RunFolder, rounds_done: int, rounds: int) -> str:
    """Return the state: `training`, `finished`, or `stopped` (it can be resumed)."""
    if _is_locked(folder):
        return "training"
    has_ended = rounds_done >= rounds and folder.result.is_file()
    # A run that was resumed and killed before its new result can be resumed once more, for that result.
    return "finished" if has_ended and earlier_result_round(folder, rounds_done) is None else "stopped"


def _format_date(seconds: float) -> str:
    return f"{datetime.fromtimestamp(min(max(seconds, 0.0), LATEST_TIME)).astimezone():%Y-%m-%d %H:%M}"


def _last_change(path: Path) -> float:
    """Return the latest time of change of a folder's files, in seconds since 1970; 0 if none can be read."""
    try:
        statuses = [status for file in islice(path.iterdir(), MAXIMUM_FILES) if (status := _file_status(file))]
        return max((status.st_mtime for status in statuses), default=0.0)
    except OSError:
        return 0.0


def _file_status(file: Path) -> os.stat_result | None:
    """Return the file's status; None if it was removed meanwhile, or this user may not read it."""
    try:
        return file.lstat()
    except OSError:
        return None


def _is_locked(folder: RunFolder) -> bool:
    """Return whether a living process trains the run; the system frees a process's lock when the process ends.

    Raises:
        RunError: the lock's file cannot be read.
    """
    try:
        lock = open_regular(folder.lock, follow_links=False)
    except FileNotFoundError:  # a copy of a run
        return False
    except OSError as error:
        raise RunError(
            f"{folder.lock}: cannot be read: {error.strerror}. Remove it if nothing trains the run."
        ) from error
    with lock as handle:
        try:
            # Shared and without waiting, so that this check does not keep a run from starting.
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
