"""Removing checkpoints that are no longer wanted, in a folder or at a URL; the last good one is never among them."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from flatwater.checkpoints.catalogue import find_damage, list_checkpoints, remove_checkpoints
from flatwater.checkpoints.intact import find_quick_problems
from flatwater.checkpoints.manifest import Manifest
from flatwater.checkpoints.remote import is_intact, list_stored, missing_shards, read_remote, shard_name
from flatwater.mirror.download import no_run_error
from flatwater.rundir.layout import hold_lock, open_folder
from flatwater.storage.claims import take_lock
from flatwater.storage.objects import is_url, open_objects
from flatwater_watch.errors import CheckpointError, FlatwaterError

M = TypeVar("M")


@dataclass(frozen=True)
class PruneResult:
    """Numbers of a run's checkpoints that stayed, went, and could not be judged."""

    kept: int
    removed: int
    bytes: int
    """Bytes of the shards that were removed."""
    unread: int
    """Checkpoints that cannot be judged from here: they stay, with every shard."""


def prune_run(place: str | Path, keep: int) -> PruneResult:
    """Keep the newest `keep` checkpoints that are whole, and remove the others with the shards that only they name.

    The newest that is kept is read through: if a byte of it is wrong it does not count, and the checkpoint before it is
    kept.

    Args:
        place: a run folder, or the URL at which a run is mirrored.
        keep: at least 1.
    """
    return _prune_url(str(place), keep) if is_url(place) else _prune_folder(Path(place), keep)


def choose_newest_good(
    newest_last: Sequence[M], keep: int, *, is_whole: Callable[[M], bool], is_good: Callable[[M], bool]
) -> list[M]:
    """Return the newest `keep` that are whole, beginning with the newest that is good.

    Args:
        newest_last: checkpoints, or their names.
        keep: number of checkpoints that stay, at least 1.
        is_whole: whether all files are there with their sizes; asked of each.
        is_good: whether every byte is as written; asked from the newest back until one is.

    Raises:
        CheckpointError: no checkpoint is good.
    """
    candidates = [checkpoint for checkpoint in newest_last if is_whole(checkpoint)]
    # `is_good` reads every byte, so it is asked of as few as can be;
    # those before the newest are held to be `is_whole` only.
    while candidates and not is_good(candidates[-1]):
        candidates.pop()
    if not candidates:
        raise CheckpointError(
            f"none of the {len(newest_last)} checkpoint(s) is intact, so none was removed. Check them with: "
            "flatwater checkpoints RUN"
        )
    return candidates[-keep:]


def _prune_folder(path: Path, keep: int) -> PruneResult:
    """Prune the checkpoints of a run folder under its lock, as `prune_run` does."""
    run = open_folder(path)
    folder = run.checkpoints
    with hold_lock(run):  # a run in training removes by itself, and would read while files go
        manifests = list_checkpoints(folder)
        kept_manifests = choose_newest_good(
            manifests,
            keep,
            is_whole=lambda m: not find_quick_problems(folder, m),
            is_good=lambda m: not find_damage(folder, m),
        )
        unwanted = [m for m in manifests if m not in kept_manifests and not m.unread]
        freed_bytes = remove_checkpoints(folder, unwanted)
    return PruneResult(
        len(kept_manifests), len(unwanted), freed_bytes, len(manifests) - len(kept_manifests) - len(unwanted)
    )


def _prune_url(url: str, keep: int) -> PruneResult:
    """Prune the checkpoints of a run at a URL under the store's lock, as `prune_run` does.

    Raises:
        RunError: there is no run with checkpoints at the URL.
    """
    objects = open_objects(url)
    if not list_stored(objects)[0]:
        raise no_run_error(objects)
    # As for a writer: a run in training sends shards that no manifest names yet.
    lock, _ = take_lock(objects)
    try:
        # Listed again under the lock: the list before was only to see whether there is a run.
        names, sizes = list_stored(objects)
        checkpoints = {name: read_remote(objects, name) for name in names}

        def manifest(name: str) -> Manifest:
            return checkpoints[name]

        survivors = choose_newest_good(
            names,
            keep,
            is_whole=lambda name: not missing_shards(manifest(name), sizes),
            is_good=lambda name: is_intact(objects, manifest(name)),
        )
        needed = {shard_name(shard.sha256) for name in survivors for shard in manifest(name).shards}
        unwanted = [name for name in names if name not in survivors and not checkpoints[name].unread]
        unread = len(names) - len(survivors) - len(unwanted)
        # A manifest that cannot be read may need any shard.
        unneeded = [] if unread else [name for name in sizes if name not in needed]
        objects.remove(unwanted)  # manifests before shards, so that none is left without its shards
        objects.remove(unneeded)
    finally:
        with suppress(FlatwaterError):  # what went wrong before is what matters
            lock.release_()
    return PruneResult(len(survivors), len(unwanted), sum(sizes[name] for name in unneeded), unread)
