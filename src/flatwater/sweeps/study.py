"""The study of a sweep: which settings the next trial has, whether a trial is worth going on with, and what came of it.

Everything that it knows is in the database of the sweep's folder. What a setting is drawn from is seeded by its name
and the trial's number, so the trial after an interruption has the settings that it would have had without one.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.distributions import CategoricalChoiceType
from optuna.pruners import BasePruner, MedianPruner, NopPruner
from optuna.samplers import TPESampler
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy import URL

from flatwater.sweeps.space import Choices, Range, Space

NAME = "sweep"
TRIALS = 20
"""Of a sweep that is not told how many."""
STARTUP_TRIALS = 4
"""Trials that must have finished before one is pruned: a median of fewer says little."""
WARM_UP = 4
"""A trial can be pruned when it has done one in so many of its rounds."""
FINISHED, PRUNED, FAILED, RUNNING = TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL, TrialState.RUNNING

State = Literal["finished", "pruned", "failed", "interrupted"]
STATES: Mapping[TrialState, State] = {
    FINISHED: "finished",
    PRUNED: "pruned",
    FAILED: "failed",
    RUNNING: "interrupted",
}


@dataclass(frozen=True, kw_only=True)
class TrialLine:
    """One trial, as the result shows it."""

    number: int
    """From 1, as in the name of its folder."""
    state: State
    value: float | None
    """What it is judged by, in the last round that has it; None where there is none."""
    round: int
    """The last round that was judged; 0 where there is none."""
    settings: Mapping[str, Any]
    """By dotted path."""
    reason: str
    """Why it failed; empty otherwise."""

    def to_json(self) -> dict[str, Any]:
        """As in sweep.json."""
        return asdict(self)


@dataclass(frozen=True)
class Study:
    """An open study, and the space that it searches."""

    study: optuna.Study
    space: Space
    seed: int

    def wanted_(self, trials: int | None) -> int:
        """How many trials are wanted in all; kept, so that a sweep goes on without being told again."""
        known: int = self.study.user_attrs.get("wanted", TRIALS)
        if trials is not None and trials != known:
            self.study.set_user_attr("wanted", trials)
        return known if trials is None else trials

    def next_(self) -> Trial:
        """A new trial, with settings of its own."""
        return self._drawn_(self.study.ask())

    def interrupted_(self) -> Trial | None:
        """The trial that was at work when the sweep was stopped or killed; None where there was none."""
        running = [trial for trial in self._trials() if trial.state == RUNNING]
        # Optuna names the id that a trial is opened by nowhere else.
        return self._drawn_(Trial(self.study, running[0]._trial_id)) if running else None  # noqa: SLF001

    def settings(self, trial: Trial | FrozenTrial) -> dict[str, Any]:
        """The trial's settings as plain values, by dotted path."""
        return {name: plain(values, trial.params[name]) for name, values in self.space.items() if name in trial.params}

    def _drawn_(self, trial: Trial) -> Trial:
        """Draw the settings that the trial does not have yet: all, or those after a kill in the midst of this."""
        for name, values in self.space.items():
            # Never kept: what it draws follows from its seed and from the trials before.
            self.study.sampler = TPESampler(seed=zlib.crc32(f"{self.seed} {trial.number} {name}".encode()))
            draw_(trial, name, values)
        return trial

    def values(self, trial: Trial) -> dict[int, float]:
        """What is known of the trial: the value of each round."""
        return dict(self._frozen(trial).intermediate_values)

    def judge_(self, trial: Trial, known: dict[int, float], round_: int, value: float) -> bool:
        """Keep the value of a round, once.

        Args:
            trial: at work.
            known: from `values`; the round is put into it.
            round_: the round.
            value: NaN where the round has none.

        Returns:
            Whether the trial is not worth going on with.
        """
        if round_ not in known and isfinite(value):
            trial.report(value, round_)
            known[round_] = value
        return self.behind(trial, known)

    def behind(self, trial: Trial, known: Mapping[int, float]) -> bool:
        """Whether the rounds that are known show that the trial is not worth going on with."""
        return bool(known) and trial.should_prune()

    def finish_(self, trial: Trial) -> None:
        """The trial is complete: its value is that of its last round."""
        values = self._frozen(trial).intermediate_values
        if values:
            self.study.tell(trial.number, values[max(values)])
        else:
            self.fail_(trial, "it has no finite number of what it is judged by")

    def prune_(self, trial: Trial) -> None:
        """The trial was stopped before its end; its value is that of its last round."""
        self.study.tell(trial.number, state=PRUNED)

    def fail_(self, trial: Trial, reason: str) -> None:
        """The trial has no value, and why."""
        trial.set_user_attr("reason", reason)
        self.study.tell(trial.number, state=FAILED)

    def lines(self) -> list[TrialLine]:
        """All trials, in their order."""
        return [self._line(trial) for trial in self._trials()]

    def _line(self, trial: FrozenTrial) -> TrialLine:
        values = trial.intermediate_values
        return TrialLine(
            number=number_of(trial),
            state=STATES[trial.state],
            value=values[max(values)] if values else None,
            round=max(values, default=0),
            settings=self.settings(trial),
            reason=trial.user_attrs.get("reason", ""),
        )

    def _frozen(self, trial: Trial) -> FrozenTrial:
        return self._trials()[trial.number]

    def _trials(self) -> Sequence[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)


def open_study(path: Path, space: Space, *, seed: int, prune: bool, rounds: int) -> Study:
    """The study in this database, new or as it was left.

    Args:
        path: of the database.
        space: what is searched.
        seed: of the sweep.
        prune: whether to end trials that fall behind.
        rounds: of one trial.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    pruner: BasePruner = NopPruner()
    if prune:
        pruner = MedianPruner(n_startup_trials=STARTUP_TRIALS, n_warmup_steps=rounds // WARM_UP)
    storage = RDBStorage(str(URL.create("sqlite", database=str(path.absolute()))))
    study = optuna.create_study(
        storage=storage, study_name=NAME, direction="maximize", load_if_exists=True, pruner=pruner
    )
    return Study(study, space, seed)


def number_of(trial: Trial | FrozenTrial) -> int:
    """From 1; optuna counts from 0."""
    return trial.number + 1


def draw_(trial: Trial, name: str, values: Range | Choices) -> None:
    """Give the trial a value of this setting, unless it has one."""
    if isinstance(values, Choices):
        trial.suggest_categorical(name, [label(value) for value in values.values])
    elif values.whole:
        trial.suggest_int(name, int(values.low), int(values.high), log=values.log, step=int(values.step or 1))
    else:
        trial.suggest_float(name, values.low, values.high, log=values.log, step=values.step)


def label(value: object) -> CategoricalChoiceType:
    """A choice as optuna can keep it: a list as text."""
    return value if isinstance(value, bool | int | float | str) else json.dumps(value)


def plain(values: Range | Choices, drawn: Any) -> Any:  # noqa: ANN401  (whatever TOML can hold)
    """The value that optuna's stands for."""
    if isinstance(values, Range):
        return drawn
    return next(value for value in values.values if label(value) == drawn and type(label(value)) is type(drawn))
