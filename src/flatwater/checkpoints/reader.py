"""Loading a checkpoint into a state tree that exists already: everything is checked first, then written in place."""

from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np

from flatwater.checkpoints.catalogue import glance, list_checkpoints, newest_intact, verify
from flatwater.checkpoints.manifest import SCALARS, LeafRecord, Manifest, shard_path
from flatwater.checkpoints.payload import Payload, fill_, payload
from flatwater.checkpoints.shards import read_header
from flatwater.errors import CheckpointError
from flatwater.state.tree import Leaf, Scalar, leaves, set_scalar_
from flatwater.storage.directory import PIECE

__all__ = ["list_checkpoints", "newest_intact", "restore_", "verify"]

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class _Place:
    """A leaf of the run, and what the checkpoint has for it."""

    leaf: Leaf
    item: Payload | None
    record: LeafRecord


def restore_(root: object, folder: Path, manifest: Manifest, *, below: str | None = None) -> None:
    """Write a checkpoint into `root`, in place: tensors keep their storage and generators their identity.

    Extra memory is 4 MiB, or the largest leaf that is not contiguous or not on the CPU. Every shard is verified before
    the first leaf is written, so a checkpoint is restored whole or not at all.

    Args:
        root: a state tree of the same structure. Derived leaves are left as they are.
        folder: the `checkpoints` folder that holds the shards.
        manifest: the checkpoint, as `newest_intact` or `list_checkpoints` gives it.
        below: path of a part of the saved state, to restore some leaves of that part alone: those that `root` has.

    Raises:
        CheckpointError: the checkpoint is damaged, or its leaves are not those of `root`; the message lists every
            path with what is in the checkpoint and what is in this run.
    """
    _require_whole(manifest, glance(folder, manifest))
    places = _matched(root, manifest, below)
    _require_whole(manifest, verify(folder, manifest))
    for place in places:
        if place.item is None and not _is_fixed(place.leaf.owner):
            set_scalar_(place.leaf, place.record.value)
    for shard in manifest.shards:
        items = {p.record.path: p.item for p in places if p.item is not None and p.record.shard == shard.sha256}
        _read_shard(shard_path(folder, shard.sha256), items)


def _require_whole(manifest: Manifest, problems: list[str]) -> None:
    if problems:
        raise CheckpointError(f"{manifest.file} is damaged: {_listed(problems)}\nUse the checkpoint before it.")


def _matched(root: object, manifest: Manifest, below: str | None) -> list[_Place]:
    """Leaves of the run beside those of the checkpoint, once every one has its counterpart."""
    under = "" if below is None else f"{below}."
    now = {under + leaf.path: leaf for leaf in leaves(root) if not leaf.derived}
    items = {path: payload(leaf) for path, leaf in now.items()}
    saved = {record.path: record for record in manifest.leaves if below is None or record.path in now}
    found = [f"{path}: {saved[path]} in the checkpoint, absent in this run" for path in saved if path not in now]
    for path, leaf in now.items():
        if path not in saved:
            found.append(f"{path}: absent in the checkpoint, {items[path] or repr(leaf.value)} in this run")
        else:
            found += _differing(leaf, items[path], saved[path])
    if found:
        raise CheckpointError(
            f"{manifest.file} does not fit this run: {_listed(found)}\n"
            "Resume with the configuration that the run was started with (config.toml in its folder), "
            "or start a new run in another folder."
        )
    return [_Place(leaf, items[path], saved[path]) for path, leaf in now.items()]


def _differing(leaf: Leaf, item: Payload | None, record: LeafRecord) -> list[str]:
    if item is None:
        fits = record.kind in SCALARS and (not _is_fixed(leaf.owner) or _same(record.value, leaf.value))
        return [] if fits else [f"{leaf.path}: {record} in the checkpoint, {leaf.value!r} in this run"]
    if (item.kind, item.dtype, item.shape) != (record.kind, record.dtype, record.shape):
        return [f"{leaf.path}: {record} in the checkpoint, {item} in this run"]
    if isinstance(leaf.value, np.ndarray) and not leaf.value.flags.writeable:
        return [f"{leaf.path}: {record} in the checkpoint, a read-only array in this run"]
    return []


def _is_fixed(owner: Any) -> bool:  # noqa: ANN401  (a state, list, dict or tuple)
    """Whether the owner's numbers cannot be replaced: a tuple, or a configuration inside the state."""
    parameters = vars(type(owner)).get("__dataclass_params__")
    return isinstance(owner, tuple) or (parameters is not None and bool(parameters.frozen))


def _same(saved: Scalar, now: object) -> bool:
    return type(saved) is type(now) and repr(saved) == repr(now)


def _listed(lines: list[str]) -> str:
    shown = "".join(f"\n  {line}" for line in lines[:_SHOWN])
    return shown + (f"\n  and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else "")


def _read_shard(path: Path, items: dict[str, Payload]) -> None:
    with path.open("rb", buffering=0) as file:
        places = read_header(file)
        for name, item in items.items():
            file.seek(places[name])
            fill_(item, lambda room: _read_into(file, room))


def _read_into(file: FileIO, room: memoryview) -> None:
    at = 0
    while at < len(room):
        count = file.readinto(room[at : at + PIECE])
        if not count:
            raise CheckpointError(f"{file.name} became shorter while it was read. Start again from the checkpoint.")
        at += count
