"""`flatwater train RECIPE`."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from flatwater.cli.settings import OverRecipe
from flatwater.cli.shown import ShownRun


@dataclass(frozen=True, kw_only=True)
class NewRun(OverRecipe):
    """Where a run is, and what it begins with; these options come first in the help."""

    run: Path | None = None
    """Folder for the run; must be new or empty. Left out: runs/RECIPE-DATE-NUMBER."""
    config: Path | None = None
    """TOML file with settings. Options on the command line win over it."""


@dataclass(frozen=True, kw_only=True)
class Train(ShownRun, NewRun):
    """What training by any recipe is given besides its settings."""

    about: ClassVar[str] = "{guide}"
    help_more: ClassVar[str] = """
        Every setting below can also stand in a TOML file (--config); the run folder's config.toml is such a file, and
        repeats the run exactly. Ctrl-C finishes the step and saves; `flatwater resume RUN` goes on bit for bit.
        `flatwater plan` with the same options tells what the run would hold, and starts nothing.
        """

    def __call__(self) -> int:
        """Train, then show the result."""
        from flatwater.cli.outcome import show_outcome
        from flatwater.runs.session import start

        return show_outcome(lambda console, **told: start(self.settings(), self.run, console, **told), self)
