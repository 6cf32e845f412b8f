"""The checkpoints in a folder: which are intact, which stay, and the removal of the others. It does not need torch.

When checkpoints are removed, manifests go first, the names of those that stay are flushed to the disk, and only then go
the shards that no manifest names any more: a kill between any two steps leaves files that nobody needs, never a
checkpoint without its shards.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from flatwater.checkpoints.config import CheckpointConfig
from flatwater.checkpoints.intact import (
    VerifiedCheckpoint,
    examine_checkpoint,
    find_quick_problems,
    make_caching_reader,
    read_shard,
)
from flatwater.checkpoints.manifest import Manifest, manifest_files, read_manifest, shard_path
from flatwater_watch.files.directory import explain_os_errors, remove_strays, stray_files, sync_folder


def list_checkpoints(folder: Path) -> list[Manifest]:
    """Return every checkpoint in `folder`, newest last; shards are not read, and `damage` tells of a damaged manifest.

    Args:
        folder: the `checkpoints` folder of a run. One that does not exist holds none.
    """
    return [read_manifest(file) for file in manifest_files(folder)]


def list_verified(folder: Path) -> list[tuple[Manifest, list[str]]]:
    """Return every checkpoint with its problems; a shard that several share is read once."""
    read_cached = make_caching_reader()
    examined = [(manifest, examine_checkpoint(folder, manifest, read_cached)) for manifest in list_checkpoints(folder)]
    return [(manifest, [] if isinstance(outcome, VerifiedCheckpoint) else outcome) for manifest, outcome in examined]


def find_damage(folder: Path, manifest: Manifest) -> list[str]:
    """Return the problems of a checkpoint; empty if its manifest and every byte of its shards are as written.

    Reads every shard once, 4 MiB at a time.
    """
    outcome = examine_checkpoint(folder, manifest, read_shard)
    return [] if isinstance(outcome, VerifiedCheckpoint) else outcome


def newest_intact(
    folder: Path, *, say: Callable[[str], None], is_wanted: Callable[[Manifest], bool] = lambda _: True
) -> VerifiedCheckpoint | None:
    """Return the newest checkpoint whose manifest and shards are as they were written; None if there is none.

    Args:
        folder: the `checkpoints` folder of a run.
        is_wanted: whether a checkpoint, by its manifest, may be taken.
        say: gets whole sentences about a save that was cut off, each checkpoint that is skipped and why, and
            the checkpoint that is used instead.
    """
    cut_off = len(stray_files(folder)) + len(stray_files(folder / "objects"))
    if cut_off:
        say(f"An interrupted save left {cut_off} unfinished file(s) in {folder}. They are ignored.")
    # From the newest back, and no further than needed: each look reads whole shards.
    for skipped, manifest in enumerate(filter(is_wanted, reversed(list_checkpoints(folder)))):
        outcome = examine_checkpoint(folder, manifest, read_shard)
        if isinstance(outcome, VerifiedCheckpoint):
            if skipped:
                say(f"Checkpoint {manifest.file.name} (round {manifest.round}) is intact and is used instead.")
            return outcome
        further = f" and {len(outcome) - 1} more problem(s)" if len(outcome) > 1 else ""
        state = "cannot be used" if manifest.unread else "is damaged"
        say(f"Checkpoint {manifest.file.name} {state} and is skipped: {outcome[0]}{further}.")
    return None


def checkpoints_to_keep(manifests: Sequence[Manifest], config: CheckpointConfig) -> list[Manifest]:
    """Return the `manifests` (newest last) that the policy keeps: always the newest, then whole rounds.

    A checkpoint inside a round is worth keeping only while it is the newest: resuming it and resuming the round before
    it lead to the same state.
    """
    if not manifests:
        return []
    *older, newest = manifests
    rounds = [manifest for manifest in older if manifest.step == 0]
    recent = rounds[max(0, len(rounds) - (config.keep - 1)) :]  # the newest is one of those kept
    lasting = [m for m in rounds if config.keep_every and m.round % config.keep_every == 0 and m not in recent]
    return [*lasting, *recent, newest]


def prune_checkpoints(folder: Path, saved: Path, config: CheckpointConfig, spared: Collection[Path] = ()) -> None:
    """Remove checkpoints that the policy does not keep, now that the checkpoint `saved` is on the disk.

    Damaged checkpoints are not counted and go, but for those that could not be read this time. So do checkpoints later
    than `saved`: the run was resumed from one before them, because they were damaged.

    Args:
        folder: folder of the checkpoints; a folder that is gone is left alone.
        saved: the manifest's file of the checkpoint that was written last.
        config: which checkpoints stay.
        spared: files of manifests whose checkpoints are being read by somebody: these stay this time.
    """
    manifests = list_checkpoints(folder)
    saved_index = next((index for index, manifest in enumerate(manifests) if manifest.file == saved), None)
    if saved_index is None:  # the folder was deleted in this very moment: whoever writes next finds that out
        return
    # Only checkpoints up to `saved` count, or a damaged later round would push a good checkpoint out.
    intact = [manifest for manifest in manifests[: saved_index + 1] if not find_quick_problems(folder, manifest)]
    # An unread manifest may be a later version's: only who reads it may remove it.
    kept_files = {manifest.file for manifest in checkpoints_to_keep(intact, config)} | {*spared}
    unwanted = [old for old in manifests if old.file not in kept_files and not old.unread]
    remove_checkpoints(folder, unwanted, [manifest for manifest in manifests if manifest not in unwanted])


def remove_checkpoints(folder: Path, unwanted: Iterable[Manifest], others: Sequence[Manifest] | None = None) -> int:
    """Remove checkpoints, and the shards that no other manifest names. Returns the bytes of the shards removed.

    Args:
        folder: folder of the checkpoints.
        unwanted: checkpoints to remove.
        others: all others, where they were just read; None reads them.
    """
    with explain_os_errors(folder):
        for manifest in unwanted:
            manifest.file.unlink(missing_ok=True)
        # Before any shard goes: after a power cut no manifest may be back whose shards are not.
        sync_folder(folder)
    return remove_orphan_shards(folder, others)


def remove_orphan_shards(folder: Path, manifests: Sequence[Manifest] | None = None) -> int:
    """Remove shards that no manifest in `folder` names, and unfinished files of writers that are dead.

    No shard goes while a manifest cannot be read: it may be good, and does not say which shards it needs.

    Args:
        folder: folder of the checkpoints.
        manifests: all checkpoints there, where they were just read; None reads them.

    Returns the bytes of the shards removed.
    """
    manifests = list_checkpoints(folder) if manifests is None else manifests
    needed_paths = {shard_path(folder, shard.sha256) for manifest in manifests for shard in manifest.shards}
    freed_bytes = 0
    # A manifest that cannot be read may name any of them.
    if not any(manifest.damage for manifest in manifests):
        with explain_os_errors(folder):
            for path in (folder / "objects").glob("*.safetensors"):
                if path not in needed_paths:
                    freed_bytes += path.stat().st_size
                    path.unlink()
    # Afterwards, and only of writers that are dead: a live writer still renames its file.
    remove_strays(folder)
    remove_strays(folder / "objects")
    return freed_bytes
