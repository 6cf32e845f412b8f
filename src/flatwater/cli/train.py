"""`flatwater train erl`, `flatwater train grow` and `flatwater train teach`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from flatwater.cli.settings import OverFile
from flatwater.runs.erl.config import ErlRunConfig
from flatwater.runs.grow.config import GrowRunConfig
from flatwater.runs.teach.config import TeachRunConfig


@dataclass(frozen=True, kw_only=True)
class Train(OverFile):
    """What training of all kinds is given besides the run's settings."""

    run: Path | None = None
    """Folder for the run; must be new or empty. Left out: runs/KIND-DATE-NUMBER."""
    config: Path | None = None
    """TOML file with settings. Options on the command line win over it."""

    def __call__(self) -> int:
        """Train, then show the result."""
        from flatwater.cli.outcome import show_outcome
        from flatwater.runs.session import start

        return show_outcome(lambda console: start(self.settings(), self.run, console))


@dataclass(frozen=True, kw_only=True)
class TrainErl(Train, ErlRunConfig):
    """Evolve a population of traders on a market panel, in constant memory.

    Without options: 16 traders on the panel that comes with Flatwater, a few minutes on 2 cores. Every setting below
    can also stand in a TOML file (--config); the run folder's config.toml is such a file, and repeats the run exactly.
    Ctrl-C finishes the step and saves; `flatwater resume RUN` goes on bit for bit. `flatwater plan erl` with the same
    options tells what the run would hold, and starts nothing.
    """

    kind: ClassVar[type[Any]] = ErlRunConfig


@dataclass(frozen=True, kw_only=True)
class TrainGrow(Train, GrowRunConfig):
    """Learn when and where networks in training should grow, with PPO over a pool of them, in constant memory.

    Without options: 8 small convolutional networks learn the digits that come with scikit-learn, a few minutes on 2
    cores. Every setting below can also stand in a TOML file (--config); the run folder's config.toml is such a file,
    and repeats the run exactly. Ctrl-C finishes the step and saves; `flatwater resume RUN` goes on bit for bit.
    `flatwater plan grow` with the same options tells what the run would hold, and starts nothing.
    """

    kind: ClassVar[type[Any]] = GrowRunConfig


@dataclass(frozen=True, kw_only=True)
class TrainTeach(Train, TeachRunConfig):
    """Learn from a teacher in a world of many agents, then without one, in constant memory and at constant speed.

    Without options: 128 agents in 32 foraging worlds learn from one that searches, three minutes on 2 cores. Every
    setting below can also stand in a TOML file (--config); the run folder's config.toml is such a file, and repeats the
    run exactly. Ctrl-C finishes the step and saves; `flatwater resume RUN` goes on bit for bit. `flatwater plan teach`
    with the same options tells what the run would hold, and starts nothing.
    """

    kind: ClassVar[type[Any]] = TeachRunConfig
