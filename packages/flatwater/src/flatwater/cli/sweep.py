"""`flatwater sweep RECIPE`: many runs, each with settings drawn from a space."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from flatwater.cli.settings import RecipeSettings, WithTrust, add_config_of_folder
from flatwater_watch.options.bounds import Bounds

if TYPE_CHECKING:
    from flatwater.sweeps.folder import SweepOutcome


@dataclass(frozen=True, kw_only=True)
class SweepCommand(WithTrust, RecipeSettings):
    """Options of sweeps over any recipe, besides the settings that all trials share."""

    about: ClassVar[str] = (
        "Search for the settings with which `flatwater train {name}` trains best: many runs, each with settings drawn "
        "from a space."
    )
    help_more: ClassVar[str] = """
        The space is a TOML file with a table for each setting that is searched: low and high (and log or step), or
        choices. Every setting below that is not in it is the same for all trials. A trial is an ordinary run in the
        sweep's folder; a trial that would not fit into memory is not started, and a trial that falls behind is ended
        early. Ctrl-C saves the trial at work; the same command with --run goes on, also after a kill.
        """
    space: Path | None = None
    """TOML file that says which settings are searched. Left out: that of the sweep in --run."""
    trials: Annotated[int, Bounds(1, 1 << 20)] | None = None
    """Trials in all. Left out: 20, or as many as the sweep in --run was asked for."""
    at_once: Annotated[int, Bounds(1, 1024)] | None = None
    """Trials that train at the same time, each in a process of its own, and the memory is divided among them. A
    trial's settings follow from the trials at least `at_once` before it, so speed changes no result. A sweep in --run
    goes on with as many as it was begun with, or with fewer. Left out: 1."""
    prune: bool = True
    """End a trial when its best value so far is below the median of the trials before it at the same round."""
    run: Path | None = None
    """Folder for the sweep: new, empty, or one to go on with. Left out: runs/sweep-RECIPE-DATE-NUMBER."""
    config: Path | None = None
    """TOML file with settings that all trials share. Options on the command line win over it."""
    json: bool = False
    """Print the result as JSON; progress goes to stderr."""
    quiet: bool = False
    """Print nothing but errors, and with --json the result. What a run says stands in its run.log."""

    @classmethod
    def read(cls, program: str, options: Sequence[str]) -> Self:
        """Read the options on top of the settings of --config, or of the sweep in --run."""
        return super().read(program, add_config_of_folder(options, "base.toml"))

    def __call__(self) -> int:
        """Run the trials, then show them."""
        return run_sweep(self, self.settings())


def run_sweep(command: SweepCommand, config: Any) -> int:  # noqa: ANN401  (a RunConfig of any recipe)
    """Run the trials of a sweep, show all of them, and return the exit code.

    Raises:
        ConfigError: the package that sweeps need is not installed.
    """
    import json
    import shlex
    import sys

    from flatwater.sweeps.installation import require_optuna
    from flatwater_watch.errors import FlatwaterError
    from flatwater_watch.terminal import lasting_terminal, silent_terminal

    require_optuna()
    from flatwater.sweeps.opening import SweepOrder
    from flatwater.sweeps.sweep import train_sweep

    # With --json stdout has the result alone.
    console = silent_terminal() if command.quiet else lasting_terminal(to_stderr=command.json)
    errors = lasting_terminal(to_stderr=True) if command.quiet else console  # --quiet keeps errors
    order = SweepOrder(
        config=config,
        space=command.space,
        trials=command.trials,
        folder=command.run,
        prune=command.prune,
        at_once=command.at_once,
    )
    outcome = train_sweep(order, console)
    if command.json:
        sys.stdout.write(json.dumps(outcome.to_json(), indent=1) + "\n")
    else:
        show_trials(outcome, console)
    if outcome.stop.signal:  # ended by Ctrl-C or another signal
        command_line = shlex.join(["flatwater", "sweep", outcome.trainer, "--run", str(outcome.folder.path)])
        console.print(f"stopped. Go on with: {command_line}", markup=False, soft_wrap=True)
        return outcome.stop.exit_code
    if outcome.best_trial is None:
        place_text = "in its folder" if command.quiet else "above"
        errors.print(f"no trial of {outcome.folder.path} has finished; the reasons are {place_text}", style="red")
        return FlatwaterError.exit_code
    best_command = f"flatwater train {outcome.trainer} --config {shlex.quote(str(outcome.folder.best))}"
    console.print(f"\nsweep folder  {outcome.folder.path}\nbest          {best_command}", markup=False, soft_wrap=True)
    return 0


def show_trials(outcome: "SweepOutcome", console: Any) -> None:  # noqa: ANN401  (rich's console)
    """Print a table of all trials, the best in bold."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from flatwater.sweeps.sweep import setting_text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in ("trial", "round", outcome.measured):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("settings")
    for line in outcome.lines:
        settings = "  ".join(f"{name} {setting_text(value)}" for name, value in line.settings.items())
        table.add_row(
            str(line.number),
            str(line.round),
            "" if line.value is None else f"{line.value:.4g}",
            line.state,
            Text("\n".join([settings, *line.reason.splitlines()[:1]])),  # the reason's first line, if there is one
            style="bold" if line is outcome.best_trial else "",
        )
    console.print(table)
