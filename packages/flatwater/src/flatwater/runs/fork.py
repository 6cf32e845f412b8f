"""A fork: a new run that goes on from another run's exact state with other settings; the other run is only read.

What follows from the settings and is in the state all the same (where generators begin, a rate that is adapted later)
is taken from the new settings where they change it; every other leaf is the parent's.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from flatwater.checkpoints.catalogue import list_checkpoints, newest_intact
from flatwater.checkpoints.intact import VerifiedCheckpoint
from flatwater.checkpoints.manifest import fact_differences
from flatwater.checkpoints.reader import LeavesDifferError, list_lines, restore_state_
from flatwater.config.toml import flat_settings, to_mapping, with_settings
from flatwater.envs.open_envs import close_open_envs
from flatwater.metrics.jsonl import survives_resume
from flatwater.recipe import Recipe, recipe_of_config
from flatwater.rundir.doubts import read_doubts
from flatwater.rundir.layout import RunFolder
from flatwater.rundir.origin import Origin, changed_settings
from flatwater.runs.run import Run
from flatwater.state.tree import Leaf, Scalar, is_immutable, leaves, set_scalar_
from flatwater_watch.errors import CheckpointError, ConfigError
from flatwater_watch.files.directory import explain_os_errors, write_object
from flatwater_watch.files.safe_read import open_regular

ShowLine = Callable[[str], None]
MAXIMUM_NAMED = 4
"""Leaves or facts that a message lists: the settings say more."""


@dataclass(frozen=True)
class Parent:
    """A run that another one goes on from."""

    folder: RunFolder
    config: Any
    """Settings of the run."""
    checkpoint: VerifiedCheckpoint
    """State of the run between two rounds."""
    origin: Origin
    """The fork's record of the run."""


def find_parent(folder: RunFolder, parent_config: Any, config: Any, round_: int | None, say: ShowLine) -> Parent:  # noqa: ANN401  (a RunConfig of any recipe)
    """Return the run to go on from, at its newest intact checkpoint between two rounds.

    Args:
        folder: the run.
        parent_config: settings of the run.
        config: settings of the fork.
        round_: round of the checkpoint to take instead; None for the newest.
        say: gets lines about checkpoints that cannot be used.

    Raises:
        CheckpointError: there is no such checkpoint.
        ConfigError: the fork would train nothing.
    """
    recipe = recipe_of_config(config)
    # Never within a round: the steps of a round follow from settings, and other settings may have others.
    manifest_found = newest_intact(
        folder.checkpoints, say=say, is_wanted=lambda m: not m.step and round_ in (None, m.round)
    )
    if manifest_found is None:
        rounds = [manifest.round for manifest in list_checkpoints(folder.checkpoints) if not manifest.step]
        expected = f"expected {' or '.join(map(str, rounds))}" if rounds else "none is between two rounds"
        source = "no usable checkpoint" if round_ is None else f"--checkpoint {round_}"
        raise CheckpointError(f"{folder.path}: {source}: {expected}. See: flatwater checkpoints {folder.path}")
    done = manifest_found.manifest.round
    if config.rounds <= done:
        raise ConfigError(
            f"rounds = {config.rounds}: the run has {done} {recipe.layout.rounds} already at this checkpoint. "
            f"Give {done + 1} or more, with --rounds."
        )
    # A fork's own settings have none: it may be made again, where it was killed before its first checkpoint.
    if config.from_run not in (None, parent_config.from_run):
        raise ConfigError("--from-run: a fork goes on from the whole state of a run. Leave it out, or use `train`.")
    before, now = flat_settings(to_mapping(parent_config)), flat_settings(to_mapping(recipe.prepare(config)))
    _require_unedited(folder, before, manifest_found.manifest.facts.get("config"), parent_config.open_ended)
    origin = Origin(parent=str(folder.path.absolute()), round=done, changed=changed_settings(before, now))
    return Parent(folder, parent_config, manifest_found, origin)


def _require_unedited(
    folder: RunFolder, settings: Mapping[str, Any], saved: object, exempt_names: Collection[str]
) -> None:
    """Refuse a run whose settings are not those of its checkpoint: changes would be told wrong.

    Raises:
        CheckpointError: somebody has edited the settings.
    """
    saved_settings = flat_settings(saved) if isinstance(saved, Mapping) else {}
    # A setting that is newer than the checkpoint is in one of both alone.
    names = [name for name in saved_settings if name in settings and _first_name(name) not in exempt_names]
    differences = fact_differences(*({name: each[name] for name in names} for each in (saved_settings, settings)))
    if differences:
        raise CheckpointError(
            f"{folder.config}: not the settings of the checkpoint.{list_lines(differences, MAXIMUM_NAMED)}\n"
            "Put the file back as it was, and give what is to change as options of `flatwater fork`."
        )


def compose_fork(config: Any, parent: Parent, say: ShowLine) -> Run:  # noqa: ANN401  (a RunConfig of any recipe)
    """Return a run with these settings and the parent's state, ready for its next round.

    Raises:
        ConfigError: the settings have other leaves, or other data, than the parent's state.
    """
    data = parent.checkpoint.manifest.facts.get("data")
    changed = {name: pair for name, pair in parent.origin.changed.items() if _first_name(name) not in config.open_ended}
    # Built first and released, so that two runs are never in memory.
    initial = _initial_values(parent.config, data) if changed else {}
    # Without the setting by which the parent may have begun: all of its state follows.
    composed = compose_as_begun(replace(config, from_run=None), parent.config, data)
    changed = {name: pair for name, pair in changed.items() if _first_name(name) not in composed.location_settings}
    if changed:
        composed.begin_()  # another environment may not be exact
    else:
        composed.doubts.extend(read_doubts(parent.folder))
    _require_data(composed, parent, changed)
    set_anew = [
        (leaf, value)
        for leaf, value in _settable(composed.trainer.run)
        if leaf.path in initial and repr(initial[leaf.path]) != repr(value)  # by text, as NaN is not NaN
    ]
    try:
        restore_state_(composed.trainer.run, parent.checkpoint)
    except LeavesDifferError as error:
        raise _tree_error(recipe_of_config(config), parent, changed, error) from error
    for leaf, value in set_anew:
        _set_(leaf, value)
    earlier_doubts = len(composed.doubts)
    composed.rebuild_()
    if changed:
        # In another environment new episodes begin here, once: from here on the fork is as exact as any run.
        for doubt in composed.doubts[earlier_doubts:]:
            say(doubt)
        del composed.doubts[earlier_doubts:]
    return composed


def copy_history(parent: Parent, folder: RunFolder, say: ShowLine) -> None:
    """Say where a fork begins, and copy the parent's records up to there, so that curves begin where the parent's do.

    Args:
        parent: the run whose records are read, line by line.
        folder: the new run.
        say: gets the sentence.
    """
    say(str(parent.origin))
    journal = recipe_of_config(parent.config).journal
    for name in ("metrics", "alarms", "ledger", "findings", journal):
        source = parent.folder.journal(name)
        target = folder.journal(name)
        with explain_os_errors(source):
            try:
                file = open_regular(source, follow=False)
            except FileNotFoundError:
                continue
            with file:
                write_object(target, (line for line in file if survives_resume(line, parent.origin.round)))


def compose_as_begun(config: Any, parent_config: Any, data: object) -> Run:  # noqa: ANN401  (a RunConfig of any recipe)
    """Return a run on the data that it began with, where there are more by now; its settings are `config`."""
    recipe = recipe_of_config(config)
    begun_config = recipe.begun_on(config, parent_config, data if isinstance(data, Mapping) else {})
    composed = recipe.compose(begun_config)
    return composed if begun_config == config else replace(composed, config=config)


def _first_name(setting: str) -> str:
    """Return the first part of a dotted path."""
    return setting.partition(".")[0]


def _settable(root: object) -> Iterator[tuple[Leaf, Scalar | bytes]]:
    """Yield the numbers and generators of a state, with their values."""
    for leaf in leaves(root):
        if isinstance(leaf.value, torch.Generator):
            yield leaf, leaf.value.get_state().numpy().tobytes()
        elif isinstance(leaf.value, Scalar) and not is_immutable(leaf.owner):
            yield leaf, leaf.value


@close_open_envs()
def _initial_values(config: Any, data: object) -> dict[str, Scalar | bytes]:  # noqa: ANN401  (a RunConfig of any recipe)
    """Return the numbers and generators of a run that is built for them, and released."""
    composed = compose_as_begun(config, config, data)
    try:
        return {leaf.path: value for leaf, value in _settable(composed.trainer.run)}
    finally:
        composed.close()


def _set_(leaf: Leaf, value: Scalar | bytes) -> None:
    """Write back a value of `_settable`."""
    if isinstance(value, bytes):
        assert isinstance(leaf.value, torch.Generator)  # noqa: S101  (for the type checker)
        leaf.value.set_state(torch.frombuffer(bytearray(value), dtype=torch.uint8))
    else:
        set_scalar_(leaf, value)


def _require_data(composed: Run, parent: Parent, changed: Mapping[str, Any]) -> None:
    """Refuse data, or an environment's spaces, that are not those of the parent.

    Raises:
        ConfigError: data or spaces differ.
    """
    saved = parent.checkpoint.manifest.facts.get("data")
    lines = fact_differences({"data": saved}, {"data": dict(composed.data())})
    if lines:
        raise ConfigError(
            f"{_setting_names(changed, composed.config.trainer)}: {parent.folder.path} has learned from other data."
            f"{list_lines(lines, MAXIMUM_NAMED)}\n{_fork_remedy(parent, composed.config.trainer)}"
        )


def _tree_error(
    recipe: Recipe, parent: Parent, changed: Mapping[str, tuple[Any, Any]], error: LeavesDifferError
) -> ConfigError:
    """Return the error that names the settings by which the leaves of the state differ."""
    owners = recipe.plan(parent.config).owners
    # Each by itself: of ten changed settings, one may be in the way. Bytes tell, as the plan has every leaf.
    culprits = [
        name for name, (_, now) in changed.items() if _changed_leaf_bytes(recipe, parent.config, name, now) != owners
    ]
    return ConfigError(
        f"{_setting_names(culprits or changed, recipe.name)}: the state of {parent.folder.path} would have other "
        "leaves, and a fork goes on with that "
        f"state.{list_lines(error.lines, MAXIMUM_NAMED)}\n{_fork_remedy(parent, recipe.name)}"
    )


def _changed_leaf_bytes(recipe: Recipe, config: Any, name: str, value: object) -> Mapping[str, int] | None:  # noqa: ANN401  (a RunConfig of any recipe)
    """Return the bytes of leaves with one setting changed; None if the setting cannot be changed alone."""
    try:
        return recipe.plan(with_settings(config, {name: value}, "the fork")).owners
    except (ConfigError, KeyError):
        return None


def _setting_names(changed: Collection[str], trainer: str) -> str:
    return ", ".join(f"--{name.replace('_', '-')}" for name in changed) or trainer


def _fork_remedy(parent: Parent, trainer: str) -> str:
    return (
        "Leave these settings as they were, or begin a new run with its weights alone: flatwater train "
        f"{trainer} --from-run {parent.folder.path}"
    )
