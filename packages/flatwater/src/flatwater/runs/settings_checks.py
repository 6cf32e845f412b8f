"""A run's settings before anything is allocated: changes, and checks by the machine, the mirror and the callbacks."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from flatwater.algorithms.compilation import require_compiler
from flatwater.algorithms.config import AlgorithmConfig
from flatwater.algorithms.on_policy_config import OnPolicyConfig
from flatwater.config.mappings import with_settings
from flatwater.envs.open_envs import close_open_envs
from flatwater.memory.planner import Plan
from flatwater.mirror.opening import list_mirrored_names
from flatwater.recipe import recipe_of_config
from flatwater.runs.callbacks import NO_CALLBACKS, Callbacks, find_callbacks
from flatwater.runs.config import WorkersRunConfig, drop_total_steps
from flatwater.runs.machine import find_device
from flatwater.runs.trackers import check_trackers
from flatwater.storage.objects import is_url
from flatwater_watch.errors import ConfigError
from flatwater_watch.events.command import check_command
from flatwater_watch.files.directory import expand_home


@dataclass(frozen=True)
class CheckedConfig:
    """The configuration of a run, checked on this machine, with what the check found."""

    config: Any
    """Settings of the run, a RunConfig of any kind, as they are saved in its folder."""
    taken_names: frozenset[str]
    """Names of other runs that are mirrored at the same URL."""
    callbacks: Callbacks


def check_machine(config: Any, *, trains: bool = True) -> None:  # noqa: ANN401  (a RunConfig of any kind)
    """Refuse settings that need a program which this machine lacks: a tracker, the command for events, a compiler.

    Args:
        config: the settings.
        trains: whether a run will train here; nothing else needs the compiler.
    """
    check_trackers(config)
    check_command(config.on_event)
    values = [getattr(config, setting.name) for setting in fields(config)]
    compiles = any(isinstance(value, OnPolicyConfig | AlgorithmConfig) and value.compile for value in values)
    # The machines of a cluster have compilers of their own, and a GPU's code is not C++.
    is_elsewhere = isinstance(config, WorkersRunConfig) and config.cluster
    if trains and compiles and not is_elsewhere and find_device(config.device).type == "cpu":
        require_compiler()


def check_settings(config: Any, functions: Callbacks = NO_CALLBACKS, *, trains: bool = True) -> CheckedConfig:  # noqa: ANN401  (a RunConfig of any kind)
    """Check the settings against this machine, the mirror and the user's functions; data and memory are checked later.

    Args:
        config: the settings.
        functions: functions that the user gives in Python.
        trains: whether a run will train here, rather than only be planned.
    """
    check_machine(config, trains=trains)
    callbacks = find_callbacks(config, functions)
    # An absolute path, as a resume may start in another folder.
    if config.from_run is not None and not is_url(config.from_run):
        config = replace(config, from_run=str(expand_home(config.from_run).absolute()))
    prepared_config = recipe_of_config(config).prepare(config)
    return CheckedConfig(config=prepared_config, taken_names=list_mirrored_names(config.mirror), callbacks=callbacks)


@close_open_envs()
def check_and_plan(config: Any, *, trains: bool = True) -> tuple[CheckedConfig, Plan]:  # noqa: ANN401  (a RunConfig of any kind)
    """Return the checked settings, and the plan of a run with them; nothing is allocated.

    Args:
        config: the settings.
        trains: whether the run will train here.
    """
    checked_settings = check_settings(config, trains=trains)
    return checked_settings, recipe_of_config(config).plan(checked_settings.config)


def with_changes(config: Any, changes: Mapping[str, Any]) -> Any:  # noqa: ANN401  (a RunConfig of any recipe)
    """Return the configuration with new values of settings; None leaves a setting, a mapping changes parts of a table.

    Raises:
        ConfigError: runs of this recipe have no such setting.
    """
    # A path is stored as text.
    new_settings = {
        name: str(value) if isinstance(value, Path) else value for name, value in changes.items() if value is not None
    }
    setting_names = {field.name for field in fields(config)}
    unknown_names = [name for name in new_settings if name not in setting_names]
    if unknown_names:
        first_name = unknown_names[0]
        reason = config.absent.get(first_name, f"`flatwater train {config.trainer}` has no such setting")
        raise ConfigError(f"--{first_name.replace('_', '-')}: {reason}")
    tables = {
        name: with_settings(getattr(config, name), values, name)
        for name, values in new_settings.items()
        if isinstance(values, Mapping)
    }
    # Without `total_steps` if `rounds` changes, as the steps would set the rounds again.
    return replace(drop_total_steps(config, new_settings), **new_settings | tables)
