"""Saving a state tree: shards first, each under the hash of its content, and the manifest last.

Nothing is copied where the run's memory can be read as it is: bytes are hashed and written straight from the tensors.
Leaves that are not contiguous, or not on the CPU, are copied one shard at a time.
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
from flatwater_watch.files.safe_read import open_regular


def save_checkpoint(
    folder: Path,
    root: object,
    *,
    round: int,
    step: int,
    facts: Mapping[str, JSON],
    config: CheckpointConfig,
    spared: Collection[Path] = (),
) -> Path:
    """Write every leaf of `root` that is not derived, then remove the checkpoints that `config` does not keep.

    Returns when the disk has the whole checkpoint. Killed at any moment before, it leaves the checkpoints that were
    there; shards that are there already are not written again.

    Args:
        folder: the `checkpoints` folder of the run; created if need be.
        root: the state tree.
        round: rounds finished.
        step: steps finished of the round begun; 0 between rounds.
        facts: facts that the run is made from, to be compared when it is resumed. NaN and infinities become text.
        config: number of checkpoints to keep, and the size of shards.
        spared: manifests of checkpoints that stay although `config` does not keep them, as a mirror reads them.

    Returns:
        The manifest's path.

    Raises:
        RunError: the disk is full, or the folder cannot be written. Earlier checkpoints stay, and what was written of
            this checkpoint is removed.
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
        write_object(manifest.file, encode_manifest(manifest))  # last: its shards are on the disk by now
    except RunError:
        with suppress(RunError):  # a folder that cannot be written cannot be tidied either
            remove_orphan_shards(folder)
        raise
    prune_checkpoints(folder, manifest.file, config, spared)  # only now may an older checkpoint go
    return manifest.file


def _write_leaves(
    folder: Path, root: object, shard_bytes: int
) -> tuple[tuple[LeafRecord, ...], tuple[ShardRecord, ...]]:
    """Write the leaves that are not derived into shards; return their records, in the tree's order, and the shards'.

    Raises:
        TypeError: two leaves have the same path.
    """
    kept_leaves = [leaf for leaf in leaves(root) if not leaf.derived]  # derived leaves are computed from others again
    payloads = [item for leaf in kept_leaves if (item := make_payload(leaf)) is not None]
    in_shards = {item.leaf.path for item in payloads}
    records = {leaf.path: _scalar_record(leaf) for leaf in kept_leaves if leaf.path not in in_shards}
    if len(records) + len(payloads) != len(kept_leaves) or len(in_shards) != len(payloads):
        raise TypeError("two leaves of the state tree have the same path. Rename the dict keys with dots")
    shards: dict[str, ShardRecord] = {}
    for group in group_into_shards(payloads, shard_bytes):
        shard, shard_records = _write_shard(folder, group)
        shards[shard.sha256] = shard
        records |= shard_records
    return tuple(records[leaf.path] for leaf in kept_leaves), tuple(shards.values())


def _scalar_record(leaf: Leaf) -> LeafRecord:
    """Return the record of a leaf that lies in the manifest itself."""
    value = leaf.value
    assert isinstance(value, Scalar)  # noqa: S101  (payload took the others)
    kind = scalar_kind(leaf.path, value)
    return LeafRecord(path=leaf.path, kind=kind, sha256=scalar_hash(kind, value), value=value)


def _write_shard(folder: Path, group: Sequence[Payload]) -> tuple[ShardRecord, dict[str, LeafRecord]]:
    """Write one shard; return its record and those of its leaves. Holds at most the bytes of the group."""
    # Larger cells first, so that each leaf lies at a multiple of its size;
    # paths make the order, and the hash, the same.
    ordered = sorted(group, key=lambda item: (-item.stored.itemsize, item.leaf.path))
    start = shard_header({item.leaf.path: item.stored for item in ordered})
    # Views of the run's own memory: nothing may change it before the file is written.
    blobs = [payload_bytes(item) for item in ordered]
    shard_digest = hashlib.sha256(start)
    leaf_digests = [hashlib.sha256() for _ in blobs]
    for blob, leaf_digest in zip(blobs, leaf_digests, strict=True):
        # Piece by piece, so that both hashes go over the memory together.
        for begin in range(0, len(blob), PIECE_BYTES):
            piece = blob[begin : begin + PIECE_BYTES]
            shard_digest.update(piece)
            leaf_digest.update(piece)
    shard = ShardRecord(sha256=shard_digest.hexdigest(), bytes=len(start) + sum(len(blob) for blob in blobs))
    path = shard_path(folder, shard.sha256)
    # Leaves that did not change have the same hash, and their file is there from the save before.
    if not _file_has_content(path, (start, *blobs)):
        write_object(path, (start, *blobs))
    return shard, {
        item.leaf.path: LeafRecord(
            path=item.leaf.path,
            kind=item.kind,
            sha256=leaf_digest.hexdigest(),
            dtype=item.dtype,
            shape=item.shape,
            shard=shard.sha256,
        )
        for item, leaf_digest in zip(ordered, leaf_digests, strict=True)
    }


def _file_has_content(path: Path, content: Iterable[FilePiece]) -> bool:
    """Whether the file holds `content`, by comparison: a shard that rotted on the disk must be written again."""
    if not path.is_file():
        return False
    buffer = memoryview(bytearray(PIECE_BYTES))
    with explain_os_errors(path), open_regular(path, follow=False) as file:
        for blob in content:
            view = memoryview(blob)
            for begin in range(0, len(view), PIECE_BYTES):
                piece = view[begin : begin + PIECE_BYTES]
                if file.readinto(buffer[: len(piece)]) != len(piece) or buffer[: len(piece)] != piece:
                    return False
        return file.read(1) == b""  # nothing may follow
