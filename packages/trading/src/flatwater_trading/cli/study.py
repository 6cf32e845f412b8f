"""`flatwater study`: train and test a recipe on a panel in the folds of a walk-forward."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import tyro

from flatwater.cli.settings import (
    RecipeSettings,
    WithTrust,
    add_config_of_folder,
    config_option,
    option_value,
    with_recipe_settings,
)
from flatwater.config.toml import read_toml
from flatwater_trading.panel.specification import is_synthetic
from flatwater_trading.recipe.recipe import ERL
from flatwater_trading.recipe.weights.recipe import WEIGHTS
from flatwater_trading.study.config import DEFAULT_FOLDS, MAXIMUM_FOLDS, MAXIMUM_TRIALS
from flatwater_watch.errors import ConfigError, FlatwaterError
from flatwater_watch.files.directory import expand_home
from flatwater_watch.options.bounds import Bounds
from flatwater_watch.phrases import stack_lines

if TYPE_CHECKING:
    from flatwater_trading.study.folder import StudyFolder
    from flatwater_trading.study.study import StudyOutcome

SETTINGS_SUFFIX = ".toml"


@dataclass(frozen=True, kw_only=True)
class StudyCommand(WithTrust, RecipeSettings):
    """Options of a study of any recipe on a panel, besides the settings that all runs share."""

    about: ClassVar[
        str
    ] = """Train the settings of `flatwater train {name}` in each fold of a walk-forward, and say what it shows.

    The panel is cut into K + 1 equal parts. Each fold trains on everything before its test days, chooses its champion
    on the last of these, and then plays the test days, once for each seed. The folds are pooled: equity, Sharpe ratio,
    drawdown, turnover, the difference to the best simple rule and to equal weight with an interval, and the Sharpe
    ratio deflated for every try that was made. Each run is an ordinary run in the study's folder. Ctrl-C saves the runs
    at work; the same command with --run goes on, also after a kill.
    """
    help_more: ClassVar[str] = """
        The settings below hold for every run. The seed, `splits.days` and `splits.holdout-days` are set by the
        study for each run.
        """
    source: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="PANEL|SETTINGS")] = None
    """A panel, which stands for --panel, or a TOML file with settings, which stands for --config."""
    folds: Annotated[int, Bounds(1, MAXIMUM_FOLDS)] | None = None
    """Folds. Left out: 5, or as many as the study in --run has, or as many as the panel has days for."""
    seeds: str | None = None
    """A number of seeds from --seed on, such as `3`, or a list, such as `0,5,9`. Left out: 3, or those of the study in
    --run; seeds can be added to a study."""
    space: Path | None = None
    """TOML file of settings that are searched in each fold, as by `flatwater sweep`: the best trial on the fold's
    validation days gives the settings of its runs. Left out: no search, or that of the study in --run."""
    trials: Annotated[int, Bounds(1, MAXIMUM_TRIALS)] | None = None
    """Trials of each search. Left out: 20, or as many as the study in --run has."""
    jobs: Annotated[int, Bounds(1, 1024)] | None = None
    """Runs at once, each in a process of its own. Left out: as many as there are free cores and as memory allows."""
    run: Path | None = None
    """Folder for the study: new, empty, or one to go on with. Left out: runs/study-DATE-NUMBER."""
    config: Path | None = None
    """TOML file with settings. Options on the command line win over it."""
    plan: bool = False
    """Tell what the largest run would hold, and how many such runs there would be at once; start nothing."""
    json: bool = False
    """Print the result as JSON; everything else goes to stderr."""
    quiet: bool = False
    """Print nothing but errors, and with --json the result. Messages of a run are in its run.log."""

    @classmethod
    def read(cls, program: str, options: Sequence[str]) -> Self:
        """Parse the options of `flatwater study` to a command.

        Options win over a file of settings, and this over the settings of the study in --run. The recipe that the
        settings name determines the class of the command.

        Args:
            program: name of the command, for its help.
            options: words after it. The first may be a source: prices (for --panel) or a file of settings (--config).

        Raises:
            ConfigError: the source stands for an option that is given as well.
        """
        options_with_study = add_config_of_folder(options, "study.toml")
        recipe_command: type[Self] = _recipe_command(cls, options_with_study)
        if recipe_command is not cls:  # the settings are of another recipe, whose command has other options
            return recipe_command.read(program, options)
        # Read twice if there is a source: first to find it, then with the option that it stands for.
        command = super().read(program, options_with_study)
        source = command.source
        if source is None:
            return command
        # The source is put before the other options, as later ones win. A file of settings replaces those of the study.
        if source.lower().endswith(SETTINGS_SUFFIX):
            option, other_words = "--config", options
        else:
            option, other_words = "--panel", options_with_study
        if option_value(option, options) is not None:
            raise ConfigError(f"{source}: stands for {option}, which is given as well. Leave one of them out.")
        return super().read(program, [option, source, *other_words])

    def __call__(self) -> int:
        """Run the study and show it; with --plan print the memory of its largest run. Returns the exit code.

        Raises:
            ConfigError: there is no file of the prices' name.
        """
        prices = self.source
        # The source is the panel of the settings, unless it is a file of settings itself.
        is_panel = prices is not None and prices == self.settings().panel
        if prices is not None and is_panel and not (is_synthetic(prices) or _leads_to_file_or_folder(prices)):
            raise ConfigError(  # before anything is imported that takes seconds
                f"{prices}: there is no such file. Give a stored panel, a file of prices, `synthetic:60x1500`, or "
                "a TOML file with settings."
            )
        return show_plan(self) if self.plan else run_study(self)


def _leads_to_file_or_folder(path: str) -> bool:
    """Return whether a path that the user has typed leads to a file or folder; `~` stands for a home folder."""
    try:
        return expand_home(path).exists()
    except (OSError, ValueError):  # too long a name, a NUL character
        return False


STUDIES = {recipe.name: with_recipe_settings(StudyCommand, recipe) for recipe in (ERL, WEIGHTS)}
"""Name of a recipe -> the command that studies it."""
StudyTraders, StudyWeights = STUDIES.values()


def _recipe_command(command: type[Any], options: Sequence[str]) -> type[Any]:
    """Return the command of the recipe in a settings file; `command` itself without a file or for `study weights`."""
    # The file of --config, else the first word that ends like a file of settings.
    settings_files = [Path(option) for option in options if option.lower().endswith(SETTINGS_SUFFIX)]
    file = config_option(options) or next(iter(settings_files), None)
    if command is not StudyTraders or file is None or not file.is_file():
        return command
    return STUDIES.get(str(read_toml(file).get("trainer", ERL.name)), command)


def show_plan(command: StudyCommand) -> int:
    """Print the memory plan of the largest run. Returns the exit code: 3 if the runs at work do not fit together."""
    from flatwater.cli.plan import print_plan
    from flatwater_trading.study.member import plan_largest_run
    from flatwater_trading.study.opening import complete_request, fewer_folds_line, jobs_that_fit
    from flatwater_watch.terminal import print_sentence, say, terminal

    request = complete_request(_make_study_request(command))
    with terminal(to_stderr=True).status("reading the panel and planning its largest fold …"):
        plan, folds = plan_largest_run(request.base, request.folds, request.existing)
    code = print_plan(plan, as_json=command.json)
    if not command.json:
        from flatwater_watch.units import format_bytes

        if request.folds is None and folds < DEFAULT_FOLDS:
            say(fewer_folds_line(folds))
        runs = folds * len(request.seeds)
        most_jobs = min(request.jobs, runs)
        jobs = jobs_that_fit(most_jobs, plan.needed_bytes, plan.limit_bytes, is_explicit=command.jobs is not None)
        say(f"{runs} runs, none larger; {jobs} at once take up to {format_bytes(jobs * plan.needed_bytes)}")
        if request.trials:
            print_sentence(
                terminal(),
                f"a search of {request.trials} trials in each fold comes first. Its settings may take more than this "
                "plan: a trial that does not fit is not started",
            )
    return code


def _make_study_request(command: StudyCommand) -> Any:  # noqa: ANN401  (imported where it is used)
    """Return the settings, folds, seeds and so on that the options ask for; imported here, as `--help` stays light."""
    from flatwater_trading.study.opening import StudyRequest

    return StudyRequest(
        config=command.settings(),
        folds=command.folds,
        seeds=command.seeds,
        jobs=command.jobs,
        folder=command.run,
        space=command.space,
        trials=command.trials,
    )


def run_study(command: StudyCommand) -> int:
    """Train and test the runs that are left, show the pooled result, and return the exit code."""
    import json
    import sys

    from flatwater_trading.study.study import train_study
    from flatwater_watch.terminal import lasting_terminal, print_sentence, silent_terminal

    # With --json stdout is the result alone: everything else goes to stderr.
    console = silent_terminal() if command.quiet else lasting_terminal(to_stderr=command.json)
    errors = lasting_terminal(to_stderr=True) if command.quiet else console  # --quiet silences all else
    request = _make_study_request(command)
    outcome = train_study(request, console)
    result = outcome.result
    if result["pooled"] is not None:
        write_pages(outcome)
        show_study(result, console)
        folder = outcome.folder
        console.print(f"\npicture       {folder.picture}\npage          {folder.report}", soft_wrap=True)
        console.print(f"study folder  {folder.path}", soft_wrap=True)
        commands = next_commands(folder, request.config.trainer)
        console.print(stack_lines("next          ", commands), soft_wrap=True)
    if command.json:
        sys.stdout.write(json.dumps(result, indent=1) + "\n")
    if outcome.stop.signal:
        resume_command = shlex.join(["flatwater", "study", "--run", str(outcome.folder.path)])
        console.print(f"stopped. Go on with: {resume_command}", markup=False, soft_wrap=True)
        return outcome.stop.exit_code
    failed_lines = [line for line in result["runs"] if line["state"] == "failed"]
    for line in failed_lines:
        print_sentence(errors, f"{line['run']} failed: {line['reason']}", style="red")
    return FlatwaterError.exit_code if failed_lines else 0


def next_commands(folder: "StudyFolder", recipe: str) -> list[str]:
    """Return the commands that follow a study: a run on all its days, for orders, and the comparison with another."""
    train_command = shlex.join(["flatwater", "train", recipe, "--config", str(folder.base)])
    return [train_command, f"{shlex.join(['flatwater', 'compare', str(folder.path)])} OTHER"]


def write_pages(outcome: "StudyOutcome") -> None:
    """Write the picture and the page of a study that has a complete fold."""
    from flatwater.reports.picture import write_picture
    from flatwater_trading.study.page import study_page, study_picture
    from flatwater_trading.study.records import read_study
    from flatwater_watch.files.directory import write_object

    folder = outcome.folder
    records = read_study(folder.path)
    write_picture(folder.picture, study_picture(records))
    write_object(folder.report, study_page(records).encode(errors="replace"))


def show_study(result: Mapping[str, Any], console: Any) -> None:  # noqa: ANN401  (rich's console)
    """Print what searches chose, a table of the folds and one of the traders in 80 columns, and the verdict."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from flatwater_trading.study.table_rows import fold_rows, search_rows, trader_rows

    for fold, settings, trial, _ in search_rows(result).rows:
        console.print(f"fold {fold}: {settings} (trial {trial})", markup=False)
    for titles, rows, text_columns in (fold_rows(result["pooled"]), trader_rows(result["pooled"])):
        table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        for column, title in enumerate(titles):
            table.add_column(title, justify="left" if column < text_columns else "right", no_wrap=True)
        for row in rows:
            table.add_row(*row, style="bold" if row[0] == "champions" else "")
        console.print(table)
    complete, folds_in_all = len(result["pooled"]["by_fold"]), result["folds"]
    if complete < folds_in_all:
        console.print(
            f"{complete} of {folds_in_all} folds are complete; the others are not in these numbers.", style="yellow"
        )
    console.print(result["pooled"]["verdict"])
    console.print(f"Note: {result['note']}.", style="dim")
