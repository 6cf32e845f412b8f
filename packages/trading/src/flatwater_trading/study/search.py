"""The search of a study: in each fold a sweep chooses settings by the fold's validation days.

These lie before the fold's test days, so nothing is chosen on days that are tested. The runs of all seeds then train
with the settings of their fold.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from flatwater.runs.config import extend_mirror_url
from flatwater.sweeps.folder import SweepOutcome
from flatwater.sweeps.opening import SweepOrder
from flatwater.sweeps.progress import RoundProgress
from flatwater.sweeps.sweep import train_sweep
from flatwater_trading.study.folds import Fold, fold_config
from flatwater_trading.study.opening import OpenedStudy
from flatwater_watch.errors import RunError


@dataclass(frozen=True, kw_only=True)
class FoldSearch:
    """The settings that were chosen for a fold, and the trials among which they were."""

    fold: int
    """Number of the fold, from 1."""
    trials: int
    """Trials, those that were pruned or failed included."""
    rounds: int
    """Rounds of all trials together."""
    best: int
    """Number of the best trial, from 1."""
    value: float
    """Value of the best trial on the validation days."""
    settings: Mapping[str, Any]
    """Settings of the best trial by dotted path."""


def search_fold(
    opened_study: OpenedStudy, fold: Fold, console: Console, program: Sequence[str], progress: RoundProgress
) -> SweepOutcome:
    """Train the trials of a fold, or those that are left of them, until all have ended or a signal stops them.

    Args:
        opened_study: the study's folder and its settings.
        fold: the fold.
        console: terminal for the lines of the trials.
        program: command of a trial's process.
        progress: progress of the study, which counts the rounds of the trials.
    """
    # With the study's name in the mirror's URL, as the sweeps of other studies have the same names.
    base = extend_mirror_url(opened_study.base, opened_study.folder.path)
    order = SweepOrder(
        config=fold_config(base, fold, opened_study.base.seed),
        space=opened_study.folder.space,
        trials=opened_study.setup.trials,
        folder=opened_study.folder.search_folder(fold.number),
        prune=True,  # trials that fall behind the others are stopped
        # No more than when the study began, as the settings of trials depend on it.
        at_once=min(opened_study.jobs, opened_study.setup.trials_at_once),
    )
    return train_sweep(order, console, program, progress)


def summarise_search(outcome: SweepOutcome, fold: Fold) -> FoldSearch:
    """Return the record of a fold's search: the best trial's settings, and how much was tried.

    Raises:
        RunError: no trial has finished.
    """
    best_trial = outcome.best_trial
    if best_trial is None or best_trial.value is None:
        reasons = {line.reason for line in outcome.lines if line.reason}
        raise RunError(
            f"{outcome.folder.path}: no trial of fold {fold.number} has finished, so it has no settings. "
            f"{' '.join(sorted(reasons))}"
        )
    return FoldSearch(
        fold=fold.number,
        trials=len(outcome.lines),
        rounds=sum(line.round for line in outcome.lines),
        best=best_trial.number,
        value=best_trial.value,
        settings=best_trial.settings,
    )
