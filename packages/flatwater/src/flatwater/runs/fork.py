"""A fork: a new run that goes on from another run's exact state with other settings; the other run is only read.

A fork's state is the parent's, but for numbers and generators whose initial values follow from changed settings, such
as a seed or a learning rate that is adapted later: these begin as the new settings say.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from flatwater.checkpoints.catalogue import list_checkpoints, newest_intact
from flatwater.checkpoints.manifest import fact_differences
from flatwater.checkpoints.reader import LeavesDifferError, list_lines, restore_state_
from flatwater.checkpoints.verification import VerifiedCheckpoint
from flatwater.config.mappings import flat_settings, to_mapping, with_settings
from flatwater.envs.open_envs import close_open_envs
from flatwater.metrics.jsonl import survives_resume
from flatwater.recipe import Recipe, recipe_of_config
from flatwater.rundir.inexact_reasons import read_inexact_reasons
from flatwater.rundir.layout import RunFolder
from flatwater.rundir.origin import Origin, changed_settings
from flatwater.runs.config import PresetSettings
from flatwater.runs.run import Run
from flatwater.state.tree import Leaf, Scalar, is_immutable, leaves, set_scalar_
from flatwater_watch.errors import CheckpointError, ConfigError
from flatwater_watch.events.background import ShowLine
from flatwater_watch.files.directory import explain_os_errors, write_object
from flatwater_watch.files.regular_files import open_regular

MAXIMUM_LISTED = 4
"""Most leaves or facts that a message lists, as the names of the settings say more."""


@dataclass(frozen=True)
class Parent:
    """The run that a fork goes on from."""

    folder: RunFolder
    config: Any
    """Settings of the parent."""
    checkpoint: VerifiedCheckpoint
    """State of the parent between two rounds."""
    origin: Origin
    """Record of the parent, the round and the changed settings, for the fork's folder."""


def find_parent(folder: RunFolder, parent_config: Any, config: Any, round_: int | None, say: ShowLine) -> Parent:  # noqa: ANN401  (a RunConfig of any recipe)
    """Return the parent of a fork, with its newest intact checkpoint between two rounds.

    Args:
        folder: folder of the parent.
        parent_config: settings of the parent.
        config: settings of the fork.
        round_: round of the wanted checkpoint; None for the newest.
        say: shows lines about checkpoints that cannot be used.

    Raises:
        CheckpointError: there is no such checkpoint, or config.toml was edited since it was saved.
        ConfigError: the fork would train nothing, or changes `from_run` or `preset`, which only a new run takes.
    """
    recipe = recipe_of_config(config)
    # Never within a round: other settings may give a round other steps.
    checkpoint = newest_intact(
        folder.checkpoints,
        say=say,
        is_wanted=lambda manifest: not manifest.step and round_ in (None, manifest.round),
    )
    if checkpoint is None:
        rounds = [manifest.round for manifest in list_checkpoints(folder.checkpoints) if not manifest.step]
        expected = f"expected {' or '.join(map(str, rounds))}" if rounds else "none is between two rounds"
        source = "no usable checkpoint" if round_ is None else f"--checkpoint {round_}"
        raise CheckpointError(f"{folder.path}: {source}: {expected}. See: flatwater checkpoints {folder.path}")
    rounds_done = checkpoint.manifest.round
    if config.rounds <= rounds_done:
        raise ConfigError(
            f"rounds = {config.rounds}: the run has {rounds_done} {recipe.layout.rounds} already at this checkpoint. "
            f"Give {rounds_done + 1} or more, with --rounds."
        )
    # A new fork's settings begin with the parent's value; those of a fork that is built again have None.
    if config.from_run not in (None, parent_config.from_run):
        raise ConfigError("--from-run: a fork goes on from the whole state of a run. Leave it out, or use `train`.")
    if isinstance(config, PresetSettings) and config.preset != parent_config.preset:
        raise ConfigError("--preset: a fork goes on with the settings of its run. Give those that shall be others.")
    parent_settings = flat_settings(to_mapping(parent_config))
    fork_settings = flat_settings(to_mapping(recipe.prepare(config)))  # as the fork's folder will have them
    changes = changed_settings(parent_settings, fork_settings)
    _require_unedited_settings(
        folder, parent_settings, checkpoint.manifest.facts.get("config"), parent_config.changeable_settings
    )
    origin = Origin(parent=str(folder.path.absolute()), round=rounds_done, changed=changes)
    return Parent(folder, parent_config, checkpoint, origin)


def _require_unedited_settings(
    folder: RunFolder, settings: Mapping[str, Any], checkpoint_settings: object, exempt_names: Collection[str]
) -> None:
    """Refuse a parent whose config.toml differs from its checkpoint, as the fork would list wrong changes.

    Args:
        folder: folder of the parent.
        settings: settings in its config.toml, by dotted name.
        checkpoint_settings: settings in its checkpoint.
        exempt_names: names of settings or tables that may differ.

    Raises:
        CheckpointError: somebody has edited the settings.
    """
    saved_settings = flat_settings(checkpoint_settings) if isinstance(checkpoint_settings, Mapping) else {}
    # Settings in both only: a later version of Flatwater may have added some.
    names = [name for name in saved_settings if name in settings and _first_name(name) not in exempt_names]
    differences = fact_differences(
        {name: saved_settings[name] for name in names}, {name: settings[name] for name in names}
    )
    if differences:
        raise CheckpointError(
            f"{folder.config}: not the settings of the checkpoint.{list_lines(differences, MAXIMUM_LISTED)}\n"
            "Put the file back as it was, and give what is to change as options of `flatwater fork`."
        )


def compose_fork(config: Any, parent: Parent, say: ShowLine) -> Run:  # noqa: ANN401  (a RunConfig of any recipe)
    """Return a fork: a run built with the fork's settings, then given the parent's state, ready for its next round.

    Raises:
        ConfigError: with these settings the leaves or the data differ from the parent's.
    """
    data = parent.checkpoint.manifest.facts.get("data")
    # Old and new value by name, without settings that change no number of the training, such as `rounds`.
    training_changes = {
        name: pair
        for name, pair in parent.origin.changed.items()
        if _first_name(name) not in config.changeable_settings
    }
    # The parent's initial run is built first, and released: two runs are never in memory.
    initial_values = _initial_values(parent.config, data) if training_changes else {}
    # Without `from_run`, which only the beginning of the parent needed: the whole state is restored below.
    composed_run = compose_as_begun(replace(config, from_run=None), parent.config, data)
    # Without the paths of data, which only a run that is built knows: its data are compared by content below.
    location_settings = composed_run.location_settings
    changes = {name: pair for name, pair in training_changes.items() if _first_name(name) not in location_settings}
    if changes:
        composed_run.begin_()  # tests the exactness of the environment, which may have changed
    else:
        composed_run.doubts.extend(read_inexact_reasons(parent.folder))  # the parent's doubts hold for the fork
    _require_data(composed_run, parent, changes)
    # Leaves that begin with another value under the new settings keep that value; all others get the parent's.
    kept_leaves = [
        (leaf, value)
        for leaf, value in _numbers_and_generators(composed_run.trainer.run)
        # By text, as NaN does not equal NaN.
        if leaf.path in initial_values and repr(initial_values[leaf.path]) != repr(value)
    ]
    try:
        restore_state_(composed_run.trainer.run, parent.checkpoint)
    except LeavesDifferError as error:
        raise _leaves_error(recipe_of_config(config), parent, changes, error) from error
    for leaf, value in kept_leaves:
        _write_value_(leaf, value)
    earlier_doubts = len(composed_run.doubts)
    composed_run.rebuild_()
    if changes:
        # New episodes begin once, with the fork, which is as exact as any run afterwards: the doubts are only shown.
        for doubt in composed_run.doubts[earlier_doubts:]:
            say(doubt)
        del composed_run.doubts[earlier_doubts:]
    return composed_run


def copy_history(parent: Parent, folder: RunFolder, say: ShowLine) -> None:
    """Copy the parent's records of the rounds before the fork into its folder, and show where the fork begins.

    Args:
        parent: the run whose records are read, line by line.
        folder: the fork.
        say: shows the sentence.
    """
    say(str(parent.origin))
    journal = recipe_of_config(parent.config).journal
    for name in ("metrics", "alarms", "ledger", "findings", journal):
        source = parent.folder.journal(name)
        target = folder.journal(name)
        with explain_os_errors(source):
            try:
                file = open_regular(source, follow_links=False)
            except FileNotFoundError:  # the parent wrote no such records
                continue
            with file:
                write_object(target, (line for line in file if survives_resume(line, parent.origin.round)))


def compose_as_begun(config: Any, parent_config: Any, data: object) -> Run:  # noqa: ANN401  (a RunConfig of any recipe)
    """Return a run with the settings `config`, on the data with which the parent began.

    Args:
        config: settings of the run.
        parent_config: settings of the run that began with the data.
        data: facts of the data in a checkpoint; a panel may have more days by now.
    """
    recipe = recipe_of_config(config)
    # With settings that cut grown data to the days of the beginning; only the building needs them.
    begun_config = recipe.begun_on(config, parent_config, data if isinstance(data, Mapping) else {})
    composed_run = recipe.compose(begun_config)
    return composed_run if begun_config == config else replace(composed_run, config=config)


def _first_name(setting: str) -> str:
    """Return the first name of a dotted setting: `checkpoints` of `checkpoints.keep`."""
    return setting.partition(".")[0]


def _numbers_and_generators(root: object) -> Iterator[tuple[Leaf, Scalar | bytes]]:
    """Yield the leaves of a state that are numbers or generators, with their values; a generator's value is bytes."""
    for leaf in leaves(root):
        if isinstance(leaf.value, torch.Generator):
            yield leaf, leaf.value.get_state().numpy().tobytes()
        # A number in a tuple or a frozen dataclass never changes.
        elif isinstance(leaf.value, Scalar) and not is_immutable(leaf.owner):
            yield leaf, leaf.value


@close_open_envs()
def _initial_values(config: Any, data: object) -> dict[str, Scalar | bytes]:  # noqa: ANN401  (a RunConfig of any recipe)
    """Return the initial numbers and generators of a run, by path; the run is built, read and released."""
    composed_run = compose_as_begun(config, config, data)
    try:
        return {leaf.path: value for leaf, value in _numbers_and_generators(composed_run.trainer.run)}
    finally:
        composed_run.close()


def _write_value_(leaf: Leaf, value: Scalar | bytes) -> None:
    """Write a value of `_numbers_and_generators` into a leaf."""
    if isinstance(value, bytes):
        assert isinstance(leaf.value, torch.Generator)  # noqa: S101  (for the type checker)
        leaf.value.set_state(torch.frombuffer(bytearray(value), dtype=torch.uint8))
    else:
        set_scalar_(leaf, value)


def _require_data(composed_run: Run, parent: Parent, changes: Mapping[str, Any]) -> None:
    """Refuse a fork whose data, or whose environment's spaces, differ from the parent's.

    Raises:
        ConfigError: data or spaces differ.
    """
    saved_data = parent.checkpoint.manifest.facts.get("data")
    lines = fact_differences({"data": saved_data}, {"data": dict(composed_run.data())})
    if lines:
        raise ConfigError(
            f"{_setting_names(changes, composed_run.config.trainer)}: {parent.folder.path} has learned from other data."
            f"{list_lines(lines, MAXIMUM_LISTED)}\n{_fork_remedy(parent, composed_run.config.trainer)}"
        )


def _leaves_error(
    recipe: Recipe, parent: Parent, changes: Mapping[str, tuple[Any, Any]], error: LeavesDifferError
) -> ConfigError:
    """Return the error about leaves that differ from the parent's; it names the settings that change leaves."""
    owners = recipe.plan(parent.config).owners
    # Each setting is planned alone, as only some change leaves. A plan has the bytes of every leaf, by path.
    culprits = [
        name
        for name, (_, new_value) in changes.items()
        if _changed_leaf_bytes(recipe, parent.config, name, new_value) != owners
    ]
    return ConfigError(
        f"{_setting_names(culprits or changes, recipe.name)}: the state of {parent.folder.path} would have other "
        "leaves, and a fork goes on with that "
        f"state.{list_lines(error.lines, MAXIMUM_LISTED)}\n{_fork_remedy(parent, recipe.name)}"
    )


def _changed_leaf_bytes(recipe: Recipe, config: Any, name: str, value: object) -> Mapping[str, int] | None:  # noqa: ANN401  (a RunConfig of any recipe)
    """Return the bytes of leaves by path with one setting changed; None if that change alone is refused."""
    try:
        return recipe.plan(with_settings(config, {name: value}, "the fork")).owners
    except (ConfigError, KeyError):
        return None


def _setting_names(changed_names: Collection[str], trainer: str) -> str:
    """Return the changed settings as options, for the beginning of a message; the recipe's name if none has changed."""
    return ", ".join(f"--{name.replace('_', '-')}" for name in changed_names) or trainer


def _fork_remedy(parent: Parent, trainer: str) -> str:
    """Return the end of a message: how to go on where a fork is refused."""
    return (
        "Leave these settings as they were, or begin a new run with its weights alone: flatwater train "
        f"{trainer} --from-run {parent.folder.path}"
    )
