"""Training of a study: the same settings in each fold, once with each seed; then all folds are pooled.

A study that is stopped or killed continues from there: runs that have played their test days stay as they are, and the
others are resumed from their newest checkpoint.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from resource import RUSAGE_CHILDREN, getrusage
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.status import Status

from flatwater.config.mappings import to_mapping, with_settings
from flatwater.metrics.jsonl import Record
from flatwater.recipe import Recipe
from flatwater.rundir.layout import RunFolder, hold_lock, recorded_rounds
from flatwater.rundir.results import read_result
from flatwater.runs.config import extend_mirror_url
from flatwater.runs.signals import StopRequest, stop_on_signals
from flatwater.sweeps.progress import RoundProgress, rounds_of_trials
from flatwater.sweeps.run_processes import TRIAL_PROGRAM, Job, RunExit, RunPool, train_jobs
from flatwater_trading.study.folder import StudyFolder
from flatwater_trading.study.folds import Fold, cut_folds, fold_config
from flatwater_trading.study.opening import OpenedStudy, StudyRequest, open_study_folder
from flatwater_watch.errors import RunError
from flatwater_watch.files.directory import write_object
from flatwater_watch.terminal import print_sentence
from flatwater_watch.units import format_duration

if TYPE_CHECKING:
    from flatwater_trading.study.search import FoldSearch

MEMBER_PROGRAM = (sys.executable, "-P", "-m", "flatwater_trading.study.member")
STUDY_NOTE = (
    "nothing was trained or chosen on a fold's test days before they were played; whoever changes settings after "
    "looking at this result has chosen on them"
)


@dataclass(frozen=True, kw_only=True)
class StudyRun:
    """A run of the study."""

    fold: Fold
    seed: int
    run: RunFolder

    @property
    def name(self) -> str:
        """Name such as `fold 3, seed 1`."""
        return f"fold {self.fold.number}, seed {self.seed}"

    @property
    def is_tested(self) -> bool:
        """True once the run has played its test days."""
        return self.run.holdout.is_file()


@dataclass(frozen=True, kw_only=True)
class StudyOutcome:
    """The outcome of a study."""

    folder: StudyFolder
    result: dict[str, Any]
    """Contents of study.json."""
    stop: StopRequest
    """The signal that stopped the study, if any."""


@dataclass(kw_only=True)
class _RunningStudy:
    """A study at work."""

    opened: OpenedStudy
    held_folder: RunFolder
    """The study's folder, locked while the study is at work; it knows its name when it is moved."""
    members: Sequence[StudyRun]
    console: Console
    status: Status
    progress: RoundProgress
    searches: dict[int, "FoldSearch"] = field(default_factory=dict)
    """Fold -> the settings that its search has found; empty in a study without a search."""
    searched: str = ""
    """Phrase about the search that is at work; empty if none is."""

    def require_in_place(self) -> None:
        """Check that the folder still has its name, as runs are started below it.

        Raises:
            RunError: the folder was moved, or is gone.
        """
        old_path, new_path = self.opened.folder.path, self.held_folder.with_current_name.path
        if new_path != old_path:
            raise RunError(
                f"{old_path}: the study's folder was moved, and is {new_path} now. What was done is there, and the "
                f"runs at work have saved checkpoints. Go on with: flatwater study --run {new_path}"
            )

    def say(self, line: str) -> None:
        """Print a sentence, which a terminal shows without breaking a path in it."""
        print_sentence(self.console, line)

    def show_(self) -> None:
        """Update the status line: the search at work or the number of tested runs, then rounds and time left."""
        tested_count = sum(member.is_tested for member in self.members)
        work = self.searched or f"{tested_count} of {len(self.members)} runs"
        self.status.update(f"{work}, {self.progress.describe(self.opened.recipe.layout.round)}")

    def jobs(self) -> Iterator[Job]:
        """Yield a job for each run that has not been tested yet, with the settings of its fold."""
        folder = self.opened.folder
        base = extend_mirror_url(self.opened.base, folder.path)
        for member in self.members:
            if not member.is_tested:
                number, seed = member.fold.number, member.seed
                config = fold_config(base, member.fold, seed)
                if number in self.searches:
                    config = with_settings(config, self.searches[number].settings, f"the search of fold {number}")
                log = folder.log(number, seed)
                order = {"config": to_mapping(config)}
                # Called with each record of the run, which it may stop: here it only counts.
                judge = self._make_round_counter(recorded_rounds(member.run))
                yield Job(order=order, run=member.run, log=log, judge=judge)

    def _make_round_counter(self, known_rounds: int) -> Callable[[Record], bool]:
        """Return a job's `judge` that counts the new rounds in a run's records, and stops no run: it returns False.

        Rounds up to `known_rounds`, the run's last round when the study began, are not counted again.
        """

        def judge(record: Record) -> bool:
            """Count the round of a record; the run is not stopped."""
            self.progress.count_record_(record, known_rounds)
            return False

        return judge


def train_study(
    request: StudyRequest,
    console: Console,
    program: Sequence[str] = MEMBER_PROGRAM,
    trial_program: Sequence[str] = TRIAL_PROGRAM,
) -> StudyOutcome:
    """Begin a study or resume it, until it is done or a signal stops it.

    Args:
        request: settings, folds, seeds and folder of the study.
        console: terminal for progress.
        program: command of a run's process, which speaks as `member.py` does.
        trial_program: command of a trial's process, which speaks as `flatwater.sweeps.trial` does.
    """
    with console.status("reading the panel and planning the runs …"):
        study = open_study_folder(request, program)
    folder, setup, members = study.folder, study.setup, study_runs(study)
    threads = "1 thread" if study.base.threads == 1 else f"{study.base.threads} threads"
    progress = study_progress(study, members)
    with (
        # The lock is taken before any run is started, as two processes must not train the same runs.
        hold_lock(RunFolder(folder.path)) as locked_folder,
        stop_on_signals(console) as stop,
        console.status("") as status,
    ):
        work = _RunningStudy(
            opened=study, held_folder=locked_folder, members=members, console=console, status=status, progress=progress
        )
        progress.show = work.show_
        work.say(
            f"study folder {folder.path}: {len(members)} runs (folds: {setup.folds}, seeds: {len(setup.seeds)}), "
            f"tested on {study.days}, {study.jobs} at once, {threads} each"
        )
        for line in study.about:
            work.say(line)
        if setup.trials:
            search_settings_(work, stop, trial_program)
        work.show_()
        pool = RunPool(program=program, stop=stop, check=work.require_in_place, say=work.say, at_once=study.jobs)
        failure_reasons = train_members_(work, pool)
        children = getrusage(RUSAGE_CHILDREN)  # of all runs and trials, which have ended
        cpu = format_duration(children.ru_utime + children.ru_stime)
        elapsed_time = format_duration(time.monotonic() - progress.began_at)
        work.say(f"{progress_line(members)}; this took {elapsed_time}, and {cpu} of CPU")
        # Runs take hours, and the folder may have been moved meanwhile: the result must not be written at its old name.
        status.update("pooling the folds …")
        work.require_in_place()
        result = write_study(study, members, failure_reasons, work.searches)
        return StudyOutcome(folder=folder, result=result, stop=stop)


def study_runs(study: OpenedStudy) -> list[StudyRun]:
    """Return all runs of a study: for each fold those of all seeds."""
    return [
        StudyRun(fold=fold, seed=seed, run=study.folder.run(fold.number, seed))
        for fold in cut_folds(study.setup.days, study.setup.folds)
        for seed in study.setup.seeds
    ]


def study_progress(study: OpenedStudy, members: Sequence[StudyRun]) -> RoundProgress:
    """Return the progress of a study that begins or goes on: the rounds in all, and those that were done before.

    Counted are the rounds of its runs, and of the trials of its searches.
    """
    folds, trials, rounds = study.setup.folds, study.setup.trials, study.base.rounds
    rounds_done = sum(recorded_rounds(member.run) for member in members)
    rounds_done += sum(rounds_of_trials(study.folder.search_folder(fold)) for fold in range(1, folds + 1))
    # A trial has as many rounds as a run.
    return RoundProgress(rounds=(len(members) + folds * trials) * rounds, done=rounds_done)


def search_settings_(work: _RunningStudy, stop: StopRequest, program: Sequence[str]) -> None:
    """Search for the settings of each fold by a sweep, one fold after the other, and write them to `work.searches`.

    A signal that stops a sweep stops the study too.
    """
    from flatwater_trading.study.search import search_fold, summarise_search  # noqa: PLC0415  (it needs Optuna)

    folds = {member.fold.number: member.fold for member in work.members}  # each once, as members differ by seed too
    for number, fold in folds.items():
        if stop.signal:
            return
        work.searched = f"searching settings for fold {number} of {len(folds)}"
        work.show_()
        outcome = search_fold(work.opened, fold, work.console, program, work.progress)
        work.searched = ""
        # The sweep has its own handlers of signals, so a signal during it has reached only them.
        if outcome.stop.signal:
            stop.signal = outcome.stop.signal
            return
        work.searches[number] = summarise_search(outcome, fold)


def train_members_(work: _RunningStudy, pool: RunPool) -> dict[str, str]:
    """Train and test the runs that are left; return the reasons of those that failed by their folders' names."""
    failure_reasons, member_by_run = dict[str, str](), {member.run: member for member in work.members}
    for job, ending in train_jobs(work.jobs(), pool):
        member = member_by_run[job.run]
        if ending.how == "failed":
            failure_reasons[member.run.path.name] = ending.reason
            # Its other rounds will not be trained now.
            work.progress.drop_(work.opened.base.rounds - recorded_rounds(member.run))
        outcome = outcome_line(work.opened.recipe, member, ending)
        work.say(f"{member.name}: {outcome}; {progress_line(work.members)}, {work.progress.time_left()}")
        work.show_()
    return failure_reasons


def progress_line(members: Sequence[StudyRun]) -> str:
    """Return a phrase such as `5 of 24 runs done`."""
    return f"{sum(member.is_tested for member in members)} of {len(members)} runs done"


def outcome_line(recipe: Recipe, member: StudyRun, ending: RunExit) -> str:
    """Describe the outcome of a run in a line: where it was stopped, why it failed, or its return on the test days."""
    if ending.how == "stopped":
        place = f"{recipe.layout.round} {recorded_rounds(member.run) + 1}"
        return f"stopped in {place}; it is resumed when the study goes on"
    result = read_result(member.run.holdout, recipe)
    if ending.how == "failed" or result is None:
        return f"failed: {ending.reason}"
    rows = result[recipe.players]
    returns = {name: rows[name]["total_return"] for name in ("champion", "equal weight")}
    return ", ".join(f"{name} {value:+.1%}" for name, value in returns.items())


def write_study(
    study: OpenedStudy,
    members: Sequence[StudyRun],
    failure_reasons: Mapping[str, str],
    searches: Mapping[int, "FoldSearch"],
) -> dict[str, Any]:
    """Pool the runs that were tested; write study.json, and the pooled equity if a fold is complete.

    Args:
        study: the study's folder and its settings.
        members: all runs of the study.
        failure_reasons: reasons of the runs that failed in this start, by the names of their folders.
        searches: settings that were found for each fold, by its number; empty without a search.

    Returns:
        The contents of study.json; its `pooled` is None until a fold has been tested with every seed.

    Raises:
        RunError: a run's file is damaged.
    """
    # Imported late: torch would hold memory beside the running members.
    from flatwater_trading.recipe.tables import write_frame  # noqa: PLC0415  (see above)
    from flatwater_trading.study.pooling import as_json, equity_frame, pool_folds  # noqa: PLC0415  (see above)

    folder, setup = study.folder, study.setup
    # Rounds of each fold's trials, in multiples of a run's rounds.
    trial_runs = {fold: search.rounds / study.base.rounds for fold, search in searches.items()}
    pooled_result = pool_folds(folder, setup, study.recipe, trial_runs)
    # The equity is written before study.json, which says that there is an equity file.
    if pooled_result is not None:
        write_frame(equity_frame(pooled_result), folder.equity)
    result = {
        "trainer": study.recipe.name,
        "panel": study.base.panel,
        "data_fingerprint": setup.data,
        "folds": setup.folds,
        "seeds": list(setup.seeds),
        "rounds": study.base.rounds,
        "threads": study.base.threads,
        "runs": [_run_row(member, failure_reasons) for member in members],
        "pooled": None if pooled_result is None else as_json(pooled_result),
        "note": STUDY_NOTE + study.splits_note,
    }
    if setup.trials:
        result["search"] = [vars(search) for search in searches.values()]
    write_object(folder.result, json.dumps(result, indent=1).encode() + b"\n")
    return result


def _run_row(member: StudyRun, failure_reasons: Mapping[str, str]) -> dict[str, Any]:
    """Return the row of a run in study.json; the reasons are by the names of the runs' folders."""
    name = member.run.path.name
    reason = failure_reasons.get(name, "")
    state = "waiting"
    if member.is_tested:
        state = "finished"
    elif reason:
        state = "failed"
    return {"run": name, "fold": member.fold.number, "seed": member.seed, "state": state, "reason": reason}
