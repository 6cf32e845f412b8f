"""The checkpoints in a folder, and which of them are intact. This module does not need torch."""

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

from flatwater.checkpoints.manifest import Manifest, ShardRecord, manifest_files, read_manifest, shard_path
from flatwater.storage.directory import PIECE, strays


def list_checkpoints(folder: Path) -> list[Manifest]:
    """Every checkpoint in `folder`, newest last. Shards are not read; a damaged manifest says so in `damage`.

    Args:
        folder: the `checkpoints` folder of a run. One that does not exist holds none.

    Raises:
        CheckpointError: a manifest was written by another version, in a format that this one does not read.
    """
    return [read_manifest(file) for file in manifest_files(folder)]


def list_verified(folder: Path) -> list[tuple[Manifest, list[str]]]:
    """Every checkpoint with what is wrong with it, as `verify` says. Shards that several share are read once."""
    hash_of = cache(_hash_of)
    return [(manifest, _verify(folder, manifest, hash_of)) for manifest in list_checkpoints(folder)]


def verify(folder: Path, manifest: Manifest) -> list[str]:
    """What is wrong with a checkpoint; empty where its manifest and every byte of its shards are as they were written.

    Reads every shard once, 4 MiB at a time.
    """
    return _verify(folder, manifest, _hash_of)


def _verify(folder: Path, manifest: Manifest, hash_of: Callable[[Path], str]) -> list[str]:
    return glance(folder, manifest) or [
        f"objects/{shard.sha256[:12]}….safetensors: the hash of its content is {found[:12]}…"
        for shard in manifest.shards
        if (found := hash_of(shard_path(folder, shard.sha256))) != shard.sha256
    ]


def glance(folder: Path, manifest: Manifest) -> list[str]:
    """What is wrong with a checkpoint as far as can be told without reading its shards."""
    if manifest.damage:
        return [manifest.damage]
    return [problem for shard in manifest.shards if (problem := _misplaced(folder, shard))]


def _misplaced(folder: Path, shard: ShardRecord) -> str:
    path = shard_path(folder, shard.sha256)
    if not path.is_file():
        return f"objects/{shard.sha256[:12]}….safetensors: the file is missing"
    size = path.stat().st_size
    if size != shard.bytes:
        return f"objects/{shard.sha256[:12]}….safetensors: {size} bytes where {shard.bytes} were written"
    return ""


def _hash_of(path: Path) -> str:
    digest, piece = hashlib.sha256(), memoryview(bytearray(PIECE))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(piece):
            digest.update(piece[:count])
    return digest.hexdigest()


def newest_intact(folder: Path, *, say: Callable[[str], None]) -> Manifest | None:
    """The newest checkpoint whose manifest and shards are as they were written; None if there is none.

    Args:
        folder: the `checkpoints` folder of a run.
        say: told, in whole sentences, of a save that was cut off, of each checkpoint that is skipped and why, and of
            the one that is used instead.
    """
    cut_off = len(strays(folder)) + len(strays(folder / "objects"))
    if cut_off:
        say(f"A save was cut off and left {cut_off} unfinished file(s) in {folder}. They are ignored.")
    for skipped, manifest in enumerate(reversed(list_checkpoints(folder))):
        problems = verify(folder, manifest)
        if not problems:
            if skipped:
                say(f"Checkpoint {manifest.file.name} (round {manifest.round}) is intact and is used instead.")
            return manifest
        more = f" and {len(problems) - 1} more problem(s)" if len(problems) > 1 else ""
        say(f"Checkpoint {manifest.file.name} is damaged and is skipped: {problems[0]}{more}.")
    return None
