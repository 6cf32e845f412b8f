"""`origin.json`: the parent of a forked run, the round, and the changed settings; other runs have no such file."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from flatwater.rundir.layout import RunFolder
from flatwater_watch.errors import RunError
from flatwater_watch.files.directory import write_object
from flatwater_watch.files.json_values import convert_to_type, parse_json
from flatwater_watch.files.regular_files import read_regular
from flatwater_watch.sanitize import escape_controls

MAXIMUM_BYTES = 1 << 18
"""Most bytes that are read of the file."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The record of how a fork began, from the state of its parent."""

    parent: str
    """Folder of the parent."""
    round: int
    """Number of rounds that the parent had completed."""
    changed: dict[str, tuple[Any, Any]]
    """Settings that differ, by dotted name: the parent's value and the fork's, as plain values."""

    def __str__(self) -> str:
        """Return the parent, the round and the changed settings, as a phrase."""
        changes = (
            f"{name} {_short_text(before)} -> {_short_text(now)}" for name, (before, now) in self.changed.items()
        )
        return f"forked from {self.parent} after round {self.round}: {', '.join(changes) or 'no setting changed'}"


def _short_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def changed_settings(old_settings: Mapping[str, Any], new_settings: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the old and the new value of each setting that differs, by name; None stands for a missing value."""
    return {
        name: (old_settings.get(name), new_settings.get(name))
        for name in {**old_settings, **new_settings}
        if old_settings.get(name) != new_settings.get(name)
    }


def write_origin(folder: RunFolder, origin: Origin) -> None:
    """Write the record of how a fork began into its folder.

    Raises:
        RunError: the disk is full or the folder read-only.
    """
    write_object(folder.origin, json.dumps(asdict(origin), indent=1).encode() + b"\n")


def read_origin(folder: RunFolder) -> Origin | None:
    """Return the record of how a fork began; None if the run is not a fork.

    Raises:
        RunError: the file is damaged.
    """
    try:
        origin = convert_to_type(parse_json(read_regular(folder.origin, MAXIMUM_BYTES, follow_links=False)), Origin)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        place = folder.with_current_name.origin
        raise RunError(f"{place}: is damaged: {error}. Restore the file, or remove it.") from error
    return origin


def rounds_before_fork(folder: RunFolder) -> int:
    """Return the number of rounds before the run's own first round: those of a fork's parent, or 0."""
    origin = read_origin(folder)
    return 0 if origin is None else origin.round


def origin_text(folder: RunFolder, settings: Mapping[str, Any]) -> str:
    """Return a phrase on the run that this run began from, for lists and pages; empty if it began from none.

    A run takes another run's weights (`from_run`), or as a fork its whole state.
    """
    if settings.get("from_run") is not None:
        return escape_controls(f"began with the weights of {settings['from_run']}")
    try:
        origin = read_origin(folder)
    except RunError:
        return f"{folder.origin.name} cannot be read"
    return "" if origin is None else escape_controls(str(origin))
