"""Schedules: factors on settings, such as the learning rate, that follow from the progress of a run.

    --learner.lr-schedule cosine --learner.clip-schedule mine:shrink

Progress is counted in whole rounds, or in updates where an algorithm replays transitions, so a resumed run goes on with
the same value.
"""

from collections.abc import Callable, Mapping
from math import cos, isfinite, pi

import torch

from flatwater.algorithms.adam import LearningRate
from flatwater.algorithms.config import AlgorithmConfig
from flatwater.algorithms.on_policy_config import OnPolicyConfig
from flatwater.config.convert import did_you_mean
from flatwater.named_imports import find_function
from flatwater.own_numbers import as_number
from flatwater_watch.errors import ConfigError
from flatwater_watch.sanitize import short_repr

Value = Callable[[float], float]
"""A function of progress, from 0 to 1."""

SHAPES: Mapping[str, Value] = {
    "constant": lambda _: 1.0,
    "linear": lambda progress: 1 - progress,
    "cosine": lambda progress: (1 + cos(pi * progress)) / 2,
}


def scheduled_values(config: OnPolicyConfig) -> dict[str, Value]:
    """Return the settings that have a schedule, by name: each as a function of progress, 0 to 1, that gives its value.

    Raises:
        ConfigError: no schedule has the name, or the user's function cannot be imported.
    """
    values = dict[str, Value]()
    for setting, schedule_field in config.scheduled.items():  # such as `clip` and `clip_schedule`
        name = getattr(config, schedule_field)
        if name != "constant":
            factor = find_schedule(name, f"learner.{schedule_field}")
            values[setting] = _scale(getattr(config.own, setting), factor)
    return values


def _scale(base: float, factor: Value) -> Value:
    """Return the function progress -> `base` * factor(progress)."""
    return lambda progress: base * factor(progress)


def find_schedule(name: str, field: str) -> Value:
    """Return the schedule of a name: a function from progress to a factor.

    Args:
        name: one of `SHAPES`, or package.module:function of the user's.
        field: the setting, for messages.

    Raises:
        ConfigError: there is no such schedule.
    """
    if name in SHAPES:
        return SHAPES[name]
    takes = "progress, from 0 to 1, and gives a factor"
    if ":" not in name:
        expected = f"{', '.join(SHAPES)}, or package.module:function of a function that takes {takes}"
        raise ConfigError(f"{field} = {short_repr(name)}: expected {expected}.{did_you_mean(name, list(SHAPES))}")
    function = find_function(name, field=field, takes=takes)

    def factor(progress: float) -> float:
        """Return the factor that the user's function gives for a progress.

        Raises:
            ConfigError: the function returned anything but a finite factor of 0 or more.
        """
        result = function(progress)
        number = as_number(result)
        if number is None or not isfinite(number) or number < 0:
            place = f"{field} = {short_repr(name)}, at {progress:g} of the run"
            raise ConfigError(f"{place}: expected a factor of 0 or more, got {short_repr(result)}")
        return number

    return factor


class ScheduledSettings:
    """The present values of a run's scheduled settings, as an update reads them."""

    def __init__(self, config: OnPolicyConfig, progress: Callable[[], float], device: torch.device) -> None:
        """Allocate a 0-d tensor for each scheduled weight, because a number would become a constant of compiled code.

        Args:
            config: settings, with their schedules.
            progress: returns the progress of the schedules, from 0 to 1.
            device: device of the weights.
        """
        self._config, self._progress, self._values = config, progress, scheduled_values(config)
        self.weights = {name: torch.full((), 0.0, device=device) for name in self._values if name != "lr"}
        """Scheduled weights in the loss, by the names of their settings."""

    def rate(self, updates: int) -> float:
        """Return the learning rate after a number of updates."""
        value = self._values.get("lr")
        return self._config.learning_rate(updates) if value is None else value(self._progress())

    def update_weights_(self) -> None:
        """Write the present values into `weights`."""
        for name, weight in self.weights.items():
            weight.fill_(self._values[name](self._progress()))


def scheduled_weights(config: OnPolicyConfig, round_: int) -> dict[str, float]:
    """Return the values of the loss's scheduled settings in a round, counted from 0, by the settings' names."""
    progress = config.progress(round_)
    return {name: value(progress) for name, value in scheduled_values(config).items() if name != "lr"}


def scheduled_numbers(config: OnPolicyConfig, round_: int) -> dict[str, float]:
    """Return the scheduled settings' values in a round, counted from 0, by the names of metrics."""
    progress = config.progress(round_)
    return {f"train/{name}": value(progress) for name, value in scheduled_values(config).items()}


def lr_factor(config: AlgorithmConfig) -> Callable[[int], float] | None:
    """Return a function from a number of updates to the factor on all learning rates; None if rates are constant.

    Raises:
        ConfigError: there is no such schedule.
    """
    name, schedule_updates = config.lr_course
    if name == "constant":
        return None
    schedule = find_schedule(name, "learner.lr_schedule")

    def factor(updates: int) -> float:
        """Return the factor after a number of updates."""
        # 0 `schedule_updates`: the settings were not prepared for a run, so the schedule stands at its beginning.
        progress = min(1.0, updates / schedule_updates) if schedule_updates else 0.0
        return schedule(progress)

    return factor


def scheduled_rate(config: AlgorithmConfig, lr: float, updates: Callable[[], int]) -> LearningRate:
    """Return the learning rate as `bind_step` takes it: `lr`, or a function that gives the present scheduled rate.

    Args:
        config: settings of the algorithm.
        lr: initial learning rate.
        updates: returns the number of updates so far.
    """
    factor = lr_factor(config)
    return lr if factor is None else lambda: lr * factor(updates())
