"""Restores a checkpoint into an existing state tree: everything is checked first, then written in place."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import numpy as np
import torch

from flatwater.checkpoints.catalogue import find_damage, list_checkpoints, newest_intact
from flatwater.checkpoints.manifest import SCALAR_KINDS, LeafRecord, shard_path
from flatwater.checkpoints.payload import Payload, ReadBytes, fill_leaf_, make_payload
from flatwater.checkpoints.verification import LeafSpan, VerifiedCheckpoint, file_mark
from flatwater.state.tree import Leaf, Scalar, is_immutable, leaves, set_scalar_
from flatwater_watch.errors import CheckpointError
from flatwater_watch.files.directory import PIECE_BYTES, open_at_once

__all__ = ["find_damage", "list_checkpoints", "newest_intact", "restore_state_"]

_MAXIMUM_LINES = 20
"""Most differences that a message lists: a wrong configuration can have thousands."""


class LeavesDifferError(CheckpointError):
    """The leaves of a checkpoint differ from the leaves of the run that it should be restored into."""

    def __init__(self, file: Path, lines: list[str]) -> None:
        """Make the message from the checkpoint's file and a line for each leaf that differs."""
        self.lines = lines
        super().__init__(
            f"{file} does not fit this run: {list_lines(lines)}\n"
            "Resume with the run's own configuration (config.toml in its folder), "
            "or start a new run in another folder."
        )


@dataclass(frozen=True, slots=True)
class _LeafPair:
    """A leaf of the run, and the checkpoint's record of it."""

    leaf: Leaf
    payload: Payload | None
    """The leaf as a shard stores it; None for a scalar."""
    record: LeafRecord


def restore_state_(root: object, intact: VerifiedCheckpoint, *, part: str | None = None) -> None:
    """Write a checkpoint into `root`, in place: tensors keep their storage and generators their identity.

    It needs 4 MiB of extra memory, or the bytes of the largest leaf that is not contiguous or not on the CPU. Before
    the first leaf is written, it checks that the leaves fit, that generators accept their states, and that no shard has
    changed since it was verified. If a shard changes or the disk fails later, some leaves are written already, and the
    caller must not use `root`.

    Args:
        root: a state tree of the same structure. Derived leaves are left as they are.
        intact: the checkpoint, as `newest_intact` returns it.
        part: None if `root` is the saved state and has all of its leaves. Else the path, in the saved state, of the
            part that `root` is, or empty for the top: only the leaves that `root` has are then restored.

    Raises:
        CheckpointError: a shard has changed since it was verified, or the leaves differ from those of `root`; the
            message lists every path with the leaf in the checkpoint and in this run.
    """
    all_pairs = _match_leaves(root, intact, part)
    shards = {
        shard.sha256: [pair for pair in all_pairs if pair.payload is not None and pair.record.shard == shard.sha256]
        for shard in intact.manifest.shards
    }
    # First the states of generators are tried on other generators, as only torch can tell whether a state is valid.
    for sha256, pairs in shards.items():
        generator_pairs = [pair for pair in pairs if isinstance(pair.leaf.value, torch.Generator)]
        _read_leaves(intact, sha256, generator_pairs, _try_generator_state)
    # Scalars are written before arrays, as only the reading of arrays can still fail.
    for pair in all_pairs:
        # A scalar of an immutable owner is equal already, as `_leaf_differences` requires.
        if pair.payload is None and not is_immutable(pair.leaf.owner):
            set_scalar_(pair.leaf, pair.record.value)
    for sha256, pairs in shards.items():
        _read_leaves(intact, sha256, pairs, fill_leaf_)


def _match_leaves(root: object, intact: VerifiedCheckpoint, part: str | None) -> list[_LeafPair]:
    """Return each leaf of the run with its record in the checkpoint.

    Raises:
        LeavesDifferError: a leaf is missing on one side, or has another form; the message lists all such leaves.
    """
    prefix = f"{part}." if part else ""
    run_leaves = {prefix + leaf.path: leaf for leaf in leaves(root) if not leaf.derived}
    payloads = {path: make_payload(leaf) for path, leaf in run_leaves.items()}
    saved_records = {
        record.path: record for record in intact.manifest.leaves if part is None or record.path in run_leaves
    }
    # All differences are collected for one error, so that a user corrects the configuration once.
    differences = [
        f"{path}: {saved_records[path]} in the checkpoint, absent in this run"
        for path in saved_records
        if path not in run_leaves
    ]
    for path, leaf in run_leaves.items():
        if path not in saved_records:
            description = payloads[path] or repr(leaf.value)  # a scalar, without payload, by its value
            differences.append(f"{path}: absent in the checkpoint, {description} in this run")
        else:
            differences += _leaf_differences(leaf, payloads[path], saved_records[path], intact.spans.get(path))
    if differences:
        raise LeavesDifferError(intact.manifest.file, differences)
    return [_LeafPair(leaf, payloads[path], saved_records[path]) for path, leaf in run_leaves.items()]


def _leaf_differences(leaf: Leaf, payload: Payload | None, record: LeafRecord, span: LeafSpan | None) -> list[str]:
    """Return at most one line that says why a saved leaf cannot be written into the run's leaf; empty if it can.

    Args:
        leaf: the leaf of the run.
        payload: the leaf as a shard stores it; None for a scalar.
        record: the checkpoint's record of the leaf.
        span: place of the saved bytes in a shard; None for a scalar.
    """
    if payload is None:
        # A scalar of an immutable owner cannot be written, so it must be equal already.
        fits = record.kind in SCALAR_KINDS and (
            not is_immutable(leaf.owner) or _equal_scalars(record.value, leaf.value)
        )
        return [] if fits else [f"{leaf.path}: {record} in the checkpoint, {leaf.value!r} in this run"]
    if (payload.kind, payload.dtype, payload.shape) != (record.kind, record.dtype, record.shape):
        return [f"{leaf.path}: {record} in the checkpoint, {payload} in this run"]
    # Only a dtype that is stored as bytes can differ here: its cells may have another size.
    if span is None or span.bytes != payload.nbytes:
        return [
            f"{leaf.path}: {record} in other bytes in the checkpoint, {payload} in {payload.nbytes} bytes in this run"
        ]
    if isinstance(leaf.value, np.ndarray) and not leaf.value.flags.writeable:
        return [f"{leaf.path}: {record} in the checkpoint, a read-only array in this run"]
    return []


def _equal_scalars(saved_value: Scalar, current: object) -> bool:
    # Compared as text, so that NaN equals NaN, and 0.0 does not equal -0.0.
    return type(saved_value) is type(current) and repr(saved_value) == repr(current)


def list_lines(lines: list[str], maximum: int = _MAXIMUM_LINES) -> str:
    """Return a message's list of the first `maximum` lines, each on a line of its own, and how many more there are."""
    listing = "".join(f"\n  {line}" for line in lines[:maximum])
    return listing + (f"\n  and {len(lines) - maximum} more" if len(lines) > maximum else "")


def _read_leaves(
    intact: VerifiedCheckpoint, sha256: str, pairs: list[_LeafPair], use_bytes: Callable[[Payload, ReadBytes], None]
) -> None:
    """Open a shard, and call `use_bytes` for some of its leaves, to read their bytes.

    Args:
        intact: the verified checkpoint.
        sha256: hash of the shard.
        pairs: leaves in this shard.
        use_bytes: function of a payload, and of a function that fills a buffer with the payload's bytes.

    Raises:
        CheckpointError: the file has changed since it was verified, or cannot be read.
    """
    path = shard_path(intact.folder, sha256)
    mark = intact.marks[sha256]
    try:
        with open_at_once(path) as file:
            # The mark is compared at once, for None, even if there are no leaves, and then before each leaf.
            for pair in [None, *pairs]:
                if file_mark(os.fstat(file.fileno())) != mark:
                    raise CheckpointError(f"{path} has changed since the check. Restore the checkpoint again.")
                if pair is not None and pair.payload is not None:
                    file.seek(intact.spans[pair.record.path].begin)
                    use_bytes(pair.payload, lambda buffer: _fill_from_file(file, buffer))
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be read ({error.strerror or error}). Restore the checkpoint again."
        ) from error


def _try_generator_state(payload: Payload, read: ReadBytes) -> None:
    """Set the saved state in a new generator, so that an invalid state is refused before the run's own is changed.

    Raises:
        CheckpointError: the generator refuses the state.
    """
    generator = payload.leaf.value
    assert isinstance(generator, torch.Generator)  # noqa: S101  (the caller selects generators)
    state = torch.empty(payload.shape, dtype=torch.uint8)
    read(state.numpy().data)
    try:
        torch.Generator(generator.device).set_state(state)
    except RuntimeError as error:
        raise CheckpointError(f"{payload.leaf.path}: expected a generator state ({error})") from error


def _fill_from_file(file: FileIO, buffer: memoryview) -> None:
    """Fill `buffer` from the file's position on, 4 MiB at a time.

    Raises:
        CheckpointError: the file ends before `buffer` is full.
    """
    filled_bytes = 0
    while filled_bytes < len(buffer):
        count = file.readinto(buffer[filled_bytes : filled_bytes + PIECE_BYTES])  # may return less
        if not count:
            raise CheckpointError(f"{file.name} became shorter during the restore. Restore the checkpoint again.")
        filled_bytes += count
