"""Removal of old checkpoints in a folder or at a URL; the newest intact checkpoint is never removed."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from flatwater.checkpoints.catalogue import find_damage, list_checkpoints, remove_checkpoints
from flatwater.checkpoints.remote import find_shard_problem, is_intact, list_stored_files, read_remote, shard_name
from flatwater.checkpoints.verification import find_quick_problems
from flatwater.mirror.download import no_run_error
from flatwater.rundir.layout import hold_lock, open_folder
from flatwater.storage.objects import is_url, open_objects
from flatwater.storage.url_lock import take_lock
from flatwater_watch.errors import CheckpointError, FlatwaterError
from flatwater_watch.phrases import count_phrase

M = TypeVar("M")


@dataclass(frozen=True)
class PruneResult:
    """Numbers of a run's checkpoints that were kept, were removed, and could not be read."""

    kept: int
    removed: int
    bytes: int
    """Bytes of the shards that were removed."""
    unread: int
    """Checkpoints whose manifests cannot be read: they stay, with every shard."""


def prune_run(place: str | Path, keep: int) -> PruneResult:
    """Keep the newest `keep` checkpoints that are whole, and remove the others with the shards that only they name.

    The newest checkpoint is kept only if every byte of it is right; otherwise the one before it is tried.

    Args:
        place: a run folder, or the URL at which a run is mirrored.
        keep: number of checkpoints that stay, at least 1.
    """
    return _prune_url(str(place), keep) if is_url(place) else _prune_folder(Path(place), keep)


def choose_newest_good(
    newest_last: Sequence[M], keep: int, *, is_whole: Callable[[M], bool], is_good: Callable[[M], bool]
) -> list[M]:
    """Return the newest good checkpoint and the whole ones before it, at most `keep`, newest last.

    Args:
        newest_last: checkpoints, or their names.
        keep: number of checkpoints that stay, at least 1.
        is_whole: whether all files are there with their sizes; asked of each.
        is_good: whether every byte is as written; asked from the newest back until one is.

    Raises:
        CheckpointError: no checkpoint is good.
    """
    candidates = [checkpoint for checkpoint in newest_last if is_whole(checkpoint)]
    # `is_good` reads every byte, so it is asked from the newest back until one is good; older ones must be whole alone.
    while candidates and not is_good(candidates[-1]):
        candidates.pop()
    if not candidates:
        raise CheckpointError(
            f"{count_phrase(len(newest_last), 'checkpoint')}, and none is intact: none was removed. Check them with: "
            "flatwater checkpoints RUN"
        )
    return candidates[-keep:]


def _prune_folder(path: Path, keep: int) -> PruneResult:
    """Prune the checkpoints of a run folder under its lock, as `prune_run` does."""
    run = open_folder(path)
    folder = run.checkpoints
    with hold_lock(run):  # a run in training removes checkpoints by itself, and reads them
        manifests = list_checkpoints(folder)
        kept_manifests = choose_newest_good(
            manifests,
            keep,
            is_whole=lambda manifest: not find_quick_problems(folder, manifest),
            is_good=lambda manifest: not find_damage(folder, manifest),
        )
        unwanted_checkpoints = [
            manifest for manifest in manifests if manifest not in kept_manifests and not manifest.unread
        ]
        freed_bytes = remove_checkpoints(folder, unwanted_checkpoints)
    unread_count = len(manifests) - len(kept_manifests) - len(unwanted_checkpoints)  # all others
    return PruneResult(
        kept=len(kept_manifests), removed=len(unwanted_checkpoints), bytes=freed_bytes, unread=unread_count
    )


def _prune_url(url: str, keep: int) -> PruneResult:
    """Prune the checkpoints of a run at a URL under the store's lock, as `prune_run` does.

    Raises:
        RunError: there is no run with checkpoints at the URL.
    """
    objects = open_objects(url)
    manifest_names, _shards = list_stored_files(objects)
    if not manifest_names:
        raise no_run_error(objects)
    # Locked against writers: a run in training sends shards before the manifest that names them.
    lock, _previous_holder = take_lock(objects)
    try:
        # Listed again under the lock: the list before was only to see whether there is a run.
        names, shard_bytes = list_stored_files(objects)
        manifests = {name: read_remote(objects, name) for name in names}
        kept_names = choose_newest_good(
            names,
            keep,
            is_whole=lambda name: not find_shard_problem(manifests[name], shard_bytes),
            is_good=lambda name: is_intact(objects, manifests[name]),
        )
        needed_shards = {shard_name(shard.sha256) for name in kept_names for shard in manifests[name].shards}
        unwanted_names = [name for name in names if name not in kept_names and not manifests[name].unread]
        unread_count = len(names) - len(kept_names) - len(unwanted_names)
        # A manifest that cannot be read may need any shard.
        unwanted_shards = [] if unread_count else [name for name in shard_bytes if name not in needed_shards]
        objects.remove(unwanted_names)  # manifests before shards, so that a kill leaves no manifest without its shards
        objects.remove(unwanted_shards)
    finally:
        with suppress(FlatwaterError):  # an error of the release would hide the error before it
            lock.release_()
    freed_bytes = sum(shard_bytes[name] for name in unwanted_shards)
    return PruneResult(kept=len(kept_names), removed=len(unwanted_names), bytes=freed_bytes, unread=unread_count)
