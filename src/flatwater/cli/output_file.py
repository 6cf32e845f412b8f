"""A file that the user named for output: looked at before the work begins, written whole, and never lost.

A result may have taken days. Where its place can no longer be written when it is there, it goes to the `.flatwater`
folder of the working folder, or to the temporary folder, and the command says so.
"""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from flatwater.errors import ConfigError, RunError
from flatwater.regular import irregular

KEPT = Path(".flatwater")
"""What is kept below the working folder."""


@dataclass(frozen=True)
class Written:
    """Where a result is now."""

    path: Path
    reason: str = ""
    """Why it is not where the user wanted it."""

    def __str__(self) -> str:
        return f"{self.path} ({self.reason})" if self.reason else str(self.path)


def check_output(option: str, path: Path, suffix: str = "") -> None:
    """Find out before the work begins that a file can be written there.

    Raises:
        ConfigError: it is no regular file, cannot be replaced, its folder is not there, or its name ends otherwise.
    """
    if suffix and path.suffix != suffix:
        raise ConfigError(f"{option} {path}: the name must end in {suffix}. Name such a file.")
    try:
        place = path.resolve()
        kind = irregular(place.stat().st_mode) if place.exists() else ""
    except (OSError, RuntimeError, ValueError) as fault:  # too long a name, links in a circle, a NUL character
        raise ConfigError(
            f"{option} {path}: no file can be written there: {_reason(fault)}. Name another one."
        ) from fault
    if kind:
        raise ConfigError(f"{option} {path}: no file can be written there: it is {kind}. Name a file.")
    if not place.parent.is_dir():
        raise ConfigError(
            f"{option} {path}: no file can be written there: there is no folder {place.parent}. Name another."
        )
    if not os.access(place.parent, os.W_OK | os.X_OK) or (place.exists() and not os.access(place, os.W_OK)):
        raise ConfigError(
            f"{option} {path}: no file can be written there: you may not. Name a file in a folder of yours."
        )


def write_output(path: Path, content: bytes) -> Written:
    """Write a result whole to the file that was named for it, or to the nearest place that takes it.

    Raises:
        RunError: no place takes it.
    """
    from flatwater.storage.directory import write_object

    reason = ""
    for place in (
        path.resolve(),
        KEPT / path.name,
        Path(tempfile.gettempdir(), f"flatwater-{os.getpid()}-{path.name}"),
    ):
        try:
            write_object(place, content)
        except RunError as fault:
            reason = reason or f"{path} cannot be written: {_reason(fault.__cause__ or fault)}"
        else:
            return Written(path if not reason else place, reason)
    raise RunError(f"{reason}. No other place takes it either.")


def _reason(fault: BaseException) -> str:
    return (fault.strerror if isinstance(fault, OSError) else None) or str(fault)
