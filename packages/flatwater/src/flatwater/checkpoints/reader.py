"""Loading a checkpoint into a state tree that exists already: everything is checked first, then written in place."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import numpy as np
import torch

from flatwater.checkpoints.catalogue import find_damage, list_checkpoints, newest_intact
from flatwater.checkpoints.intact import LeafSpan, VerifiedCheckpoint, file_mark
from flatwater.checkpoints.manifest import SCALAR_KINDS, LeafRecord, shard_path
from flatwater.checkpoints.payload import Payload, ReadBytes, fill_leaf_, make_payload
from flatwater.state.tree import Leaf, Scalar, is_immutable, leaves, set_scalar_
from flatwater_watch.errors import CheckpointError
from flatwater_watch.files.directory import PIECE_BYTES, open_at_once

__all__ = ["find_damage", "list_checkpoints", "newest_intact", "restore_state_"]

_MAXIMUM_LINES = 20  # lines of differences: a wrong configuration can have thousands


class LeavesDifferError(CheckpointError):
    """Leaves of a checkpoint are not those of the run that it is to be written into."""

    def __init__(self, file: Path, lines: list[str]) -> None:
        """Name the checkpoint's file, and each leaf that differs, with both forms."""
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
    item: Payload | None
    record: LeafRecord


def restore_state_(root: object, intact: VerifiedCheckpoint, *, below: str | None = None) -> None:
    """Write a checkpoint into `root`, in place: tensors keep their storage and generators their identity.

    Extra memory is 4 MiB, or the largest leaf that is not contiguous or not on the CPU. Everything that can be known is
    checked before the first leaf is written: that the leaves fit, that generators take their states, and that no shard
    was written to since it was verified. A shard that somebody writes to in the very moment, or a disk that fails then,
    raises after some leaves were written: such a `root` is not to be used.

    Args:
        root: a state tree of the same structure. Derived leaves are left as they are.
        intact: the checkpoint, as `newest_intact` gives it.
        below: path of a part of the saved state, to restore some leaves of that part alone: those that `root` has.
            Empty for the whole state; None if `root` must have all of it.

    Raises:
        CheckpointError: a shard has changed since it was verified, or the leaves are not those of `root`; the message
            lists every path with what is in the checkpoint and what is in this run.
    """
    all_pairs = _match_leaves(root, intact, below)
    shards = {
        shard.sha256: [pair for pair in all_pairs if pair.item is not None and pair.record.shard == shard.sha256]
        for shard in intact.manifest.shards
    }
    # Generators are tried first, on copies: only torch itself can judge whether a state is valid.
    for sha256, pairs in shards.items():
        _read_shard(
            intact,
            sha256,
            [pair for pair in pairs if isinstance(pair.leaf.value, torch.Generator)],
            _try_generator_state,
        )
    # Numbers before arrays: they cannot fail any more, and a read error then leaves as little half done as can be.
    for pair in all_pairs:
        if pair.item is None and not is_immutable(pair.leaf.owner):
            set_scalar_(pair.leaf, pair.record.value)
    for sha256, pairs in shards.items():
        _read_shard(intact, sha256, pairs, fill_leaf_)


def _match_leaves(root: object, intact: VerifiedCheckpoint, below: str | None) -> list[_LeafPair]:
    """Return pairs of leaves of the run and of the checkpoint, once every leaf has its counterpart.

    Raises:
        LeavesDifferError: leaves are missing, in excess or of another form; the message lists them.
    """
    scope = f"{below}." if below else ""
    run_leaves = {scope + leaf.path: leaf for leaf in leaves(root) if not leaf.derived}
    items = {path: make_payload(leaf) for path, leaf in run_leaves.items()}
    saved_records = {
        record.path: record for record in intact.manifest.leaves if below is None or record.path in run_leaves
    }
    # All differences are collected before one error: a user mends a configuration once, not leaf by leaf.
    differences = [
        f"{path}: {saved_records[path]} in the checkpoint, absent in this run"
        for path in saved_records
        if path not in run_leaves
    ]
    for path, leaf in run_leaves.items():
        if path not in saved_records:
            differences.append(f"{path}: absent in the checkpoint, {items[path] or repr(leaf.value)} in this run")
        else:
            differences += _leaf_differences(leaf, items[path], saved_records[path], intact.spans.get(path))
    if differences:
        raise LeavesDifferError(intact.manifest.file, differences)
    return [_LeafPair(leaf, items[path], saved_records[path]) for path, leaf in run_leaves.items()]


def _leaf_differences(leaf: Leaf, item: Payload | None, record: LeafRecord, span: LeafSpan | None) -> list[str]:
    """Return why a saved leaf cannot be written into the run's one, in at most one line; empty if it can.

    Args:
        leaf: the leaf of the run.
        item: payload of the leaf; None for a number.
        record: the checkpoint's record of it.
        span: place of its bytes in its shard; None if it has none.
    """
    if item is None:
        fits = record.kind in SCALAR_KINDS and (
            not is_immutable(leaf.owner) or _equal_scalars(record.value, leaf.value)
        )
        return [] if fits else [f"{leaf.path}: {record} in the checkpoint, {leaf.value!r} in this run"]
    if (item.kind, item.dtype, item.shape) != (record.kind, record.dtype, record.shape):
        return [f"{leaf.path}: {record} in the checkpoint, {item} in this run"]
    if span is None or span.bytes != item.nbytes:  # of a dtype without a name in the format, cells of another size
        return [f"{leaf.path}: {record} in other bytes in the checkpoint, {item} in {item.nbytes} bytes in this run"]
    if isinstance(leaf.value, np.ndarray) and not leaf.value.flags.writeable:
        return [f"{leaf.path}: {record} in the checkpoint, a read-only array in this run"]
    return []


def _equal_scalars(saved: Scalar, current: object) -> bool:
    # By text, so that NaN equals NaN and 0.0 is not -0.0.
    return type(saved) is type(current) and repr(saved) == repr(current)


def list_lines(lines: list[str], maximum: int = _MAXIMUM_LINES) -> str:
    """Return the first lines, each on a line of its own, and how many more there are."""
    listing = "".join(f"\n  {line}" for line in lines[:maximum])
    return listing + (f"\n  and {len(lines) - maximum} more" if len(lines) > maximum else "")


def _read_shard(
    intact: VerifiedCheckpoint, sha256: str, places: list[_LeafPair], take: Callable[[Payload, ReadBytes], None]
) -> None:
    """Hand the bytes of each of these leaves to `take`, from the file that was verified.

    Args:
        intact: the checkpoint that was verified.
        sha256: name of the shard.
        places: the leaves in this shard.
        take: gets a payload, and a function that fills a buffer with its bytes; called while the file is open.

    Raises:
        CheckpointError: the file has changed since it was verified, or cannot be read.
    """
    path = shard_path(intact.folder, sha256)
    mark = intact.marks[sha256]
    try:
        with open_at_once(path) as file:
            # None first: the mark is asked before the first leaf as well, then before each.
            for pair in [None, *places]:
                if file_mark(os.fstat(file.fileno())) != mark:
                    raise CheckpointError(f"{path} has changed since the check. Restore the checkpoint again.")
                if pair is not None and pair.item is not None:
                    file.seek(intact.spans[pair.record.path].begin)
                    take(pair.item, lambda buffer: _fill_from_file(file, buffer))
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be read ({error.strerror or error}). Restore the checkpoint again."
        ) from error


def _try_generator_state(item: Payload, read: ReadBytes) -> None:
    """Let another generator of the same kind take the state, so that the run's own is untouched if it is refused.

    Raises:
        CheckpointError: the generator refuses the state.
    """
    generator = item.leaf.value
    assert isinstance(generator, torch.Generator)  # noqa: S101  (the caller chose them)
    state = torch.empty(item.shape, dtype=torch.uint8)
    read(state.numpy().data)
    try:
        torch.Generator(generator.device).set_state(state)
    except RuntimeError as error:
        raise CheckpointError(f"{item.leaf.path}: expected a generator state ({error})") from error


def _fill_from_file(file: FileIO, buffer: memoryview) -> None:
    """Fill `buffer` from the file's position on, 4 MiB at a time.

    Raises:
        CheckpointError: the file ends before `buffer` is full.
    """
    filled = 0
    while filled < len(buffer):
        count = file.readinto(buffer[filled : filled + PIECE_BYTES])  # a read may return less than was asked for
        if not count:
            raise CheckpointError(f"{file.name} became shorter during the restore. Restore the checkpoint again.")
        filled += count
