"""The checkpoints in a folder: lists them, finds the newest intact one, and removes old ones. It does not need torch.

When checkpoints are removed, their manifests are removed first, then the folder is flushed to the disk, and then shards
are removed that no manifest names any more. So a kill between two steps leaves unneeded files, but never a checkpoint
without its shards.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache
from pathlib import Path

from flatwater.checkpoints.config import CheckpointConfig
from flatwater.checkpoints.manifest import Manifest, manifest_files, read_manifest, shard_path
from flatwater.checkpoints.verification import (
    ShardReader,
    VerifiedCheckpoint,
    examine_checkpoint,
    find_quick_problems,
    read_shard,
)
from flatwater_watch.events.background import ShowLine
from flatwater_watch.files.directory import explain_os_errors, remove_strays, stray_files, sync_folder
from flatwater_watch.phrases import count_phrase


def list_checkpoints(folder: Path) -> list[Manifest]:
    """Return the manifest of every checkpoint in `folder`, newest last; `damage` of a damaged manifest says why.

    Args:
        folder: the `checkpoints` folder of a run; it may be missing.
    """
    return [read_manifest(file) for file in manifest_files(folder)]


def list_verified_checkpoints(folder: Path) -> list[tuple[Manifest, list[str]]]:
    """Return every checkpoint in `folder` with a list of its problems, empty if it is intact; reads all shards."""
    read_once = cache(read_shard)  # a shard of several checkpoints is read once
    return [(manifest, find_damage(folder, manifest, read_once)) for manifest in list_checkpoints(folder)]


def find_damage(folder: Path, manifest: Manifest, read_one: ShardReader = read_shard) -> list[str]:
    """Return the problems of a checkpoint; empty if its manifest and every byte of its shards are intact.

    `read_one` reads every shard once, 4 MiB at a time.
    """
    outcome = examine_checkpoint(folder, manifest, read_one)
    return [] if isinstance(outcome, VerifiedCheckpoint) else outcome


def newest_intact(
    folder: Path, *, say: ShowLine, is_wanted: Callable[[Manifest], bool] = lambda _: True
) -> VerifiedCheckpoint | None:
    """Return the newest intact checkpoint, verified; None if there is none.

    Args:
        folder: the `checkpoints` folder of a run.
        is_wanted: returns whether a checkpoint with this manifest may be taken.
        say: gets whole sentences about an interrupted save, each checkpoint that is skipped and why, and the checkpoint
            that is used instead.
    """
    stray_count = len(stray_files(folder)) + len(stray_files(folder / "objects"))
    if stray_count:
        say(f"An interrupted save left {count_phrase(stray_count, 'unfinished file')} in {folder}: ignored.")
    # From the newest back until one is intact, as each check reads whole shards.
    for skipped_count, manifest in enumerate(filter(is_wanted, reversed(list_checkpoints(folder)))):
        outcome = examine_checkpoint(folder, manifest, read_shard)
        if isinstance(outcome, VerifiedCheckpoint):
            if skipped_count:
                say(f"Checkpoint {manifest.file.name} (round {manifest.round}) is intact and is used instead.")
            return outcome
        more_problems = f" and {count_phrase(len(outcome) - 1, 'more problem')}" if len(outcome) > 1 else ""
        state = "cannot be used" if manifest.unread else "is damaged"
        say(f"Checkpoint {manifest.file.name} {state} and is skipped: {outcome[0]}{more_problems}.")
    return None


def checkpoints_to_keep(manifests: Sequence[Manifest], config: CheckpointConfig) -> list[Manifest]:
    """Return the manifests that `config` keeps, newest last: the newest, if any, and older ones between two rounds.

    An older checkpoint within a round is not kept: a resume from the checkpoint before it leads to the same state.
    """
    if not manifests:
        return []
    *older_checkpoints, newest = manifests
    between_rounds = [manifest for manifest in older_checkpoints if manifest.step == 0]
    recent_count = config.keep - 1  # `keep` includes the newest
    # Not `[-recent_count:]`, which would be all of them for 0.
    recent_checkpoints = between_rounds[max(0, len(between_rounds) - recent_count) :]
    every = config.keep_every  # 0 keeps no older ones for good
    lasting_checkpoints = [
        old for old in between_rounds if every and old.round % every == 0 and old not in recent_checkpoints
    ]
    return [*lasting_checkpoints, *recent_checkpoints, newest]


def prune_checkpoints(
    folder: Path, new_file: Path, config: CheckpointConfig, protected_files: Collection[Path] = ()
) -> None:
    """Remove the checkpoints that `config` does not keep, after the checkpoint `new_file` was written.

    Damaged checkpoints are removed too, unless their manifest could not be read this time. Checkpoints later than
    `new_file` are removed as well: they were damaged, as the run was resumed from an earlier one.

    Args:
        folder: folder of the checkpoints; it may have been removed.
        new_file: file of the manifest that was written last.
        config: rules for the checkpoints that stay.
        protected_files: files of manifests whose checkpoints are being read, and stay this time.
    """
    manifests = list_checkpoints(folder)
    saved_index = next((index for index, manifest in enumerate(manifests) if manifest.file == new_file), None)
    if saved_index is None:  # the folder was deleted meanwhile, which the next write will report
        return
    # Only checkpoints up to `new_file` are counted, as a damaged later one must not push out a good one.
    intact = [manifest for manifest in manifests[: saved_index + 1] if not find_quick_problems(folder, manifest)]
    # An unread manifest may be of a later version of Flatwater, which alone may remove it.
    kept_files = {manifest.file for manifest in checkpoints_to_keep(intact, config)} | {*protected_files}
    unwanted_checkpoints = [old for old in manifests if old.file not in kept_files and not old.unread]
    others = [manifest for manifest in manifests if manifest not in unwanted_checkpoints]
    remove_checkpoints(folder, unwanted_checkpoints, others)


def remove_checkpoints(
    folder: Path, unwanted_checkpoints: Iterable[Manifest], others: Sequence[Manifest] | None = None
) -> int:
    """Remove checkpoints, and the shards that no other checkpoint needs. Returns the bytes of the removed shards.

    Args:
        folder: folder of the checkpoints.
        unwanted_checkpoints: checkpoints to remove.
        others: all other checkpoints in the folder; None reads them.
    """
    with explain_os_errors(folder):
        for manifest in unwanted_checkpoints:
            manifest.file.unlink(missing_ok=True)
        # Flushed before any shard is removed: after a power cut no manifest may be back without its shards.
        sync_folder(folder)
    return remove_orphan_shards(folder, others)


def remove_orphan_shards(folder: Path, manifests: Sequence[Manifest] | None = None) -> int:
    """Remove shards that no manifest in `folder` names, and unfinished files of dead processes.

    No shard is removed while a manifest is damaged or cannot be read, as it may name any of them.

    Args:
        folder: folder of the checkpoints.
        manifests: all checkpoints in the folder; None reads them.

    Returns the bytes of the removed shards.
    """
    manifests = list_checkpoints(folder) if manifests is None else manifests
    needed_paths = {shard_path(folder, shard.sha256) for manifest in manifests for shard in manifest.shards}
    freed_bytes = 0
    if not any(manifest.damage for manifest in manifests):
        with explain_os_errors(folder):
            for path in (folder / "objects").glob("*.safetensors"):
                if path not in needed_paths:
                    freed_bytes += path.stat().st_size
                    path.unlink()
    # Only files of dead processes, as a living one will still rename its file.
    remove_strays(folder)
    remove_strays(folder / "objects")
    return freed_bytes
