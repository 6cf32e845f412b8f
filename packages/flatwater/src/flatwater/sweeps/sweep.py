"""A sweep: trials one after the other or several at once, each a run in a process of its own.

A sweep that is stopped or killed goes on where it was: finished trials stay, and those that were at work are resumed
from their newest checkpoints.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any

from optuna.trial import Trial
from rich.console import Console

from flatwater.config.toml import to_mapping, with_settings
from flatwater.metrics.figures import short_number
from flatwater.metrics.jsonl import Record
from flatwater.recipe import recipe_of_config
from flatwater.rundir.layout import RunFolder, hold_lock
from flatwater.runs.config import extend_mirror_url
from flatwater.runs.signals import StopRequest, stop_on_signals
from flatwater.sweeps.folder import SweepFolder, SweepOutcome, write_outcome
from flatwater.sweeps.opening import OpenedSweep, SweepOrder, open_sweep
from flatwater.sweeps.process import TRIAL_PROGRAM, Job, RunExit, RunPool, train_jobs
from flatwater.sweeps.space import TRIAL_SOURCE
from flatwater.sweeps.study import Study, open_study, trial_number
from flatwater_watch.errors import ConfigError, RunError


@dataclass(frozen=True)
class Sweep:
    """A sweep in progress."""

    folder: SweepFolder
    held: RunFolder
    """The sweep's folder by a held descriptor, whatever its name is by now."""
    base: Any
    """RunConfig of any kind."""
    study: Study
    trial_count: int
    console: Console
    program: Sequence[str]
    stop: StopRequest

    def require_in_place(self) -> None:
        """Refuse to go on where the folder has another name: the study is open under the old name.

        Raises:
            RunError: the folder was moved, or is gone.
        """
        path = self.held.with_current_name.path
        if path != self.folder.path:
            raise RunError(
                f"{self.folder.path}: the sweep's folder was moved, and is {path} now. The finished trials are there, "
                f"and the current trial has saved a checkpoint. Go on with: flatwater sweep {self.base.trainer} --run "
                f"{path}"
            )

    def say(self, line: str) -> None:
        """Print a line as it is."""
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)


def train_sweep(order: SweepOrder, console: Console, program: Sequence[str] = TRIAL_PROGRAM) -> SweepOutcome:
    """Begin a sweep, or go on with one, until it is done or a signal stops it."""
    opened: OpenedSweep = open_sweep(order, program)
    # The lock of the folder, so that two sweeps do not draw the same trial.
    with hold_lock(RunFolder(opened.folder.path)) as locked_folder, stop_on_signals(console) as stop:
        base = opened.base
        study = open_study(
            opened.folder.study,
            opened.space,
            seed=base.seed,
            prune=order.prune,
            rounds=base.rounds,
            at_once=order.at_once,
        )
        work = Sweep(
            opened.folder, locked_folder, base, study, study.keep_wanted_(order.trials), console, program, stop
        )
        at_once = min(order.at_once or study.at_once, work.trial_count)
        pace = f", {at_once} at once" if at_once > 1 else ""
        work.say(
            f"sweep folder {opened.folder.path}: {work.trial_count} trials, searching {', '.join(opened.space)}{pace}"
        )
        pool = RunPool(program=program, stop=stop, check=work.require_in_place, say=work.say, at_once=at_once)
        trials_by_run: dict[Path, Trial] = {}
        # Closed where it cannot go on: then trials at work save.
        with closing(train_jobs(jobs_(work, trials_by_run), pool)) as endings:
            for job, ending in endings:
                record_ending_(work, trials_by_run[job.run.path], ending)
        return sweep_outcome(work)


def jobs_(work: Sweep, running_trials: dict[Path, Trial]) -> Iterator[Job | None]:
    """Yield interrupted and new trials, as many as are wanted; None while the next trial has to wait.

    `running_trials` gets each trial by its run folder before it is yielded.
    """
    for trial in trials_(work):
        job = None if trial is None else job_(work, trial)
        if trial is not None and job is not None:
            running_trials[job.run.path] = trial
        if trial is None or job is not None:
            yield job


def trials_(work: Sweep) -> Iterator[Trial | None]:
    """Yield trials in their order; None while the next trial has to wait."""
    yield from work.study.reopen_interrupted_()
    while len(work.study.lines()) < work.trial_count:  # asked again each time: trials that failed count too
        yield work.study.next_() if work.study.may_begin() else None


def job_(work: Sweep, trial: Trial) -> Job | None:
    """Return the trial's run, from where it is to its end; None if it has ended without one."""
    settings = work.study.settings(trial)
    chosen_values = work.study.values(trial)
    settings_text = ", ".join(f"{name} {setting_text(value)}" for name, value in settings.items())
    work.say(f"trial {trial_number(trial)}/{work.trial_count}: {settings_text}")
    try:
        config = extend_mirror_url(with_settings(work.base, settings, TRIAL_SOURCE), work.folder.path)
    except ConfigError as error:
        record_ending_(work, trial, RunExit("failed", str(error)))
        return None
    if work.study.is_behind(trial, chosen_values):  # found out before, and killed before it was written down
        record_ending_(work, trial, RunExit("pruned"))
        return None
    number = trial_number(trial)
    metric = judged_curve(work)[1]

    def judge(record: Record) -> bool:
        value = record.get(metric)
        return work.study.judge_(trial, chosen_values, record["round"], nan if value is None else value)

    run = work.folder.trial(number)
    log = work.folder.log(number)
    return Job(order={"config": to_mapping(config)}, run=run, log=log, judge=judge)


def record_ending_(work: Sweep, trial: Trial, ending: RunExit) -> None:
    """Write the result of a trial into the study; a stopped trial stays as it is."""
    work.require_in_place()  # before the database is written: its name may lead elsewhere
    if ending.how == "finished":
        work.study.finish_(trial)
    elif ending.how == "pruned":
        work.study.prune_(trial)
    elif ending.how == "failed":
        work.study.fail_(trial, ending.reason)
    work.say(f"  trial {trial_number(trial)} {outcome_line(work, trial_number(trial))}")
    write_outcome(sweep_outcome(work), work.base)


def judged_curve(work: Sweep) -> tuple[str, str]:
    """Return title and metric of the curve that the kind of run is judged by."""
    return list(recipe_of_config(work.base).curves.items())[-1]


def outcome_line(work: Sweep, number: int) -> str:
    """Return a line about the result of a trial; `number` counts from 1."""
    line, best = work.study.lines()[number - 1], sweep_outcome(work).best_trial
    if line.state == "interrupted":
        return f"stopped in round {line.round + 1}; the sweep resumes the trial when it goes on"
    if line.state == "failed":
        return f"failed: {line.reason}"
    value = "no value" if line.value is None else f"{judged_curve(work)[0]} {short_number(line.value)}"
    best_text = "" if best is None else f"; best: trial {best.number}, {short_number(best.value or 0.0)}"
    return f"{line.state} after round {line.round}: {value}{best_text}"


def setting_text(value: object) -> str:
    """Return a setting's value in few characters."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def sweep_outcome(work: Sweep) -> SweepOutcome:
    """Return the trials of the sweep so far, with the best of them."""
    return SweepOutcome(
        folder=work.folder,
        trainer=work.base.trainer,
        measured=judged_curve(work)[0],
        wanted=work.trial_count,
        lines=work.study.lines(),
        stop=work.stop,
    )
