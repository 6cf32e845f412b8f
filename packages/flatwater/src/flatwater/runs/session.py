"""Start a run, or resume it: both train in the same loop, over a state that is new or restored."""

import json
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from flatwater.checkpoints.manifest import Manifest, fact_differences
from flatwater.checkpoints.reader import list_checkpoints, newest_intact, restore_state_
from flatwater.config.mappings import from_mapping, to_mapping
from flatwater.envs.makers import ENV, check_handed_env
from flatwater.envs.open_envs import close_open_envs
from flatwater.memory.planner import plan_summary
from flatwater.metrics.console import ConsoleTable
from flatwater.mirror.download import fetch_run
from flatwater.mirror.opening import open_mirror
from flatwater.mirror.uploader import Mirror, NoMirror
from flatwater.recipe import Recipe, recipe_of_config, recipe_of_settings
from flatwater.rundir.description import write_description
from flatwater.rundir.events import FINISHED, RunEvents, RunLog
from flatwater.rundir.inexact_reasons import read_inexact_reasons
from flatwater.rundir.layout import RunFolder, create_folder, hold_lock, open_folder, recorded_rounds, write_config
from flatwater.rundir.origin import read_origin, rounds_before_fork, write_origin
from flatwater.rundir.results import has_newest_result
from flatwater.runs.callbacks import Callbacks, OnRound, find_callbacks
from flatwater.runs.fingerprint import (
    changed_sources,
    describe_version_changes,
    run_facts,
    saved_run_facts,
    version_facts,
)
from flatwater.runs.fork import Parent, compose_as_begun, compose_fork, copy_history, find_parent
from flatwater.runs.machine import keep_freed_memory, use_threads
from flatwater.runs.profiling import check_profiled_rounds, run_with_traces
from flatwater.runs.recorder import build_recorder
from flatwater.runs.run import Run
from flatwater.runs.settings_checks import check_machine, check_settings, with_changes
from flatwater.runs.signals import stop_on_signals
from flatwater.runs.trust import permit_run, remember_run
from flatwater.sources import current_folder
from flatwater.state.garbage import freeze_gc
from flatwater.storage.objects import is_url
from flatwater.trainers.logged_numbers import OnEpisode
from flatwater.trainers.loop import train_
from flatwater_watch.errors import CheckpointError, ConfigError, RunError
from flatwater_watch.events.background import ShowLine
from flatwater_watch.events.command import EventCommand
from flatwater_watch.events.event import Listener
from flatwater_watch.files.directory import write_object
from flatwater_watch.files.regular_files import RESULT_BYTES, read_regular
from flatwater_watch.phrases import count_phrase

BUILDING_STATUS = "reading the data and allocating the run …"
BUDGET_EXIT = 4
"""Exit code of a run that stopped at its budget. It is not 1 (an error) or 2 (a wrong command), so that a job script
can raise the budget and resume."""


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended."""

    folder: RunFolder
    finished: bool
    """False if a signal stopped it; it can be resumed."""
    exit_code: int
    """0, 4 at the memory budget, or 128 and the signal's number: 143 after SIGTERM."""
    recipe: Recipe
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
        parent: the run whose state the new run goes on from; None for a run that is not a fork.
    """
    events, home = RunEvents(console, [*listeners]), current_folder()
    with events.report_ending():
        checked_settings = check_settings(config, Callbacks(on_round, on_episode))
        # 0 threads becomes a number now, which a resume uses again: with other threads the last bits of sums differ.
        config = replace(checked_settings.config, threads=use_threads(config.threads))
        if profile is not None:
            check_profiled_rounds(profile, 0 if parent is None else parent.origin.round, config.rounds)
        attach_event_command_(events, config)
        # The state is allocated before the folder is made: a run that does not fit leaves no folder.
        with console.status(BUILDING_STATUS):
            composed_run = _compose_new(config, parent, profile, events.show_line)
        # `taken_names` are those of runs at the mirror's URL, which a new run must not overwrite.
        folder = create_folder(run, config.trainer, checked_settings.taken_names, home)
        # The lock before the mirror: only the lock's holder may send to the URL or write the folder's files.
        with (
            hold_lock(folder) as locked_folder,
            open_mirror(config.mirror, config.checkpoints, locked_folder, events) as mirror,
        ):
            _begin_folder(composed_run, locked_folder, events, parent)
            callbacks = checked_settings.callbacks
            return train(
                composed_run, locked_folder, events, is_new=True, mirror=mirror, callbacks=callbacks, profile=profile
            )


def _begin_folder(composed_run: Run, folder: RunFolder, events: RunEvents, parent: Parent | None) -> None:
    """Write a new run's files before its first round, and print its folder, policy and environment."""
    if parent is not None:
        write_origin(folder, parent.origin)
    else:
        # A fork that was killed before its first round may have left the file in this folder.
        folder.origin.unlink(missing_ok=True)
    write_config(composed_run.config, folder.config)
    events.listeners.append(RunLog(folder.log))
    # Before training, so that the record exists even if the run is killed in its first round.
    remember_run(folder, events.show_line)
    place = escape(str(folder.with_current_name.path))
    print_line(events.console, f"run folder [bold]{place}[/]")
    for line in (describe_run(composed_run), *composed_run.about()):
        events.console.print(line, highlight=False, markup=False)
    if parent is not None:
        copy_history(parent, folder, events.show_line)


def _compose_new(config: Any, parent: Parent | None, profile: range | None, say: ShowLine) -> Run:  # noqa: ANN401  (a RunConfig of any recipe)
    """Return a run before its first round, with room for the traces of `profile`; a fork has its parent's state."""
    if parent is not None:
        return run_with_traces(compose_fork(config, parent, say), profile)
    composed_run = run_with_traces(recipe_of_config(config).compose(config), profile)
    composed_run.begin_()
    return composed_run


def read_config(
    folder: RunFolder, *, where: Path | str | None = None, trains: bool = False, replaced_names: Collection[str] = ()
) -> Any:  # noqa: ANN401  (a RunConfig of any recipe)
    """Return the configuration of a run, once the user's own record or `--trust` permits the code that it names.

    Args:
        folder: folder of the run.
        where: the run as the user names it, for messages, such as its URL; None for the folder's path.
        trains: whether the run will be trained: then trackers and the command for events count as code as well.
        replaced_names: names of settings to which the user gives other values now.

    Raises:
        ConfigError: the folder has no settings that fit a recipe.
        TrustError: the code may be somebody else's, see `runs.trust`.
    """
    source = where or folder.with_current_name.path
    settings, permit = permit_run(folder, source, trains=trains, replaced_names=replaced_names)
    file = str(folder.with_current_name.config)
    config_class = recipe_of_settings(settings, file, permit).config
    # `former_tables`: tables that a run of an earlier version does not have, with the values that held then.
    return from_mapping(config_class, {**config_class.former_tables, **settings}, file)


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
    """Resume a run from its newest intact checkpoint, bit for bit, and train it to its end.

    Args:
        run: folder of the run, or the URL at which it is mirrored.
        console: console on which the run is shown.
        into: folder for a run that is brought from a URL; None takes `runs/NAME`.
        listeners: get each event, besides the run's own log.
        on_round: called after each round, in place of the function that the settings name.
        on_episode: called after each finished episode, in place of the function that the settings name.
        profile: rounds that are recorded with torch's profiler.
        changes: new values of settings that may change, such as `rounds` or `budget`; None leaves a setting as it was.
    """
    events = RunEvents(console, [*listeners])
    with events.report_ending():
        is_remote = is_url(run)
        if is_remote:
            # A run from a URL is mirrored to the same URL again, unless the user gives another: `mirror` is its parent.
            changes["mirror"] = changes.get("mirror") or str(run).rstrip("/").rpartition("/")[0]
            with console.status(f"downloading {run} …"):
                run = fetch_run(str(run), into, events.show_line).path
        folder = open_folder(Path(run))
        # Locked before anything is read: another process that trains the run would change it meanwhile.
        with hold_lock(folder) as locked_folder:
            changed_names = {name for name, value in changes.items() if value is not None}
            config = with_changes(read_config(folder, trains=True, replaced_names=changed_names), changes)
            config = recipe_of_config(config).prepare(config)
            check_machine(config)
            callbacks = find_callbacks(config, Callbacks(on_round, on_episode))
            use_threads(config.threads)
            attach_event_command_(events, config)
            events.listeners.append(RunLog(locked_folder.log))
            with open_mirror(config.mirror, config.checkpoints, locked_folder, events) as mirror:
                return _resume_run(config, locked_folder, events, mirror=mirror, callbacks=callbacks, profile=profile)


def attach_event_command_(events: RunEvents, config: Any) -> None:  # noqa: ANN401  (a RunConfig of any recipe)
    """Add the user's command `on_event` to the listeners of the run, if the settings have one."""
    if config.on_event is not None and config.on_event.strip():
        events.listeners.append(EventCommand(config.on_event, events.show_line))


def _resume_run(
    config: Any,  # noqa: ANN401  (a RunConfig of any recipe)
    folder: RunFolder,
    events: RunEvents,
    *,
    mirror: Mirror | NoMirror,
    callbacks: Callbacks,
    profile: range | None,
) -> RunOutcome:
    """Train a locked run from its newest intact checkpoint, or its beginning without one; tell a finished run's result.

    Raises:
        ConfigError: the run has more rounds than the settings ask for.
    """
    recipe = recipe_of_config(config)
    # Recorded rounds without a checkpoint mean that checkpoints were lost: such a run must not start again and
    # overwrite its records. It is refused in `restore_run`.
    if not list_checkpoints(folder.checkpoints) and recorded_rounds(folder) <= rounds_before_fork(folder):
        events.show_line("the run was stopped before its first checkpoint and starts from the beginning", style="")
        composed_run = _recompose_unsaved_run(config, folder, profile, events)
        write_config(config, folder.config)
        remember_run(folder, events.show_line)
        return train(composed_run, folder, events, is_new=True, mirror=mirror, callbacks=callbacks, profile=profile)
    with events.console.status(BUILDING_STATUS):
        composed_run, manifest = restore_run(config, folder, events.show_line)
    if config.rounds < manifest.round:
        raise ConfigError(
            f"--rounds {config.rounds}: the run has {manifest.round} {recipe.layout.rounds} already. "
            f"Give {manifest.round} or more."
        )
    if profile is not None:
        check_profiled_rounds(profile, manifest.round, config.rounds)
    composed_run = run_with_traces(composed_run, profile)
    # Before the configuration is written: with other settings the run is scored again.
    is_unchanged = manifest.round == config.rounds and config == read_config(folder)
    is_scored = is_unchanged and has_newest_result(folder, recipe, manifest.round, manifest.file)
    # After the restore: a resume that is refused leaves the folder's configuration as it was.
    write_config(config, folder.config)
    remember_run(folder, events.show_line)
    mirror.offer(manifest.file)  # the process before may have ended before its last checkpoint was sent
    progress_phrase = f"{manifest.round} of {config.rounds} {recipe.layout.rounds} done"
    if is_scored:
        mirror.run_finished()
        return _announce_finished(composed_run, folder, events, progress_phrase)
    # With what the plan notes: a policy that is compiled again takes as long as at the start.
    print_line(events.console, f"resuming [bold]{escape(str(folder.path))}[/]: {progress_phrase}")
    for line in (describe_run(composed_run), *composed_run.plan.notes):
        events.console.print(line, highlight=False, markup=False)
    return train(composed_run, folder, events, is_new=False, mirror=mirror, callbacks=callbacks, profile=profile)


def _announce_finished(composed_run: Run, folder: RunFolder, events: RunEvents, progress_phrase: str) -> RunOutcome:
    """Close a run that has finished, and announce its result again."""
    composed_run.close()
    events.show_line(f"the run has finished, {progress_phrase}. Go on by: {resume_command(folder)} --rounds N")
    recipe = recipe_of_config(composed_run.config)
    return announce_end(RunOutcome(folder.with_current_name, True, 0, recipe), composed_run, events)  # noqa: FBT003


def _recompose_unsaved_run(config: Any, folder: RunFolder, profile: range | None, events: RunEvents) -> Run:  # noqa: ANN401  (a RunConfig of any recipe)
    """Return a run that was stopped before its first checkpoint, built as at its start; a fork from its parent."""
    origin = read_origin(folder)
    parent = None  # unless the run is a fork
    with events.console.status(BUILDING_STATUS):
        if origin is not None:
            parent_folder = open_folder(Path(origin.parent))
            parent_config = read_config(parent_folder, trains=True, replaced_names=origin.changed)
            parent = find_parent(parent_folder, parent_config, config, origin.round, events.show_line)
        composed_run = _compose_new(config, parent, profile, events.show_line)
    if parent is not None:
        copy_history(parent, folder, events.show_line)
    return composed_run


def restore_run(
    config: Any,  # noqa: ANN401  (a RunConfig of any recipe)
    folder: RunFolder,
    say: ShowLine,
) -> tuple[Run, Manifest]:
    """Build a run and write its newest intact checkpoint into it. Returns the run, and the checkpoint's manifest.

    Raises:
        CheckpointError: there is no intact checkpoint, or it is of another configuration or other data.
        ConfigError: another environment than the run's is handed over.
    """
    check_handed_env(to_mapping(config).get(ENV))
    intact = newest_intact(folder.checkpoints, say=say)
    if intact is None:
        raise CheckpointError(
            f"{folder.with_current_name.checkpoints}: no intact checkpoint. "
            "Restore the folder from a backup, or repeat "
            f"the run with: flatwater train {config.trainer} --config {folder.with_current_name.config} --run FOLDER"
        )
    manifest = intact.manifest
    # On the data that the run began with: a panel may have more days by now.
    composed_run = compose_as_begun(config, read_config(folder), manifest.facts.get("data"))
    # Settings and data are compared before the checkpoint overwrites the run's state.
    current_facts = run_facts(composed_run)
    differences = fact_differences(saved_run_facts(manifest.facts, config, current_facts), current_facts)
    if differences:
        lines = "\n".join(f"  {line}" for line in differences)
        raise CheckpointError(
            f"{folder.path}: the configuration or the data differ from the checkpoint.\n{lines}\n"
            f"Put {folder.with_current_name.config} or the data back as they were. To go on with other settings: "
            f"flatwater fork {folder.with_current_name.path} --SETTING VALUE"
        )
    if modules := changed_sources(manifest.facts.get("sources"), config):
        say(f"the text of {'; '.join(modules)} has changed: the numbers may change from this round on")
    if changed_versions := describe_version_changes(manifest.facts.get("versions")):
        say(
            f"{'; '.join(changed_versions)}: nothing is lost, but the last bits of the numbers may "
            "differ from this round on"
        )
    # Before `rebuild_`, which asks whether the run was exact so far.
    composed_run.doubts.extend(read_inexact_reasons(folder))
    restore_state_(composed_run.trainer.run, intact)
    composed_run.rebuild_()
    return composed_run, manifest


def describe_run(composed_run: Run) -> str:
    """Return a line that names the policy, its environment or data, the device and the number of threads."""
    return f"{composed_run.describe()}, {composed_run.device}, {count_phrase(composed_run.config.threads, 'thread')}"


def resume_command(folder: RunFolder) -> str:
    """Return the command line that resumes the run, with the path that its folder has now."""
    return f"flatwater resume {folder.with_current_name.path}"


def print_line(console: Console, line: str) -> None:
    """Print a line, with rich's markup, without wrapping it: a wrapped path cannot be copied."""
    console.print(line, highlight=False, markup=True, soft_wrap=True)


def train(
    run: Run,
    folder: RunFolder,
    events: RunEvents,
    *,
    is_new: bool,
    mirror: Mirror | NoMirror,
    callbacks: Callbacks,
    profile: range | None = None,
) -> RunOutcome:
    """Train a composed run and score it; a signal or the memory budget stops it earlier, with a checkpoint.

    Args:
        run: a run, new or restored.
        folder: folder of the run, as `hold_lock` gives it.
        events: shows the run, and tells listeners of it.
        is_new: whether there is no checkpoint yet, so that a first checkpoint is written.
        mirror: sends each checkpoint; the caller closes it.
        callbacks: the user's functions.
        profile: rounds that are recorded with torch's profiler.
    """
    trainer, config, console = run.trainer, run.config, events.console
    recipe = announce_start(run, folder, events, is_new=is_new)
    keep_freed_memory()
    with (
        freeze_gc(),
        stop_on_signals(console) as stop,  # from here on a signal ends the run with a checkpoint
        _open_table(run, console, recipe) as table,
    ):
        recorder = build_recorder(run, folder, table, events=events, stop=stop, mirror=mirror, callbacks=callbacks)
        try:
            recorder.begin_(save=is_new, profiled_rounds=profile or range(0))
            is_done = train_(trainer, config.rounds, recorder) and not stop.signal  # a signal also skips the scoring
            if not is_done:
                recorder.save()
                recorder.explain_stop()
        except RunError:
            events.show_line(f"the run ends here. Correct this, and go on with: {resume_command(folder)}", style="")
            raise
        finally:
            recorder.close()  # after an error as well: flushes the records and ends the trackers' threads
    if is_done:
        with console.status("playing the trained policy against the baselines …"):
            run.write_result(folder)
        mirror.run_finished()  # after the result is written, so that the result is sent as well
    else:
        print_line(console, escape(f"stopped. Go on with: {resume_command(folder)}"))
    recorder.recipe_parts.write_()
    code = 0 if is_done else BUDGET_EXIT if recorder.contract.breach else stop.exit_code  # `breach` is 0 without one
    return announce_end(RunOutcome(folder.with_current_name, is_done, code, recipe, stop.signal), run, events)


def _open_table(run: Run, console: Console, recipe: Recipe) -> ConsoleTable:
    """Return the table of a run's rounds."""
    early_phases = {phase.name for phase in run.trainer.phases if phase.may_end_early}
    done = run.trainer.progress.round
    return ConsoleTable(run.config.rounds, console, recipe.layout, rounds_done=done, early_phases=early_phases)


def announce_start(composed_run: Run, folder: RunFolder, events: RunEvents, *, is_new: bool) -> Recipe:
    """Write the run's plan and description into its folder, and announce its start. Returns the run's recipe."""
    config = composed_run.config
    recipe = recipe_of_config(config)
    # Written before the announcement, so that a listener which reads the folder then finds both files.
    write_object(folder.plan, json.dumps(composed_run.plan.to_json(), indent=1).encode() + b"\n")
    write_description(folder, recipe, to_mapping(config))
    events.console.print(plan_summary(composed_run.plan), highlight=False, markup=False)
    round_ = composed_run.trainer.progress.round
    path = folder.with_current_name.path
    beginning = "new run" if is_new else f"resumed at {round_} of {config.rounds} {recipe.layout.rounds}"
    events.notify_listeners(
        "start",
        f"{beginning}, {path}: {describe_run(composed_run)}. {plan_summary(composed_run.plan)}",
        run=str(path.absolute()),
        name=path.absolute().name,
        trainer=config.trainer,
        tag=config.tag,
        resumed=not is_new,
        done=round_,
        rounds=config.rounds,
        budget=composed_run.plan.budget_bytes,
        pid=os.getpid(),
        versions=version_facts(),
    )
    return recipe


def announce_end(outcome: RunOutcome, composed_run: Run, events: RunEvents) -> RunOutcome:
    """Send the listeners the event `end`, with the result of a finished run. Returns the outcome unchanged."""
    config, rounds_done = composed_run.config, composed_run.trainer.progress.round
    ending = FINISHED if outcome.finished else f"stopped, go on with: {resume_command(outcome.folder)}"
    result = None
    if outcome.finished:
        # From the file, so that the listener gets the same result as readers of the folder.
        result = json.loads(read_regular(outcome.folder.result, RESULT_BYTES, follow_links=False))
    events.notify_listeners(
        "end",
        f"{ending} ({rounds_done} of {config.rounds} {recipe_of_config(config).layout.rounds}, "
        f"exit code {outcome.exit_code})",
        run=str(outcome.folder.path.absolute()),
        finished=outcome.finished,
        exit_code=outcome.exit_code,
        done=rounds_done,
        rounds=config.rounds,
        result=result,
    )
    return outcome
