"""A check that a sweep or a study goes on with the settings that it began with, except those that change no number."""

from pathlib import Path
from typing import Any

from flatwater.config.mappings import flat_settings, to_mapping
from flatwater.runs.config import RunConfig
from flatwater_watch.errors import ConfigError


def refuse_other_settings(saved_config: RunConfig, given_config: RunConfig, folder: Path, kind: str) -> None:
    """Refuse to go on with a sweep or a study under other settings than its own.

    Args:
        saved_config: settings that the sweep or study began with.
        given_config: settings that the user gives.
        folder: folder of the sweep or study, for messages.
        kind: `sweep` or `study`, for messages.

    Raises:
        ConfigError: a setting differs that may not.
    """
    if differences := setting_differences(saved_config, given_config, f"the {kind}"):
        lines = "\n".join(f"  {line}" for line in differences)
        raise ConfigError(
            f"{folder}: the {kind} was begun with other settings.\n{lines}\n"
            f"Leave these options out to continue the {kind}, or give another folder for a new {kind}."
        )


def setting_differences(saved_config: RunConfig, given_config: RunConfig, where: str) -> list[str]:
    """Return a line for each setting that has changed, though it must not: `seed: 0 in the sweep, 1 now`."""
    old_settings, new_settings = _fixed_settings(saved_config), _fixed_settings(given_config)
    return [
        f"{name}: {old_settings[name]!r} in {where}, {new_settings[name]!r} now"
        for name in old_settings
        if old_settings[name] != new_settings[name]
    ]


def _fixed_settings(config: RunConfig) -> dict[str, Any]:
    """Return the settings, by dotted path, that must stay the same in a sweep: those that change a trial's numbers."""
    # A run may change its rounds, a sweep may not: trials are compared at the same number of rounds.
    may_change = config.changeable_settings - {"rounds"}
    return {
        name: value
        for name, value in flat_settings(to_mapping(config)).items()
        if name.partition(".")[0] not in may_change
    }
