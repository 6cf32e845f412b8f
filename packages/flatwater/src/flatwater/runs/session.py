"""Start a run, or go on with one: both are the same loop over a state that is new or restored."""

import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from flatwater.checkpoints.manifest import JSON, Manifest, fact_differences
from flatwater.checkpoints.reader import list_checkpoints, newest_intact, restore_state_
from flatwater.config.toml import from_mapping, to_mapping, with_settings
from flatwater.envs.open_envs import close_open_envs
from flatwater.memory.planner import plan_summary
from flatwater.metrics.console import ConsoleTable
from flatwater.mirror.download import fetch_run
from flatwater.mirror.opening import MirrorLike, open_mirror
from flatwater.recipe import Recipe, recipe_of_config, recipe_of_settings
from flatwater.rundir.description import write_description
from flatwater.rundir.doubts import read_doubts
from flatwater.rundir.events import RunEvents, RunLog
from flatwater.rundir.layout import RunFolder, create_folder, hold_lock, open_folder, recorded_rounds, write_config
from flatwater.rundir.origin import first_round, read_origin, write_origin
from flatwater.runs.callbacks import Callbacks, OnRound, find_callbacks
from flatwater.runs.config import rounds_alone
from flatwater.runs.fingerprint import changed_facts, changed_sources, run_facts, version_facts
from flatwater.runs.fork import Parent, compose_as_begun, compose_fork, copy_history, find_parent
from flatwater.runs.machine import freeze_gc, keep_freed_memory, use_threads
from flatwater.runs.planning import check_machine, check_settings
from flatwater.runs.profiling import check_profiled, with_traces
from flatwater.runs.recorder import build_watcher
from flatwater.runs.run import Run
from flatwater.runs.signals import stop_on_signals
from flatwater.runs.trust import note_run, permit_run
from flatwater.storage.objects import is_url
from flatwater.trainers.logged import OnEpisode
from flatwater.trainers.loop import train_
from flatwater_watch.errors import CheckpointError, ConfigError, RunError
from flatwater_watch.events.command import EventCommand
from flatwater_watch.events.event import Listener
from flatwater_watch.files.directory import write_object
from flatwater_watch.files.safe_read import RESULT_BYTES, read_regular
from flatwater_watch.forms import count_phrase

READING_STATUS = "reading the data and allocating the run …"
# Not 1 or 2, which mean a fault and a wrong command: a job script may raise the budget and resume.
BUDGET_EXIT = 4


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended."""

    folder: RunFolder
    finished: bool
    """False if a signal stopped it; it can be resumed."""
    exit_code: int
    """0, 4 at the memory budget, or 128 and the signal's number: 143 after SIGTERM."""
    recipe: Recipe
    """Recipe by which the run was trained."""
    signal: int = 0
    """The signal that stopped it; 0 if none did."""


@close_open_envs()
def start_new_run(
    config: Any,  # noqa: ANN401  (a RunConfig of any recipe)
    run: Path | None,
    console: Console,
    *,
    listeners: Sequence[Listener] = (),
    on_round: OnRound | None = None,
    on_episode: OnEpisode | None = None,
    profile: range | None = None,
    parent: Parent | None = None,
) -> RunOutcome:
    """Train a new run in a new folder.

    Args:
        config: settings of the run.
        run: the folder; None for `runs/RECIPE-DATE-NUMBER`.
        console: console on which the run is shown.
        listeners: get each event, besides the run's own log.
        on_round: called after each round, in place of the function that the settings name.
        on_episode: called after each finished episode, in place of the function that the settings name.
        profile: rounds that are recorded with torch's profiler.
        parent: the run whose state it goes on from; None for a run that is not a fork.
    """
    events = RunEvents(console, [*listeners])
    with events.report_ending():
        checked = check_settings(config, Callbacks(on_round, on_episode))
        # The number is kept for resuming: sums of another number of threads differ in their last bit.
        config = replace(checked.config, threads=use_threads(config.threads))
        if profile is not None:
            check_profiled(profile, 0 if parent is None else parent.origin.round, config.rounds)
        attach_listener_(events, config)
        # Allocated before the folder is made: a run that does not fit leaves nothing behind.
        with console.status(READING_STATUS):
            composed = _compose_new(config, parent, profile, events.show_line)
        folder = create_folder(run, config.trainer, checked.taken)
        # The lock before the mirror: only its holder may send to the URL or write the folder's files.
        with (
            hold_lock(folder) as locked_folder,
            open_mirror(config.mirror, config.checkpoints, locked_folder, events) as mirror,
        ):
            _begin_folder(composed, locked_folder, events, parent)
            callbacks = checked.callbacks
            return train(
                composed, locked_folder, events, is_new=True, mirror=mirror, callbacks=callbacks, profile=profile
            )


def _begin_folder(composed: Run, folder: RunFolder, events: RunEvents, parent: Parent | None) -> None:
    """Write a new run's files before its first round, and print its folder, policy and environment."""
    if parent is not None:
        write_origin(folder, parent.origin)
    else:
        folder.origin.unlink(missing_ok=True)  # of a fork that was killed before it began
    write_config(composed.config, folder.config)
    events.listeners.append(RunLog(folder.log))
    # Before training: a run killed in its first round is still this user's.
    note_run(folder, events.show_line)
    place = escape(str(folder.with_current_name.path))
    print_line(events.console, f"run folder [bold]{place}[/]\n{escape(describe_run(composed))}")
    for line in composed.about():
        events.console.print(line, highlight=False, markup=False)
    if parent is not None:
        copy_history(parent, folder, events.show_line)


def _compose_new(config: Any, parent: Parent | None, profile: range | None, say: Callable[[str], None]) -> Run:  # noqa: ANN401  (a RunConfig of any recipe)
    """Return a run before its first round, with the state of its parent if it has one."""
    if parent is not None:
        return with_traces(compose_fork(config, parent, say), profile)
    composed = with_traces(recipe_of_config(config).compose(config), profile)
    composed.begin_()
    return composed


def read_config(
    folder: RunFolder, *, where: Path | str | None = None, trains: bool = False, replaced_names: Collection[str] = ()
) -> Any:  # noqa: ANN401  (a RunConfig of any recipe)
    """Return the configuration of a run, whatever it trains: to compose the run, which imports the code that it names.

    Args:
        folder: folder of the run.
        where: the place as the user names it, if its files are elsewhere.
        trains: whether the run will be trained: then trackers and the command for events are code as well.
        replaced_names: settings in whose place the user gives others now.

    Raises:
        ConfigError: no configuration there fits.
        TrustError: the code may be somebody else's, see `runs.trust`.
    """
    source = where or folder.with_current_name.path
    settings, permit = permit_run(folder, source, trains=trains, replaced_names=replaced_names)
    file = str(folder.with_current_name.config)
    return from_mapping(recipe_of_settings(settings, file, permit).config, settings, file)


@close_open_envs()
def resume(
    run: Path | str,
    console: Console,
    *,
    into: Path | None = None,
    listeners: Sequence[Listener] = (),
    on_round: OnRound | None = None,
    on_episode: OnEpisode | None = None,
    profile: range | None = None,
    **changes: Any,  # noqa: ANN401  (settings of any type)
) -> RunOutcome:
    """Go on with a run from its newest intact checkpoint, bit for bit.

    Args:
        run: folder of the run, or the URL at which it is mirrored.
        console: console on which the run is shown.
        into: folder for a run that is brought from a URL; None takes `runs/NAME`.
        listeners: get each event, besides the run's own log.
        on_round: called after each round, in place of the function that the settings name.
        on_episode: called after each finished episode, in place of the function that the settings name.
        profile: rounds that are recorded with torch's profiler.
        changes: settings that may change, such as `rounds`, in all, or `budget`, from here on; None leaves one as is.
    """
    events = RunEvents(console, [*listeners])
    with events.report_ending():
        from_url = is_url(run)
        if from_url:
            # A run from a URL goes on being mirrored there, unless the user says otherwise.
            changes["mirror"] = changes.get("mirror") or str(run).rstrip("/").rpartition("/")[0]
            with console.status(f"downloading {run} …"):
                run = fetch_run(str(run), into, events.show_line).path
        folder = open_folder(Path(run))
        # Before anything is read: another process that trains it would write checkpoints while they are looked at.
        with hold_lock(folder) as locked_folder:
            changed_names = {name for name, value in changes.items() if value is not None}
            config = with_changes(read_config(folder, trains=True, replaced_names=changed_names), changes)
            config = recipe_of_config(config).prepare(config)
            check_machine(config)
            callbacks = find_callbacks(config, Callbacks(on_round, on_episode))
            use_threads(config.threads)
            attach_listener_(events, config)
            events.listeners.append(RunLog(locked_folder.log))
            with open_mirror(config.mirror, config.checkpoints, locked_folder, events) as mirror:
                return _continue(config, locked_folder, events, mirror=mirror, callbacks=callbacks, profile=profile)


def attach_listener_(events: RunEvents, config: Any) -> None:  # noqa: ANN401  (a RunConfig of any recipe)
    """Have the user's command told of events, where the settings have one."""
    if config.on_event is not None and config.on_event.strip():
        events.listeners.append(EventCommand(config.on_event, events.show_line))


def with_changes(config: Any, changes: Mapping[str, Any]) -> Any:  # noqa: ANN401  (a RunConfig of any recipe)
    """Return the configuration with the settings that are given; None leaves a setting as it was.

    Raises:
        ConfigError: runs of this recipe have no such setting.
    """
    new_settings = {
        name: str(value) if isinstance(value, Path) else value for name, value in changes.items() if value is not None
    }
    setting_names = {field.name for field in fields(config)}
    if unknown := [name for name in new_settings if name not in setting_names]:
        reason = config.absent.get(unknown[0], f"`flatwater train {config.trainer}` has no such setting")
        raise ConfigError(f"--{unknown[0].replace('_', '-')}: {reason}")
    # A table is given as a dict of the settings in it that change.
    tables = {n: with_settings(getattr(config, n), x, n) for n, x in new_settings.items() if isinstance(x, Mapping)}
    return replace(rounds_alone(config, new_settings), **new_settings | tables)


def _continue(
    config: Any,  # noqa: ANN401  (a RunConfig of any recipe)
    folder: RunFolder,
    events: RunEvents,
    *,
    mirror: MirrorLike,
    callbacks: Callbacks,
    profile: range | None,
) -> RunOutcome:
    """Resume a locked run at its newest intact checkpoint, or begin it where none was ever saved, and train it.

    Args:
        config: settings of the run, with changes.
        folder: the run, locked.
        events: shows lines, and tells the listeners.
        mirror: gets each checkpoint that is saved; it does nothing if the run has no mirror.
        callbacks: the user's functions.
        profile: rounds that are recorded with torch's profiler; None records none.

    Raises:
        ConfigError: the run has more rounds than the settings ask for.
    """
    word = recipe_of_config(config).layout.rounds
    # Rows without a checkpoint mean that checkpoints were lost: such a run must not start from the beginning and
    # overwrite its records.
    if not list_checkpoints(folder.checkpoints) and recorded_rounds(folder) <= first_round(folder):
        events.show_line("the run was stopped before its first checkpoint and starts from the beginning", style="")
        composed = _compose_again(config, folder, profile, events)
        write_config(config, folder.config)
        note_run(folder, events.show_line)
        return train(composed, folder, events, is_new=True, mirror=mirror, callbacks=callbacks, profile=profile)
    with events.console.status(READING_STATUS):
        composed, manifest = restore_run(config, folder, events.show_line)
    if config.rounds < manifest.round:
        raise ConfigError(
            f"--rounds {config.rounds}: the run has {manifest.round} {word} already. Give {manifest.round} or more."
        )
    if profile is not None:
        check_profiled(profile, manifest.round, config.rounds)
    composed = with_traces(composed, profile)
    # Only now that the state is restored: a resume that is refused leaves the folder's configuration as it was.
    write_config(config, folder.config)
    note_run(folder, events.show_line)
    mirror.offer(manifest.file)  # the process before may have ended before its last checkpoint was sent
    progress_text = f"{manifest.round} of {config.rounds} {word} done"
    print_line(
        events.console, f"resuming [bold]{escape(str(folder.path))}[/]: {progress_text}\n{describe_run(composed)}"
    )
    return train(composed, folder, events, is_new=False, mirror=mirror, callbacks=callbacks, profile=profile)


def _compose_again(config: Any, folder: RunFolder, profile: range | None, events: RunEvents) -> Run:  # noqa: ANN401  (a RunConfig of any recipe)
    """Return a run that was stopped before its first checkpoint, as it was at the start."""
    origin, parent = read_origin(folder), None
    with events.console.status(READING_STATUS):
        if origin is not None:
            parent_folder = open_folder(Path(origin.parent))
            parent_config = read_config(parent_folder, trains=True, replaced_names=origin.changed)
            parent = find_parent(parent_folder, parent_config, config, origin.round, events.show_line)
        composed = _compose_new(config, parent, profile, events.show_line)
    if parent is not None:
        copy_history(parent, folder, events.show_line)
    return composed


def restore_run(
    config: Any,  # noqa: ANN401  (a RunConfig of any recipe)
    folder: RunFolder,
    say: Callable[[str], None],
) -> tuple[Run, Manifest]:
    """Build a run and write its newest intact checkpoint into it.

    Raises:
        CheckpointError: there is no intact checkpoint, or it is of another configuration or other data.
    """
    intact = newest_intact(folder.checkpoints, say=say)
    if intact is None:
        raise CheckpointError(
            f"{folder.with_current_name.checkpoints}: no intact checkpoint. "
            "Restore the folder from a backup, or repeat "
            f"the run with: flatwater train {config.trainer} --config {folder.with_current_name.config} --run FOLDER"
        )
    manifest = intact.manifest
    composed = compose_as_begun(config, read_config(folder), manifest.facts.get("data"))
    # Facts are compared before a byte of the run is written over.
    facts = run_facts(composed)
    saved_config = _with_later_settings(manifest.facts.get("config"), to_mapping(type(config)()), facts["config"])
    saved_facts = {"config": saved_config, "data": _without_text(manifest.facts.get("data"))}
    differences = fact_differences(saved_facts, facts)
    if differences:
        lines = "\n".join(f"  {line}" for line in differences)
        raise CheckpointError(
            f"{folder.path}: the configuration or the data differ from the checkpoint.\n{lines}\n"
            f"Put {folder.with_current_name.config} or the data back as they were. To go on with other settings: "
            f"flatwater fork {folder.with_current_name.path} --SETTING VALUE"
        )
    if modules := changed_sources(manifest.facts.get("sources"), config):
        say(f"the text of {'; '.join(modules)} has changed: the numbers may change from this round on")
    if changed_versions := changed_facts(manifest.facts.get("versions")):
        say(
            f"{'; '.join(changed_versions)}: nothing is lost, but the last bits of the numbers may "
            "differ from this round on"
        )
    composed.doubts.extend(read_doubts(folder))  # before `rebuild_`, which asks whether the run was exact so far
    restore_state_(composed.trainer.run, intact)
    composed.rebuild_()
    return composed, manifest


def _with_later_settings(saved: JSON, defaults: Mapping[str, Any], present: Mapping[str, Any]) -> JSON:
    """Return a checkpoint's settings with those that a later version added, whose defaults change nothing.

    Args:
        saved: settings, or a table of them, as the checkpoint has them.
        defaults: settings, or the table, of a run without options.
        present: settings, or the table, of the run that goes on; names that are not in it are not compared.
    """
    if not isinstance(saved, Mapping):
        return saved
    added = {name: value for name, value in defaults.items() if name in present and name not in saved}
    saved_settings = {
        name: _with_later_settings(value, defaults.get(name, {}), present.get(name, {}))
        if isinstance(defaults.get(name), Mapping) and isinstance(present.get(name), Mapping)
        else value
        for name, value in saved.items()
    }
    return {**saved_settings, **added}


def _without_text(data: JSON) -> JSON:
    """Return a checkpoint's data without the text of a host: version 0.1 had it there, `sources` has it now."""
    return {name: value for name, value in data.items() if name != "host"} if isinstance(data, Mapping) else data


def describe_run(composed: Run) -> str:
    """Return a line that names the policy, its environment or data, and the device."""
    return f"{composed.describe()}, {composed.device}, {count_phrase(composed.config.threads, 'thread')}"


def resume_command(folder: RunFolder) -> str:
    """Return the command that goes on with the run, by the name that its folder has now."""
    return f"flatwater resume {folder.with_current_name.path}"


def print_line(console: Console, line: str) -> None:
    """Print a line without breaking it: a path that is broken over two lines cannot be copied."""
    console.print(line, highlight=False, markup=True, soft_wrap=True)


def train(
    composed: Run,
    folder: RunFolder,
    events: RunEvents,
    *,
    is_new: bool,
    mirror: MirrorLike,
    callbacks: Callbacks,
    profile: range | None = None,
) -> RunOutcome:
    """Train a composed run in its folder to its end, or until it is stopped.

    Args:
        composed: a run, new or restored.
        folder: folder of the run, as `hold_lock` gives it.
        events: shows the run, and tells listeners of it.
        is_new: whether there is no checkpoint yet, so that a first checkpoint is written.
        mirror: takes each checkpoint; the caller closes it.
        callbacks: the user's functions.
        profile: rounds that are recorded with torch's profiler.
    """
    trainer, config, console = composed.trainer, composed.config, events.console
    recipe = announce_start(composed, folder, events, is_new=is_new)
    keep_freed_memory()
    with (
        freeze_gc(),
        stop_on_signals(console) as stop,  # from here on a signal ends the run with a checkpoint
        ConsoleTable(config.rounds, console, recipe.layout, done=trainer.progress.round) as table,
    ):
        watcher = build_watcher(composed, folder, table, events=events, stop=stop, mirror=mirror, callbacks=callbacks)
        try:
            watcher.begin_(save=is_new, recorded=profile or range(0))
            finished = train_(trainer, config.rounds, watcher) and not stop.signal  # then it is not scored either
            if not finished:
                watcher.save()
                watcher.explain_stop()
        except RunError:
            events.show_line(f"the run ends here. Correct this, and go on with: {resume_command(folder)}", style="")
            raise
        finally:
            watcher.close()  # also after a fault: records are flushed, threads of trackers end
    if finished:
        with console.status("playing the trained policy against the baselines …"):
            composed.write_result(folder)
        mirror.run_finished()  # after the result is written, so that it is sent as well
    else:
        print_line(console, escape(f"stopped. Go on with: {resume_command(folder)}"))
    watcher.own_parts.write_()
    code = 0 if finished else BUDGET_EXIT if watcher.contract.breach else stop.exit_code
    return announce_end(RunOutcome(folder.with_current_name, finished, code, recipe, stop.signal), composed, events)


def announce_start(composed: Run, folder: RunFolder, events: RunEvents, *, is_new: bool) -> Recipe:
    """Write the run's plan and how it is shown, for readers, and tell of its start; return the run's recipe.

    Args:
        composed: the run, built.
        folder: folder of the run.
        events: shows lines, and tells the listeners.
        is_new: whether it begins, rather than resumes.
    """
    config = composed.config
    recipe = recipe_of_config(config)
    # Before the start is told: whoever reads the folder then finds both.
    write_object(folder.plan, json.dumps(composed.plan.to_json(), indent=1).encode() + b"\n")
    write_description(folder, recipe, to_mapping(config))
    tell_of_start(composed, folder, events, is_new=is_new)
    return recipe


def tell_of_start(composed: Run, folder: RunFolder, events: RunEvents, *, is_new: bool) -> None:
    """Print the memory that the run will hold, and tell the listeners of its start; the console has shown the rest.

    Args:
        composed: the run, built.
        folder: folder of the run.
        events: shows lines, and tells the listeners.
        is_new: whether it begins, rather than resumes.
    """
    events.console.print(plan_summary(composed.plan), highlight=False, markup=False)
    config, round_, path = composed.config, composed.trainer.progress.round, folder.with_current_name.path
    word = recipe_of_config(config).layout.rounds
    beginning = "new run" if is_new else f"resumed at {round_} of {config.rounds} {word}"
    events.notify_listeners(
        "start",
        f"{beginning}, {path}: {describe_run(composed)}. {plan_summary(composed.plan)}",
        run=str(path.absolute()),
        name=path.absolute().name,
        trainer=config.trainer,
        tag=config.tag,
        resumed=not is_new,
        done=round_,
        rounds=config.rounds,
        budget=composed.plan.budget_bytes,
        pid=os.getpid(),
        versions=version_facts(),
    )


def announce_end(outcome: RunOutcome, composed: Run, events: RunEvents) -> RunOutcome:
    """Tell the listeners how the run ended, and return that."""
    config, done = composed.config, composed.trainer.progress.round
    ending = "finished" if outcome.finished else f"stopped, go on with: {resume_command(outcome.folder)}"
    events.notify_listeners(
        "end",
        f"{ending} ({done} of {config.rounds} {recipe_of_config(config).layout.rounds}, exit code {outcome.exit_code})",
        run=str(outcome.folder.path.absolute()),
        finished=outcome.finished,
        exit_code=outcome.exit_code,
        done=done,
        rounds=config.rounds,
        # Read again rather than handed on: the listener gets what is on the disk, within the size that readers allow.
        result=json.loads(read_regular(outcome.folder.result, RESULT_BYTES, follow=False))
        if outcome.finished
        else None,
    )
    return outcome
