"""Saves a state tree as a checkpoint: shards first, each under the hash of its content, and the manifest last.

Contiguous leaves on the CPU are hashed and written from the run's own memory, without a copy. Other leaves are copied,
one shard at a time.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from flatwater.checkpoints.catalogue import prune_checkpoints, remove_orphan_shards
from flatwater.checkpoints.config import CheckpointConfig
from flatwater.checkpoints.manifest import (
    JSON,
    LeafRecord,
    Manifest,
    ShardRecord,
    encode_manifest,
    manifest_path,
    scalar_hash,
    shard_path,
)
from flatwater.checkpoints.payload import Payload, make_payload, payload_bytes, scalar_kind
from flatwater.checkpoints.shards import group_into_shards, shard_header
from flatwater.state.tree import Leaf, Scalar, leaves
from flatwater_watch.errors import RunError
from flatwater_watch.files.directory import PIECE_BYTES, FilePiece, explain_os_errors, write_object
from flatwater_watch.files.regular_files import open_regular


def save_checkpoint(
    folder: Path,
    root: object,
    *,
    round: int,
    step: int,
    facts: Mapping[str, JSON],
    config: CheckpointConfig,
    protected_files: Collection[Path] = (),
) -> Path:
    """Write every leaf of `root` that is not derived, then remove the checkpoints that `config` does not keep.

    When it returns, the whole checkpoint is on the disk. If it is killed before, the earlier checkpoints stay. A shard
    that exists already is not written again.

    Args:
        folder: the `checkpoints` folder of the run; created if it is missing.
        root: the state tree.
        round: number of complete rounds.
        step: number of complete steps of the next round; 0 between rounds.
        facts: facts about the run, to be compared when it is resumed. NaN and infinities become text.
        config: rules for the checkpoints that stay, and the size of shards.
        protected_files: manifests of checkpoints that stay whatever `config` keeps, as a mirror reads them.

    Returns:
        The manifest's path.

    Raises:
        RunError: the disk is full, or the folder cannot be written. Earlier checkpoints stay, and the files of this
            checkpoint are removed.
        TypeError: a leaf cannot be saved exactly; the message names its path.
    """
    try:
        records, shards = _write_leaves(folder, root, config.shard_bytes)
        manifest = Manifest(
            file=manifest_path(folder, round, step),
            round=round,
            step=step,
            saved=datetime.now(UTC).isoformat(timespec="seconds"),
            facts=facts,
            leaves=records,
            shards=shards,
        )
        write_object(manifest.file, encode_manifest(manifest))  # last, as its shards are on the disk by now
    except RunError:
        with suppress(RunError):  # a folder that cannot be written may not allow a removal either
            remove_orphan_shards(folder)
        raise
    prune_checkpoints(folder, manifest.file, config, protected_files)  # only now may an older checkpoint go
    return manifest.file


def _write_leaves(
    folder: Path, root: object, shard_bytes: int
) -> tuple[tuple[LeafRecord, ...], tuple[ShardRecord, ...]]:
    """Write all leaves that are not derived into shards. Returns records of leaves, in the tree's order, and of shards.

    Raises:
        TypeError: two leaves have the same path.
    """
    saved_leaves = [leaf for leaf in leaves(root) if not leaf.derived]  # derived leaves are computed again
    payloads = [payload for leaf in saved_leaves if (payload := make_payload(leaf)) is not None]
    shard_paths = {payload.leaf.path for payload in payloads}
    records = {leaf.path: _scalar_record(leaf) for leaf in saved_leaves if leaf.path not in shard_paths}
    # Leaves of equal path have one entry in `records` and `shard_paths`, so these have fewer entries than leaves.
    if len(records) + len(payloads) != len(saved_leaves) or len(shard_paths) != len(payloads):
        raise TypeError("two leaves of the state tree have the same path. Rename the dict keys with dots")
    shards: dict[str, ShardRecord] = {}
    for group in group_into_shards(payloads, shard_bytes):
        shard, shard_records = _write_shard(folder, group)
        shards[shard.sha256] = shard
        records |= shard_records
    return tuple(records[leaf.path] for leaf in saved_leaves), tuple(shards.values())


def _scalar_record(leaf: Leaf) -> LeafRecord:
    """Return the record of a scalar, whose value is in the manifest."""
    value = leaf.value
    assert isinstance(value, Scalar)  # noqa: S101  (other leaves have a payload)
    kind = scalar_kind(leaf.path, value)
    return LeafRecord(path=leaf.path, kind=kind, sha256=scalar_hash(kind, value), value=value)


def _write_shard(folder: Path, group: Sequence[Payload]) -> tuple[ShardRecord, dict[str, LeafRecord]]:
    """Write a group of leaves as one shard, unless it exists. Returns the shard's record, and its leaves' by path."""
    # Larger cells first, so that each leaf lies at a multiple of its cell's size; then by path, so that equal leaves
    # give an equal hash.
    sorted_group = sorted(group, key=lambda payload: (-payload.stored.itemsize, payload.leaf.path))
    header = shard_header({payload.leaf.path: payload.stored for payload in sorted_group})
    # Views of the run's own memory, which must not change before the file is written.
    leaf_bytes = [payload_bytes(payload) for payload in sorted_group]
    shard_digest = hashlib.sha256(header)
    leaf_digests = [hashlib.sha256() for _ in leaf_bytes]
    for data, leaf_digest in zip(leaf_bytes, leaf_digests, strict=True):
        # Piece by piece, so that a piece is still in the CPU's cache for the second hash.
        for begin in range(0, len(data), PIECE_BYTES):
            piece = data[begin : begin + PIECE_BYTES]
            shard_digest.update(piece)
            leaf_digest.update(piece)
    shard = ShardRecord(sha256=shard_digest.hexdigest(), bytes=len(header) + sum(len(data) for data in leaf_bytes))
    path = shard_path(folder, shard.sha256)
    # A shard of unchanged leaves has the same hash, and the save before has written it.
    if not _file_has_content(path, (header, *leaf_bytes)):
        write_object(path, (header, *leaf_bytes))
    leaf_records = {
        payload.leaf.path: LeafRecord(
            path=payload.leaf.path,
            kind=payload.kind,
            sha256=leaf_digest.hexdigest(),
            dtype=payload.dtype,
            shape=payload.shape,
            shard=shard.sha256,
        )
        for payload, leaf_digest in zip(sorted_group, leaf_digests, strict=True)
    }
    return shard, leaf_records


def _file_has_content(path: Path, content: Iterable[FilePiece]) -> bool:
    """Return whether the file has exactly this content; a shard that the disk has damaged must be written again."""
    if not path.is_file():
        return False
    buffer = memoryview(bytearray(PIECE_BYTES))
    with explain_os_errors(path), open_regular(path, follow_links=False) as file:
        for data in content:
            view = memoryview(data)
            for begin in range(0, len(view), PIECE_BYTES):
                piece = view[begin : begin + PIECE_BYTES]
                if file.readinto(buffer[: len(piece)]) != len(piece) or buffer[: len(piece)] != piece:
                    return False
        return file.read(1) == b""  # the file must end here
