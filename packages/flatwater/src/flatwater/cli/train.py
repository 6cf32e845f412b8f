"""The commands that train a run: `flatwater train RECIPE`, `flatwater resume` and `flatwater fork`."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import tyro

from flatwater.cli.settings import RecipeSettings, WithDisplay, WithTrust, named_settings, with_recipe_settings
from flatwater_watch.errors import ConfigError
from flatwater_watch.options.bounds import Bounds, Number, Workers
from flatwater_watch.options.parsing import read_options
from flatwater_watch.terminal import say


@contextmanager
def without_collections() -> Iterator[None]:
    """Stop the garbage collector within this context: an import of torch makes 270,000 objects, and hardly a cycle."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@dataclass(frozen=True, kw_only=True)
class NewRun(RecipeSettings):
    """Options for the place of a run, and for its first settings; they come first in the help."""

    run: Path | None = None
    """Folder for the run; must be new or empty. Left out: runs/RECIPE-DATE-NUMBER."""
    config: Path | None = None
    """TOML file with settings. Options on the command line win over it."""
    seeds: Number | None = None
    """Train this many runs, one after the other, with the seeds S, S+1, ... from --seed on, each in a folder of its
    own below that of --run. Left out: one run."""


@dataclass(frozen=True, kw_only=True)
class Train(WithTrust, WithDisplay, NewRun):
    """Options of training by any recipe, besides the recipe's settings."""

    about: ClassVar[str] = "{guide}"
    help_more: ClassVar[str] = """
        Every setting below can also be in a TOML file (--config); the run folder's config.toml is such a file, and
        repeats the run exactly. Ctrl-C finishes the step and saves; `flatwater resume RUN` goes on bit for bit.
        `flatwater plan` with the same options shows the memory of the run, and starts nothing.
        """

    def __call__(self) -> int:
        """Train a run, or with `--seeds` a group of runs, then show the results. Returns the exit code."""
        settings = self.settings()  # before torch is imported, so that wrong settings are refused at once
        with without_collections():
            from flatwater.cli.outcome import show_group, show_outcome
            from flatwater.runs.seeds import create_group
            from flatwater.runs.session import start_new_run

        if self.seeds is not None:
            return show_group(create_group(settings, self.seeds, self.run), self, changes={})
        # `display`: listeners of events, and rounds to profile.
        return show_outcome(lambda console, **display: start_new_run(settings, self.run, console, **display), self)


@dataclass(frozen=True, kw_only=True)
class Resume(WithTrust, WithDisplay):
    """Go on with a run from its newest intact checkpoint, bit for bit.

    A checkpoint that was damaged or half-written is recognised by its hash, and the checkpoint before it is used. A run
    that has reached its rounds is only scored again, unless --rounds asks for more.
    """

    run: Annotated[str | None, tyro.conf.Positional] = None
    """The run's folder, that of a group of runs (`train --seeds`), or the URL at which it is mirrored:
    s3://bucket/path/NAME. Left out: the run in ./runs that was stopped last; with --rounds also one that has
    finished."""
    into: Path | None = None
    """Folder for a run that is brought from a URL; must be new or empty. Left out: runs/NAME."""
    rounds: Number | None = None
    """Rounds (generations, batches) in all. Left out: as many as the run was started with."""
    total_steps: Number | None = None
    """Environment steps in all, of a run that plays episodes, in place of rounds."""
    budget: str | None = None
    """Memory that the run may take from here on, such as 8GiB. Left out: as it was started."""
    mirror: str | None = None
    """Send checkpoints there from here on. Left out: as it was started, or to the URL that it comes from."""
    trackers: tuple[str, ...] | None = None
    """Where the numbers are shown from here on. Left out: as it was started."""
    workers: Workers | None = None
    """Processes that compute from here on, of a run that shares its work: the numbers are the same. auto takes one for
    each core that is free now. Left out: as many as before."""
    env_workers: Annotated[int, Bounds(0, 1 << 10)] | None = None
    """Processes that step the environments from here on: the numbers are the same. Left out: as many as before."""
    cluster: str | None = None
    """Ray cluster whose machines the workers compute on from here on, as at the start; "" for none. Left out: as it
    was started."""
    any_machine: bool | None = None
    """Whether workers of another arithmetic are taken from here on. Left out: as it was started."""
    allow_nan: bool | None = None
    """Whether the run goes on from here although its environment gives NaN or infinity. Left out: as it was started."""
    tag: tuple[str, ...] | None = None
    """Words by which `flatwater runs --tag` finds the run. Left out: as it was started."""
    on_event: str | None = None
    """Command that gets events from here on; "" for none. Left out: as it was started."""
    panel: str | None = None
    """Where the panel lies now. It may have newer days than the run began with, which are left out. Left out: where it
    was."""

    @classmethod
    def read(cls, program: str, options: Sequence[str]) -> Self:
        """Read the options, and refuse settings of the recipe.

        Raises:
            ConfigError: an option is a setting, such as `--learner.lr`: a run keeps its own.
        """
        # By the dot: no option of this command has one.
        setting = next((word for word in options if word.startswith("--") and "." in word.partition("=")[0]), None)
        if setting is not None:
            run = "RUN" if options[0].startswith("-") else options[0]  # the run stands before all options
            raise ConfigError(
                f"{program}: expected options of this command, got the setting {setting}. A run keeps its settings; "
                f"`flatwater fork {run} {setting} ...` goes on from its state with other ones, as a new run."
            )
        return read_options(cls, program, options)

    def __call__(self) -> int:
        """Go on with a run, or with a group of seeds, then show the results. Returns the exit code."""
        with without_collections():
            from flatwater.cli.outcome import show_group, show_outcome
            from flatwater.rundir.layout import RunFolder
            from flatwater.rundir.listing import newest_run
            from flatwater.runs.session import resume

        names = ["rounds", "total_steps", "budget", "mirror", "trackers", "tag", "on_event", "panel"]
        names += ["workers", "env_workers", "cluster", "any_machine", "allow_nan"]
        changes = {name: getattr(self, name) for name in names}
        # If more rounds are asked for, a finished run can go on as well.
        further_states = () if self.rounds is None and self.total_steps is None else ("finished",)
        run = newest_run(Path("runs"), "stopped", *further_states) if self.run is None else self.run
        # A stopped run that was found in ./runs may be one of a group of seeds, which is resumed as a whole.
        group = RunFolder(Path(run).parent if self.run is None else Path(run))
        if group.seeds.is_file():
            return show_group(group, self, changes)
        # `display`: listeners of events, and rounds to profile.
        return show_outcome(lambda console, **display: resume(run, console, into=self.into, **display, **changes), self)


@dataclass(frozen=True, kw_only=True)
class Fork(WithTrust, WithDisplay, RecipeSettings):
    """Go on from the exact state of a run with other settings, as a new run; the parent run is only read.

    `flatwater fork RUN --help` shows the settings of RUN, which are the defaults here. A setting that would give the
    state other leaves, such as a network's width, is refused.
    """

    about: ClassVar[str] = """Go on from the exact state of a run with other settings, as a new run.

    The run is only read. Settings below are its own where no option changes them. A setting that would give the state
    other leaves, such as a network's width, is refused.
    """
    parent: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")] = None
    """Folder of the run to go on from; it comes before all options."""
    run: Path | None = None
    """Folder for the new run; must be new or empty. Left out: runs/RECIPE-DATE-NUMBER."""
    checkpoint: Number | None = None
    """Round of the checkpoint to go on from. Left out: the newest between two rounds."""
    parent_config: Annotated[Any, tyro.conf.Suppress] = None
    """Settings of the parent run, once they were read."""

    @classmethod
    def read(cls, program: str, options: Sequence[str]) -> Self:
        """Read the options, with the settings of the parent run (the first word) as their defaults.

        Without a run the defaults of the class itself serve, for `--help`.
        """
        if not options or options[0].startswith("-"):
            return read_options(cls, program, options)
        with without_collections():
            from flatwater.recipe import recipe_of_config
            from flatwater.rundir.layout import open_folder
            from flatwater.runs.config import drop_total_steps
            from flatwater.runs.session import read_config

        parent_config = read_config(open_folder(Path(options[0])), trains=True, replaced_names=named_settings(options))
        command: type[Self] = with_recipe_settings(cls, recipe_of_config(parent_config))
        # The parent's total of steps gives way to `--rounds`.
        base = drop_total_steps(parent_config, named_settings(options))
        return command.read_with_base(program, options, base, parent_config=parent_config)

    def __call__(self) -> int:
        """Train a new run from the parent's state, then show the result. Returns the exit code.

        Raises:
            ConfigError: no run is given.
        """
        from flatwater.cli.outcome import show_outcome
        from flatwater.rundir.layout import open_folder
        from flatwater.runs.fork import find_parent
        from flatwater.runs.session import start_new_run

        if self.parent is None:
            raise ConfigError("fork: expected a run folder before all options, got none. `flatwater runs` lists runs.")
        config = self.settings()
        folder = open_folder(Path(self.parent))
        parent = find_parent(folder, self.parent_config, config, self.checkpoint, say)
        # `display`: listeners of events, and rounds to profile.
        return show_outcome(
            lambda console, **display: start_new_run(config, self.run, console, parent=parent, **display), self
        )
