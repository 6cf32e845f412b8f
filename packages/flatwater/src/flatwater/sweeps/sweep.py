"""A sweep: trials one after the other or several at once, each a run in a process of its own.

A sweep that is stopped or killed goes on where it was: finished trials stay, and those that were at work are resumed
from their newest checkpoints.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any

from optuna.trial import Trial
from rich.console import Console

from flatwater.config.mappings import to_mapping, with_settings
from flatwater.metrics.jsonl import Record
from flatwater.metrics.short_numbers import short_number
from flatwater.recipe import recipe_of_config
from flatwater.rundir.layout import RunFolder, hold_lock, recorded_rounds
from flatwater.runs.config import extend_mirror_url
from flatwater.runs.signals import StopRequest, stop_on_signals
from flatwater.sweeps.folder import SweepFolder, SweepOutcome, write_outcome
from flatwater.sweeps.opening import OpenedSweep, SweepOrder, open_sweep
from flatwater.sweeps.progress import RoundProgress, rounds_of_trials
from flatwater.sweeps.run_processes import TRIAL_PROGRAM, Job, RunExit, RunPool, train_jobs
from flatwater.sweeps.space import TRIAL_SOURCE
from flatwater.sweeps.study import Study, TrialLine, open_study, trial_number
from flatwater_watch.errors import ConfigError, RunError


@dataclass(frozen=True)
class Sweep:
    """A sweep in progress."""

    folder: SweepFolder
    locked_folder: RunFolder
    """The sweep's folder by an open descriptor, which stays valid when the folder is moved."""
    base: Any
    """RunConfig of any kind."""
    study: Study
    trial_count: int
    console: Console
    program: Sequence[str]
    stop: StopRequest
    progress: RoundProgress

    def require_in_place(self) -> None:
        """Refuse to go on if the folder was moved: the study's database is open under the old name.

        Raises:
            RunError: the folder was moved, or is gone.
        """
        path = self.locked_folder.with_current_name.path
        if path != self.folder.path:
            raise RunError(
                f"{self.folder.path}: the sweep's folder was moved, and is {path} now. The finished trials are there, "
                f"and the current trial has saved a checkpoint. Go on with: flatwater sweep {self.base.trainer} --run "
                f"{path}"
            )

    def say(self, line: str) -> None:
        """Print a line as it is."""
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)


def train_sweep(
    order: SweepOrder,
    console: Console,
    program: Sequence[str] = TRIAL_PROGRAM,
    progress: RoundProgress | None = None,
) -> SweepOutcome:
    """Begin a sweep, or go on with the one in the order's folder, until all trials have ended or a signal stops it.

    Args:
        order: space, settings and folder of the sweep.
        console: terminal for the lines of the trials.
        program: command of a trial's process, which speaks as `trial.py` does.
        progress: progress of a study, which counts the rounds of all trials; None shows that of the sweep alone.
    """
    opened_sweep: OpenedSweep = open_sweep(order, program)
    # The folder is locked, so that two processes do not draw the same trial.
    with (
        hold_lock(RunFolder(opened_sweep.folder.path)) as locked_folder,
        stop_on_signals(console) as stop,
        # A study shows the progress of its sweeps itself: then `status` is None.
        console.status("") if progress is None else nullcontext() as status,
    ):
        base = opened_sweep.base
        study = open_study(
            opened_sweep.folder.study,
            opened_sweep.space,
            seed=base.seed,
            prune=order.prune,
            rounds=base.rounds,
            at_once=order.at_once,
        )
        trial_count = study.save_trial_count_(order.trials)
        sweep = Sweep(
            folder=opened_sweep.folder,
            locked_folder=locked_folder,
            base=base,
            study=study,
            trial_count=trial_count,
            console=console,
            program=program,
            stop=stop,
            progress=progress
            or RoundProgress(rounds=trial_count * base.rounds, done=rounds_of_trials(opened_sweep.folder.path)),
        )
        if status is not None:
            unit = recipe_of_config(base).layout.round
            sweep.progress.show = lambda: status.update(sweep.progress.describe(unit))
            sweep.progress.show()
        train_trials_(sweep, min(order.at_once or study.at_once, trial_count))
        return sweep_outcome(sweep)


def train_trials_(sweep: Sweep, at_once: int) -> None:
    """Train the trials that are left, `at_once` at the same time, until all have ended or a signal stops them."""
    parallel = f", {at_once} at once" if at_once > 1 else ""
    searched_names = ", ".join(sweep.study.space)
    sweep.say(f"sweep folder {sweep.folder.path}: {sweep.trial_count} trials, searching {searched_names}{parallel}")
    for line in sweep.study.lines():  # those that ended early before the sweep was stopped
        drop_unreached_rounds_(sweep, line)
    pool = RunPool(program=sweep.program, stop=sweep.stop, check=sweep.require_in_place, say=sweep.say, at_once=at_once)
    trials_by_run: dict[Path, Trial] = {}
    # If an ending cannot be recorded, `closing` lets the trials that train save and end.
    with closing(train_jobs(generate_jobs_(sweep, trials_by_run), pool)) as endings:
        for job, ending in endings:
            record_ending_(sweep, trials_by_run[job.run.path], ending)


def generate_jobs_(sweep: Sweep, trials_by_run: dict[Path, Trial]) -> Iterator[Job | None]:
    """Yield the jobs of interrupted, then of new trials; None while the next trial has to wait for others to end.

    Args:
        sweep: the sweep, whose study gets the new trials.
        trials_by_run: gets each trial by its run's folder before its job is yielded.
    """
    for trial in generate_trials_(sweep):
        if trial is None:
            yield None
        elif (job := begin_job_(sweep, trial)) is not None:
            trials_by_run[job.run.path] = trial
            yield job


def generate_trials_(sweep: Sweep) -> Iterator[Trial | None]:
    """Yield interrupted trials, then new ones; None while the next trial has to wait for others to end."""
    yield from sweep.study.reopen_interrupted_trials_()
    while len(sweep.study.lines()) < sweep.trial_count:  # counted anew each time; failed trials count too
        yield sweep.study.begin_trial_() if sweep.study.may_begin() else None


def begin_job_(sweep: Sweep, trial: Trial) -> Job | None:
    """Return the job that begins or resumes a trial's run; None if the trial has ended at once, failed or pruned."""
    settings = sweep.study.settings(trial)
    known_values = sweep.study.values(trial)
    settings_text = ", ".join(f"{name} {setting_text(value)}" for name, value in settings.items())
    sweep.say(f"trial {trial_number(trial)}/{sweep.trial_count}: {settings_text}")
    try:
        config = extend_mirror_url(with_settings(sweep.base, settings, TRIAL_SOURCE), sweep.folder.path)
    except ConfigError as error:
        record_ending_(sweep, trial, RunExit("failed", str(error)))
        return None
    # A sweep may have been killed after a trial fell behind and before that was recorded.
    if sweep.study.is_below_median(trial, known_values):
        record_ending_(sweep, trial, RunExit("pruned"))
        return None
    number = trial_number(trial)
    run = sweep.folder.trial(number)
    known_rounds = recorded_rounds(run)  # those that an earlier start has counted
    _title, metric = judged_curve(sweep)

    def judge(record: Record) -> bool:
        """Count the round and save its value; return whether the trial should end."""
        sweep.progress.count_record_(record, known_rounds)
        value = record.get(metric)
        return sweep.study.judge_(trial, known_values, record["round"], nan if value is None else value)

    log = sweep.folder.log(number)
    return Job(order={"config": to_mapping(config)}, run=run, log=log, judge=judge)


def record_ending_(sweep: Sweep, trial: Trial, ending: RunExit) -> None:
    """Record how a trial ended in the study and in sweep.json, and print it; a stopped trial stays interrupted."""
    sweep.require_in_place()  # before the database is written, as its path may lead elsewhere by now
    if ending.how == "finished":
        sweep.study.finish_(trial)
    elif ending.how == "pruned":
        sweep.study.prune_(trial)
    elif ending.how == "failed":
        sweep.study.fail_(trial, ending.reason)
    number = trial_number(trial)  # from 1
    drop_unreached_rounds_(sweep, sweep.study.lines()[number - 1])
    sweep.say(f"  trial {number} {outcome_line(sweep, number)}")
    write_outcome(sweep_outcome(sweep), sweep.base)


def drop_unreached_rounds_(sweep: Sweep, line: TrialLine) -> None:
    """If a trial has ended early, subtract the rounds that it will not train from the sweep's progress."""
    if line.state in {"pruned", "failed"}:
        sweep.progress.drop_(sweep.base.rounds - recorded_rounds(sweep.folder.trial(line.number)))


def judged_curve(sweep: Sweep) -> tuple[str, str]:
    """Return title and metric of the curve that trials are judged by: the last of their recipe."""
    return list(recipe_of_config(sweep.base).curves.items())[-1]


def outcome_line(sweep: Sweep, number: int) -> str:
    """Return a line about the result of a trial; `number` counts from 1."""
    line = sweep.study.lines()[number - 1]
    best_trial = sweep_outcome(sweep).best_trial
    if line.state == "interrupted":
        return f"stopped in round {line.round + 1}; the sweep resumes the trial when it goes on"
    if line.state == "failed":
        return f"failed: {line.reason}"
    # A best trial always has a value; `or` is for the type checker.
    value = "no value" if line.value is None else f"{judged_curve(sweep)[0]} {short_number(line.value)}"
    best_text = (
        "" if best_trial is None else f"; best: trial {best_trial.number}, {short_number(best_trial.value or 0.0)}"
    )
    return f"{line.state} after round {line.round}: {value}{best_text}"


def setting_text(value: object) -> str:
    """Return a setting's value in few characters."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def sweep_outcome(sweep: Sweep) -> SweepOutcome:
    """Return the trials of the sweep so far."""
    return SweepOutcome(
        folder=sweep.folder,
        trainer=sweep.base.trainer,
        measured=judged_curve(sweep)[0],
        wanted=sweep.trial_count,
        lines=sweep.study.lines(),
        stop=sweep.stop,
    )
