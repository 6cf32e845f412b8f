"""`flatwater resume`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from flatwater.config.bounds import Number
from flatwater.metrics.config import Tracker


@dataclass(frozen=True, kw_only=True)
class Resume:
    """Go on with a run from its newest intact checkpoint, bit for bit.

    A checkpoint that was damaged or half-written is recognised by its hash, and the one before it is used. A run that
    has reached its rounds is only scored again, unless --rounds asks for more.
    """

    run: Annotated[str, tyro.conf.Positional]
    """The run's folder, or the URL at which it is mirrored: s3://bucket/path/NAME."""
    into: Path | None = None
    """Folder for a run that is brought from a URL; must be new or empty. Left out: runs/NAME."""
    rounds: Number | None = None
    """Rounds (generations, batches) in all. Left out: as many as the run was started with."""
    budget: str | None = None
    """Memory that the run may take from here on, such as 8GiB. Left out: as it was started."""
    mirror: str | None = None
    """Send checkpoints there from here on. Left out: as it was started, or to the URL that it comes from."""
    trackers: Annotated[tuple[Tracker, ...] | None, tyro.conf.arg(metavar="{tensorboard,wandb} ...")] = None
    """Where the numbers are shown from here on. Left out: as it was started."""
    panel: str | None = None
    """Where the panel lies now; it must have the same content. Left out: where it was."""

    def __call__(self) -> int:
        """Train on, then show the result."""
        from flatwater.cli.outcome import show_outcome
        from flatwater.runs.session import resume

        changes = {name: getattr(self, name) for name in ("rounds", "budget", "mirror", "trackers", "panel")}
        return show_outcome(lambda console: resume(self.run, console, into=self.into, **changes))
