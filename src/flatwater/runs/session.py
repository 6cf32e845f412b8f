"""Start a run, or go on with one: both are the same loop over a state that is new or restored."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from flatwater.checkpoints.facts import differences
from flatwater.checkpoints.manifest import Manifest
from flatwater.checkpoints.reader import list_checkpoints, newest_intact, restore_
from flatwater.config.toml import from_mapping, read_toml
from flatwater.errors import CheckpointError, ConfigError, RunError
from flatwater.memory.planner import in_short
from flatwater.metrics.console import ConsoleTable
from flatwater.runs.checking import check_settings
from flatwater.runs.facts import changes, facts
from flatwater.runs.fetching import fetch_run
from flatwater.runs.folder import RunFolder, create_folder, locked, open_folder, recorded_rounds, write_config
from flatwater.runs.machine import keep_freed_memory, use_threads
from flatwater.runs.mirroring import mirrored
from flatwater.runs.recipe import find_recipe, recipe_of
from flatwater.runs.run import Run
from flatwater.runs.signals import stop_on_signals
from flatwater.runs.trackers import check_trackers
from flatwater.runs.unmirrored import MirrorLike
from flatwater.runs.watch import Round, build_watcher
from flatwater.storage.directory import write_object
from flatwater.storage.objects import is_url
from flatwater.trainers.loop import train_

READING = "reading the data and allocating the run …"
BUDGET_EXIT = 4
OnRound = Callable[[Round], object]


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    folder: RunFolder
    finished: bool
    """False where a signal stopped it; it can be resumed."""
    exit_code: int
    """0, 4 at the memory budget, or 128 and the signal's number: 143 after SIGTERM."""


def start(
    config: Any,  # noqa: ANN401  (a RunConfig of any recipe)
    run: Path | None,
    console: Console,
    *,
    on_round: OnRound | None = None,
) -> Outcome:
    """Train a new run in a new folder.

    Raises:
        FlatwaterError: the configuration, the data or the folder cannot be used; nothing was trained.
    """
    recipe = find_recipe(config.trainer)
    checked = check_settings(config)
    config = replace(checked.config, threads=use_threads(config.threads))
    with console.status(READING):
        composed = recipe.compose(config)
    folder = create_folder(run, config.trainer, checked.taken)
    with locked(folder) as held, mirrored(config, held, console) as mirror:
        write_config(config, held.config)
        say(console, f"run folder [bold]{escape(str(folder.path))}[/]\n{describe(composed)}")
        return train(composed, held, console, first=True, mirror=mirror, on_round=on_round)


def read_config(folder: RunFolder) -> Any:  # noqa: ANN401
    """The configuration of a run, whatever it trains.

    Raises:
        ConfigError: the file cannot be read, or does not fit.
    """
    settings = read_toml(folder.config)
    return from_mapping(recipe_of(settings, str(folder.config)).config, settings, str(folder.config))


def resume(
    run: Path | str,
    console: Console,
    *,
    into: Path | None = None,
    on_round: OnRound | None = None,
    **changes: Any,  # noqa: ANN401
) -> Outcome:
    """Go on with a run from its newest intact checkpoint, bit for bit.

    Args:
        run: its folder, or the URL at which it is mirrored.
        console: where it is shown.
        into: folder for a run that is brought from a URL; None takes `runs/NAME`.
        on_round: called after each round.
        changes: settings that may change, such as `rounds`, in all, or `budget`, from here on; None leaves one as is.

    Raises:
        ConfigError: the budget is no amount of memory, or there are more rounds already.
        MemoryLimitError: the run does not fit its budget or this machine.
        CheckpointError: there is no intact checkpoint, or configuration or data are not those of the checkpoint.
    """
    if is_url(run):
        changes["mirror"] = changes.get("mirror") or str(run).rstrip("/").rpartition("/")[0]
        with console.status(f"bringing {run} to this machine …"):
            run = fetch_run(str(run), into, lambda line: say(console, f"[yellow]{escape(line)}")).path
    folder = open_folder(Path(run))
    with locked(folder) as held:
        config = changed(read_config(folder), changes)
        config = find_recipe(config.trainer).prepare(config)
        check_trackers(config)
        use_threads(config.threads)
        with mirrored(config, held, console) as mirror:
            return _continue(config, held, console, mirror, on_round)


def changed(config: Any, changes: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """The configuration with the settings that are given: None leaves one as it was.

    Raises:
        ConfigError: runs of this recipe have no such setting.
    """
    given = {
        name: str(value) if isinstance(value, Path) else value for name, value in changes.items() if value is not None
    }
    known = {field.name for field in fields(config)}
    if strange := [name for name in given if name not in known]:
        raise ConfigError(f"--{strange[0]}: a run of `flatwater train {config.trainer}` has no such setting")
    return replace(config, **given)


def _continue(
    config: Any,  # noqa: ANN401
    folder: RunFolder,
    console: Console,
    mirror: MirrorLike,
    on_round: OnRound | None,
) -> Outcome:
    word = find_recipe(config.trainer).layout.rounds
    if not list_checkpoints(folder.checkpoints) and not recorded_rounds(folder):
        say(console, "the run was stopped before its first checkpoint: it begins at the start")
        write_config(config, folder.config)
        with console.status(READING):
            composed = find_recipe(config.trainer).compose(config)
        return train(composed, folder, console, first=True, mirror=mirror, on_round=on_round)
    with console.status(READING):
        composed, manifest = restore_run(config, folder, lambda line: say(console, f"[yellow]{escape(line)}"))
    if config.rounds < manifest.round:
        raise ConfigError(f"--rounds {config.rounds}: the run has {manifest.round} {word} already. Give that or more.")
    write_config(config, folder.config)
    mirror.offer(manifest.file)
    done = f"{manifest.round} of {config.rounds} {word} done"
    say(console, f"resuming [bold]{escape(str(folder.path))}[/]: {done}\n{describe(composed)}")
    return train(composed, folder, console, first=False, mirror=mirror, on_round=on_round)


def restore_run(
    config: Any,  # noqa: ANN401
    folder: RunFolder,
    say: Callable[[str], None],
) -> tuple[Run, Manifest]:
    """Build a run and write its newest intact checkpoint into it.

    Raises:
        CheckpointError: there is none, or it belongs to another configuration or other data.
    """
    intact = newest_intact(folder.checkpoints, say=say)
    if intact is None:
        raise CheckpointError(
            f"{folder.named.checkpoints}: there is no intact checkpoint. Restore the folder from a backup, or repeat "
            f"the run with: flatwater train {config.trainer} --config {folder.named.config} --run FOLDER"
        )
    manifest = intact.manifest
    composed = _composed_as_begun(config, read_config(folder), manifest.facts.get("data"))
    found = differences({name: manifest.facts.get(name) for name in ("config", "data")}, facts(composed))
    if found:
        listed = "\n".join(f"  {line}" for line in found)
        raise CheckpointError(
            f"{folder.path}: the configuration or the data are not those of the checkpoint.\n{listed}\n"
            f"Put {folder.named.config} or the data back as they were, or start a new run."
        )
    if others := changes(manifest.facts.get("versions")):
        say(f"{'; '.join(others)}: nothing is lost, but the last bits of the numbers may differ from here on")
    restore_(composed.trainer.run, intact)
    composed.rebuild_()
    return composed, manifest


def _composed_as_begun(config: Any, was: Any, data: object) -> Run:  # noqa: ANN401
    """A run on the data that it began with, where there are more by now; its settings are those that were given.

    Args:
        config: those.
        was: the settings in the run's folder.
        data: what its checkpoint says of its data.
    """
    recipe = find_recipe(config.trainer)
    begun = recipe.begun_on(config, was, data if isinstance(data, Mapping) else {})
    composed = recipe.compose(begun)
    return composed if begun == config else replace(composed, config=config)


def describe(composed: Run) -> str:
    """One line about what is trained on what, and where."""
    threads = composed.config.threads
    return f"{composed.describe()}, {composed.device}, {threads} thread{'s' if threads > 1 else ''}"


def name(folder: RunFolder) -> str:
    """The folder as it is called now, for a line of the console."""
    return escape(str(folder.named.path))


def say(console: Console, line: str) -> None:
    """Print a line as it is: a path that is broken over two lines cannot be copied."""
    console.print(line, highlight=False, markup=True, soft_wrap=True)


def train(
    composed: Run,
    folder: RunFolder,
    console: Console,
    *,
    first: bool,
    mirror: MirrorLike,
    on_round: OnRound | None = None,
) -> Outcome:
    """Train a composed run in its folder to its end, or until it is stopped.

    Args:
        composed: new, or restored.
        folder: its files, as `locked` gives them.
        console: where it is shown.
        first: whether there is no checkpoint yet, so that one of the beginning is written.
        mirror: takes each checkpoint; the caller closes it.
        on_round: called after each round.
    """
    trainer, config, plan = composed.trainer, composed.config, composed.plan
    layout = find_recipe(config.trainer).layout
    write_object(folder.plan, json.dumps(plan.to_json(), indent=1).encode() + b"\n")
    say(console, in_short(plan))
    keep_freed_memory()
    with (
        stop_on_signals(console) as stop,
        ConsoleTable(config.rounds, console, layout, done=trainer.progress.round) as table,
    ):
        watcher = build_watcher(composed, folder, table, console=console, stop=stop, mirror=mirror, on_round=on_round)
        try:
            if first:
                watcher.save()
            finished = train_(trainer, config.rounds, watcher)
            if not finished:
                watcher.save()
                watcher.explain()
        except RunError:
            say(console, f"the run ends here. Once that is mended, go on with: flatwater resume {name(folder)}")
            raise
        finally:
            watcher.close()
    if not finished:
        say(console, f"stopped. Go on with: flatwater resume {name(folder)}")
        return Outcome(
            folder.named, finished=False, exit_code=BUDGET_EXIT if watcher.contract.breach else stop.exit_code
        )
    with console.status("playing what was trained against the baselines …"):
        composed.write_result(folder)
    mirror.unhurried()
    return Outcome(folder.named, finished=True, exit_code=0)
