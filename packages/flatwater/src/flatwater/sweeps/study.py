"""The study of a sweep, by Optuna: it draws the settings of trials, prunes trials, and keeps their results.

Its whole state is in the database of the sweep's folder. The draw of a setting is seeded by its name and the trial's
number, so that an interruption does not change it. Where several trials train at once, a draw depends on the trials at
least `at_once` before it: which later ones have ended depends on their speed.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Literal, cast

import optuna
from optuna.distributions import BaseDistribution, CategoricalChoiceType
from optuna.pruners import MedianPruner, NopPruner
from optuna.samplers import TPESampler
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy import URL
from sqlalchemy.pool import NullPool

from flatwater.sweeps.space import Choices, Range, Space
from flatwater_watch.errors import ConfigError

STUDY_NAME = "sweep"
DEFAULT_TRIALS = 20
"""Default number of trials of a sweep."""
STARTUP_TRIALS = 4
"""Trials that must have finished before one is pruned: a median of fewer says little."""
WARM_UP_DIVISOR = 4
"""A trial can be pruned once it has trained its rounds divided by this number."""
FINISHED, PRUNED, FAILED, RUNNING = TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL, TrialState.RUNNING

State = Literal["finished", "pruned", "failed", "interrupted"]
STATE_NAMES: Mapping[TrialState, State] = {
    FINISHED: "finished",
    PRUNED: "pruned",
    FAILED: "failed",
    RUNNING: "interrupted",
}


@dataclass(frozen=True, kw_only=True)
class TrialLine:
    """One trial, as the result shows it."""

    number: int
    """Number from 1, as in the name of its folder."""
    state: State
    value: float | None
    """Value that it is judged by, in the last round that has one; None if there is none."""
    round: int
    """Last round that was judged; 0 if there is none."""
    settings: Mapping[str, Any]
    """Settings by dotted path."""
    reason: str
    """Reason why it failed; empty otherwise."""

    def to_json(self) -> dict[str, Any]:
        """Return the trial's row in sweep.json."""
        return asdict(self)


@dataclass(frozen=True)
class Study:
    """An open study, and the space that it searches."""

    study: optuna.Study
    space: Space
    seed: int
    at_once: int
    """Number of trials that may train at the same time: each follows from those at least `at_once` before it."""

    def save_trial_count_(self, trials: int | None) -> int:
        """Save the sweep's number of trials if it is given. Returns that number, or else the number saved before."""
        saved_trials: int = self.study.user_attrs.get("wanted", DEFAULT_TRIALS)
        if trials is not None and trials != saved_trials:
            self.study.set_user_attr("wanted", trials)
        return saved_trials if trials is None else trials

    def begin_trial_(self) -> Trial:
        """Begin a new trial in the database, draw its settings, and return it."""
        self._reseed_sampler_(number=len(self._trials()), name="")  # optuna counts from 0
        return self._draw_settings_(self.study.ask())

    def reopen_interrupted_trials_(self) -> list[Trial]:
        """Return the trials that had not ended when the sweep was stopped or killed, in their order."""
        return [self._reopen_trial_(trial) for trial in self._trials() if trial.state == RUNNING]

    def may_begin(self) -> bool:
        """Return whether all trials on which the next trial's settings depend have ended."""
        trials = self._trials()
        # The next trial has the number `len(trials)`, and depends on those at least `at_once` before it.
        dependencies = trials[: max(0, len(trials) - self.at_once + 1)]
        return all(trial.state != RUNNING for trial in dependencies)

    def settings(self, trial: Trial | FrozenTrial) -> dict[str, Any]:
        """Return the trial's settings as plain values, by dotted path; those not drawn yet are missing."""
        return {
            name: from_label(values, trial.params[name]) for name, values in self.space.items() if name in trial.params
        }

    def _reopen_trial_(self, trial: FrozenTrial) -> Trial:
        """Return a trial that an earlier process began; settings that it lacks are drawn by the same seed."""
        self._reseed_sampler_(trial.number, name="")
        return self._draw_settings_(Trial(self.study, trial._trial_id))  # noqa: SLF001  (optuna has no public name for it)

    def _reseed_sampler_(self, number: int, name: str) -> None:
        """Set a new sampler for the next draw, whose seed depends on the arguments and not on earlier draws.

        Args:
            number: number of the trial.
            name: name of the setting; empty for those that optuna draws together as the trial begins.
        """
        # CRC-32 and not `hash`, which differs from process to process.
        seed = zlib.crc32(f"{self.seed} {number} {name}".encode())
        self.study.sampler = LaggingSampler(seed, self.at_once)

    def _draw_settings_(self, trial: Trial) -> Trial:
        """Draw the settings that the trial lacks: all of them, unless a kill interrupted an earlier draw."""
        for name, values in self.space.items():
            self._reseed_sampler_(trial.number, name)
            suggest_value_(trial, name, values)
        return trial

    def values(self, trial: Trial) -> dict[int, float]:
        """Return the values of the trial in the database, by round."""
        return dict(self._frozen_trial(trial).intermediate_values)

    def judge_(self, trial: Trial, known_values: dict[int, float], round_: int, value: float) -> bool:
        """Save the value of a round, unless it is known; return whether the trial is behind and should end.

        Args:
            trial: a trial that trains.
            known_values: values by round, from `values`; the new value is added.
            round_: the round; a resumed run records some rounds again.
            value: NaN where the round has none.
        """
        if round_ not in known_values and isfinite(value):
            trial.report(value, round_)
            known_values[round_] = value
        return self.is_below_median(trial, known_values)

    def is_below_median(self, trial: Trial, known_values: Mapping[int, float]) -> bool:
        """Return whether the trial's values are below the median of earlier trials, so that it should end."""
        return bool(known_values) and trial.should_prune()  # by the study's `LaggingPruner`, which reads the database

    def finish_(self, trial: Trial) -> None:
        """Complete the trial with the value of its last round; without any value it has failed."""
        values = self._frozen_trial(trial).intermediate_values
        if values:
            last_round = max(values)
            self.study.tell(trial.number, values[last_round])
        else:
            self.fail_(trial, "the run has no finite number to be judged by")

    def prune_(self, trial: Trial) -> None:
        """End the trial before its last round; its value is that of its newest round."""
        self.study.tell(trial.number, state=PRUNED)

    def fail_(self, trial: Trial, reason: str) -> None:
        """Mark the trial as failed, with the reason."""
        # The reason first: after a kill between the two, the trial counts as interrupted and is resumed.
        trial.set_user_attr("reason", reason)
        self.study.tell(trial.number, state=FAILED)

    def lines(self) -> list[TrialLine]:
        """Return all trials, in their order."""
        return [self._trial_line(trial) for trial in self._trials()]

    def _trial_line(self, trial: FrozenTrial) -> TrialLine:
        """Return a trial's line, with its last value and round: None and 0 if no round has a value."""
        values = trial.intermediate_values
        return TrialLine(
            number=trial_number(trial),
            state=STATE_NAMES[trial.state],
            value=values[max(values)] if values else None,
            round=max(values, default=0),
            settings=self.settings(trial),
            reason=trial.user_attrs.get("reason", ""),
        )

    def _frozen_trial(self, trial: Trial) -> FrozenTrial:
        return self._trials()[trial.number]

    def _trials(self) -> Sequence[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)


class LaggingSampler(TPESampler):
    """Sampler of optuna that draws a trial's settings from the trials at least `lag` numbers before it."""

    def __init__(self, seed: int, lag: int) -> None:
        super().__init__(seed=seed)
        self._lag = lag

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the distributions of the settings that are drawn together; called by optuna."""
        return super().infer_relative_search_space(_with_earlier_trials(study, trial, self._lag), trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Draw the settings of a search space together; called by optuna."""
        return super().sample_relative(_with_earlier_trials(study, trial, self._lag), trial, search_space)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:  # noqa: ANN401  (as its parent)
        """Draw one setting that was not drawn together with others; called by optuna.

        Args:
            study: the study; trials less than `lag` numbers before `trial` are hidden from the draw.
            trial: the trial that gets the setting.
            param_name: name of the setting.
            param_distribution: the range that it is drawn from.
        """
        return super().sample_independent(
            _with_earlier_trials(study, trial, self._lag), trial, param_name, param_distribution
        )


class LaggingPruner(MedianPruner):
    """Pruner of optuna that compares a trial with the trials at least `lag` numbers before it."""

    def __init__(self, rounds: int, lag: int) -> None:
        super().__init__(n_startup_trials=STARTUP_TRIALS, n_warmup_steps=rounds // WARM_UP_DIVISOR)
        self._lag = lag

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Return whether the trial falls behind; called by optuna."""
        return super().prune(_with_earlier_trials(study, trial, self._lag), trial)


def _with_earlier_trials(study: optuna.Study, trial: FrozenTrial, lag: int) -> optuna.Study:
    """Return a view of the study that shows only the trials at least `lag` numbers before a trial."""
    return cast("optuna.Study", _EarlierTrials(study, trial.number - lag))


class _EarlierTrials:
    """A view of a study that hides the trials after the number `last`; all else is the study's."""

    def __init__(self, study: optuna.Study, last: int) -> None:
        self._study, self._last = study, last

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (whatever a study has)
        return getattr(self._study, name)

    def get_trials(self, *args: Any, **kwargs: Any) -> list[FrozenTrial]:  # noqa: ANN401  (as optuna's)
        """Return the trials up to the number `last`."""
        return [trial for trial in self._study.get_trials(*args, **kwargs) if trial.number <= self._last]

    def _get_trials(self, *args: Any, **kwargs: Any) -> list[FrozenTrial]:  # noqa: ANN401  (samplers call this method)
        trials = self._study._get_trials(*args, **kwargs)  # noqa: SLF001  (optuna has no public name for it)
        return [trial for trial in trials if trial.number <= self._last]


def open_study(path: Path, space: Space, *, seed: int, prune: bool, rounds: int, at_once: int | None = None) -> Study:
    """Return the study in a database; without a database, make one.

    Args:
        path: path of the database.
        space: settings that are searched.
        seed: seed of the sweep.
        prune: whether to end trials that fall behind.
        rounds: number of rounds of one trial.
        at_once: number of trials that will train at the same time; None for as many as the study was begun with, or 1.

    Raises:
        ConfigError: `path` is a link, or the study was begun with fewer trials at once.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if path.is_symlink():  # SQLite would follow it
        raise ConfigError(f"{path}: expected a folder, got a link. Give another folder with --run.")
    # NullPool closes a connection after each transaction; a pool would keep connections open until garbage collection.
    storage = RDBStorage(
        str(URL.create("sqlite", database=str(path.absolute()))), engine_kwargs={"poolclass": NullPool}
    )
    study = optuna.create_study(storage=storage, study_name=STUDY_NAME, direction="maximize", load_if_exists=True)
    # The lag: a trial follows from the trials at least so many numbers before it.
    lag = _fix_lag_(study, at_once)
    pruner = LaggingPruner(rounds, lag) if prune else NopPruner()
    # Loaded once more, with the pruner, which needs the lag that the study has stored.
    study = optuna.load_study(study_name=STUDY_NAME, storage=storage, pruner=pruner)
    return Study(study, space, seed, at_once=lag)


def _fix_lag_(study: optuna.Study, at_once: int | None) -> int:
    """Return the number of trials at once that the study was begun with; a new study gets `at_once`, or 1, for good.

    The settings of trials depend on it, so it cannot change.

    Raises:
        ConfigError: `at_once` is more than the study was begun with.
    """
    # A study that has trials and no number was begun by a version whose sweeps trained one trial at a time.
    lag: int | None = study.user_attrs.get("at_once", 1 if study.get_trials(deepcopy=False) else None)
    if lag is None:
        lag = at_once or 1
        study.set_user_attr("at_once", lag)
    if at_once is not None and at_once > lag:
        raise ConfigError(
            f"--at-once {at_once}: the sweep was begun with {lag} at once, and each trial's settings follow from the "
            f"trials {lag} before it. Give --at-once {lag} or fewer, or another folder for a new sweep."
        )
    return lag


def trial_number(trial: Trial | FrozenTrial) -> int:
    """Return the trial's number from 1; optuna counts from 0."""
    return trial.number + 1


def suggest_value_(trial: Trial, name: str, values: Range | Choices) -> None:
    """Draw a value of a setting for the trial, unless it has one."""
    # Optuna draws only a value that the trial lacks in the database.
    if isinstance(values, Choices):
        trial.suggest_categorical(name, [to_label(value) for value in values.values])
    elif values.whole:
        trial.suggest_int(name, int(values.low), int(values.high), log=values.log, step=int(values.step or 1))
    else:
        trial.suggest_float(name, values.low, values.high, log=values.log, step=values.step)


def to_label(value: object) -> CategoricalChoiceType:
    """Return a choice in a form that optuna can store: a list as JSON text."""
    return value if isinstance(value, bool | int | float | str) else json.dumps(value)


def from_label(values: Range | Choices, drawn_value: Any) -> Any:  # noqa: ANN401  (whatever TOML can hold)
    """Return the setting's value for a number or label that optuna drew."""
    if isinstance(values, Range):
        return drawn_value
    # Types are compared as well: True == 1, and both may be choices.
    return next(
        value
        for value in values.values
        if to_label(value) == drawn_value and type(to_label(value)) is type(drawn_value)
    )
