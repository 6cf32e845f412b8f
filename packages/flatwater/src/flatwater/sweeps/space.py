"""The space of a sweep: the settings that are searched, and their values.

A TOML file with a table for each setting, by its dotted path:

    [learner.weight_decay]
    low = 1e-5
    high = 1e-2
    log = true

    [net.hidden]
    choices = [64, 128, 256]
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from math import isfinite
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

from flatwater.config.convert import did_you_mean, from_plain
from flatwater.config.mappings import flat_settings, to_mapping, with_settings
from flatwater.config.toml import read_toml
from flatwater.runs.config import PresetSettings, RunConfig
from flatwater_watch.errors import ConfigError

TRIAL_SOURCE = "the settings of this trial"
"""Source of a trial's settings, for messages."""
RANGE_KEYS = ("low", "high", "log", "step", "choices")
SHARED_SETTINGS = frozenset({"trainer", *(f.name for kind in (RunConfig, PresetSettings) for f in fields(kind))})
"""Settings that are the same for all trials: those of the machine, and the rounds by which trials are compared."""
WHOLE_TOLERANCE = 1e-9
"""Tolerance of a range of fractions: how near to a whole number of steps it must be."""


@dataclass(frozen=True, kw_only=True)
class Range:
    """All numbers from `low` to `high`, both included."""

    low: float
    high: float
    log: bool = False
    """Whether the logarithm is drawn evenly, so that every decade is as likely."""
    step: float | None = None
    """Distance between values `low`, `low + step`, ... `high`; None takes every number, or every whole number."""
    whole: bool
    """Whether only whole numbers are drawn."""

    @property
    def trial_values(self) -> Mapping[str, object]:
        """Both ends of the range, by their key in the file: values to check the setting with."""
        return {"low": self.low, "high": self.high}


@dataclass(frozen=True)
class Choices:
    """A list of values, without an order."""

    values: tuple[Any, ...]
    """Plain values, as TOML has them."""

    @property
    def trial_values(self) -> Mapping[str, object]:
        """All values, by their place in the file: values to check the setting with."""
        return {f"choices[{index}]": value for index, value in enumerate(self.values)}


Space = Mapping[str, Range | Choices]
"""Values of each setting by its dotted path."""


def read_space(path: Path, base: object) -> Space:
    """Return the space in a file, checked against the configuration that it varies.

    Raises:
        ConfigError: the file cannot be read, or a table does not fit; the message names the setting.
    """
    tables = read_toml(path)
    try:
        return _check_space(tables, base)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def require_evaluation(config: RunConfig, space: Space) -> None:
    """Refuse a number of rounds in which no trial is evaluated, as trials are judged by evaluations.

    Raises:
        ConfigError: the first evaluation comes after the last round.
    """
    if config.rounds < config.first_measured and "evaluation.every" not in space:
        raise ConfigError(
            f"rounds = {config.rounds}: a trial would have no value, as the first evaluation comes after round "
            f"{config.first_measured}. Give --rounds {config.first_measured} or more, or a smaller --evaluation.every."
        )


def _check_space(tables: Mapping[str, Any], base: object) -> Space:
    """Return the space of a file's tables, after a check that each setting has a value that fits `base`.

    Raises:
        ConfigError: the file has no tables, or a table does not fit.
    """
    space = dict(_searched_settings(tables, base, table_path=""))
    if not space:
        raise ConfigError("expected one or more tables, such as [net.hidden] with low and high.")
    for name, values in space.items():
        _require_fitting_value(base, name, values)
    return space


def _searched_settings(
    tables: Mapping[str, Any], config: object, table_path: str
) -> Iterator[tuple[str, Range | Choices]]:
    """Yield the dotted path and the values of each searched setting, down into inner configurations.

    Args:
        tables: tables of the file by setting, or those within a configuration's table.
        config: the configuration that has these settings.
        table_path: dotted path of the configuration; empty at the top.

    Raises:
        ConfigError: a setting is unknown, the same for all trials, or not a table.
    """
    assert is_dataclass(config)  # noqa: S101  (for the type checker)
    hints = get_type_hints(type(config))
    field_names = [f.name for f in fields(config)]
    for name, table in tables.items():
        path = f"{table_path}.{name}" if table_path else name
        if name not in field_names:
            hint = did_you_mean(name, field_names) or _deeper_hint(name, config, table_path)
            hint = hint or f" Expected one of {', '.join(field_names)}."
            raise ConfigError(f"[{path}]: no setting has this name.{hint}")
        if path in SHARED_SETTINGS:
            raise ConfigError(
                f"[{path}]: this setting is the same for all trials. Give it as an option, or in the file of --config."
            )
        if not isinstance(table, Mapping):
            raise ConfigError(f"{path} = {table!r}: expected a table [{path}] with low and high, or with choices")
        setting = getattr(config, name)
        if is_dataclass(setting):
            yield from _searched_settings(table, setting, path)
        else:
            yield path, _parse_values(table, hints[name], path)


def _deeper_hint(name: str, config: object, table_path: str) -> str:
    """Return a hint that names the tables which have a setting `name`, further inside; empty if none has."""
    settings = flat_settings(to_mapping(config), table_path)
    tables = [f"[{path}]" for path in settings if path.rpartition(".")[2] == name]
    return f" Expected {' or '.join(tables)}." if tables else ""


def _parse_values(table: Mapping[str, Any], declared_type: object, path: str) -> Range | Choices:
    """Return the range or the choices of a setting's table, after a check that they fit its declared type.

    Raises:
        ConfigError: a key is unknown, choices are mixed with a range, none or given twice, or a value does not fit.
    """
    for key in table:
        if key not in RANGE_KEYS:
            raise ConfigError(
                f"[{path}] {key}: no such key: expected {', '.join(RANGE_KEYS)}.{did_you_mean(key, [*RANGE_KEYS])}"
            )
    if "choices" not in table:
        return _parse_range(table, declared_type, path)
    other_keys = [key for key in table if key != "choices"]
    if other_keys:
        raise ConfigError(f"[{path}] {other_keys[0]}: cannot be combined with choices. Keep one of the two.")
    choices = table["choices"]
    if not isinstance(choices, list) or not choices:
        raise ConfigError(f"[{path}] choices = {choices!r}: expected a list of one or more values")
    for index, value in enumerate(choices):
        # Refuses a value that does not fit the setting's type; a table never fits.
        from_plain(declared_type, value, f"[{path}] choices[{index}]", _refuse_table)
        if value in choices[:index]:
            raise ConfigError(f"[{path}] choices[{index}] = {value!r}: is given twice")
    return Choices(tuple(choices))


def _parse_range(table: Mapping[str, Any], declared_type: object, path: str) -> Range:
    """Return the range of a setting's table, after a check that its ends and its step fit each other.

    Raises:
        ConfigError: low or high is missing, or the ends or the step do not fit.
    """
    # `int | None` is searched as an int.
    alternatives = get_args(declared_type) or (declared_type,)
    kind = next((kind for kind in alternatives if kind is not NoneType), None)
    if kind not in (int, float):
        raise ConfigError(f"[{path}]: low and high need a number. Give choices = [...].")
    numbers = {key: _parse_number(table, key, kind, path) for key in ("low", "high", "step") if key in table}
    for key in ("low", "high"):
        if key not in numbers:
            raise ConfigError(f"[{path}] {key}: is missing. Give low and high, or choices = [...].")
    low = numbers["low"]
    high = numbers["high"]
    log = table.get("log", False)
    step = numbers.get("step")
    _require_range(low < high, path, "high", high, f"more than low ({low})")
    _require_range(isinstance(log, bool), path, "log", log, "true or false")
    _require_range(not log or low > 0, path, "low", low, "more than 0 where log = true")
    if step is not None:
        _require_range(not log, path, "step", step, "none where log = true")
        _require_range(step > 0, path, "step", step, "more than 0")
        # The steps must reach `high`; fractions such as 0.1 are not exact, so a tolerance decides.
        steps = (high - low) / step
        _require_range(
            abs(steps - round(steps)) < WHOLE_TOLERANCE,
            path,
            "high",
            high,
            f"low ({low}) plus a whole number of steps ({step})",
        )
    return Range(low=low, high=high, log=log, step=step, whole=kind is int)


def _parse_number(table: Mapping[str, Any], key: str, kind: type, path: str) -> float:
    """Return a number of a range as an int or a float, the setting's type.

    Args:
        table: the range's table.
        key: name of the number in it.
        kind: int or float, the setting's type.
        path: name of the setting, for messages.

    Raises:
        ConfigError: the number is not of this kind, or not finite.
    """
    value = table[key]
    # Refuses a value of another type, such as 0.5 for an int.
    from_plain(kind, value, f"[{path}] {key}", _refuse_table)
    _require_range(isfinite(value), path, key, value, "finite")
    number: float = kind(value)
    return number


def _require_range(condition: bool, path: str, key: str, value: object, expected: str) -> None:  # noqa: FBT001  (as `require`)
    """Refuse a number of a range unless `condition`; the message is `[path] key = value: expected ...`.

    Raises:
        ConfigError: `condition` is False.
    """
    if not condition:
        raise ConfigError(f"[{path}] {key} = {value!r}: expected {expected}")


def _refuse_table(declared_type: type[Any], _given: Mapping[str, Any], path: str) -> object:
    """Refuse a table in the place of a number.

    Raises:
        TypeError: always.
    """
    raise TypeError(f"{path}: {declared_type} is a configuration, not a value")


def _require_fitting_value(base: object, path: str, values: Range | Choices) -> None:
    """Refuse a setting if none of its values fits `base`; one is enough, as others may fit with other settings.

    Raises:
        ConfigError: no value of the setting fits; the message is that of a value.
    """
    reasons = dict[str, str]()
    for key, value in values.trial_values.items():
        try:
            with_settings(base, {path: value}, TRIAL_SOURCE)
        except ConfigError as error:
            reasons[key] = str(error).removeprefix(f"{TRIAL_SOURCE}: ")
    if len(reasons) == len(values.trial_values):  # no value fits
        key, reason = next(iter(reasons.items()))
        raise ConfigError(f"[{path}] {key}: {reason}")
