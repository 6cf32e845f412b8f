"""The checkpoints at a URL: the same files under the same names as in a run folder, so either is a copy of the other.

Shards go first, each under the hash of its content, and the manifest last: a manifest that is there says that the
checkpoint is complete, whenever the sender was killed. This module does not need torch.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path, PurePosixPath

from flatwater.checkpoints.catalogue import verify
from flatwater.checkpoints.manifest import Manifest, ShardRecord, is_manifest, parse_manifest, shard_path
from flatwater.errors import CheckpointError
from flatwater.storage.directory import write_object
from flatwater.storage.objects import Entry, Objects
from flatwater.storage.sending import SendBuffer, send_file

FOLDER = "checkpoints"
Say = Callable[[str], None]


def shard_name(sha256: str) -> str:
    """The shard's name below the run's URL."""
    return f"{FOLDER}/{shard_path(Path(), sha256).as_posix()}"


def manifest_name(manifest: Manifest) -> str:
    """The manifest's name below the run's URL."""
    return f"{FOLDER}/{manifest.file.name}"


def stored(objects: Objects) -> tuple[list[str], dict[str, int]]:
    """The names of the manifests below a run's URL, oldest first, and the sizes of the shards by name."""
    entries = objects.entries(f"{FOLDER}/")
    named = [entry.name for entry in entries if _is_manifest(entry)]
    shards = {entry.name: entry.bytes for entry in entries if entry.name.endswith(".safetensors")}
    return sorted(named, key=lambda name: [int(part) for part in name.split("/")[1].split(".")[:2]]), shards


def _is_manifest(entry: Entry) -> bool:
    return PurePosixPath(entry.name).parent.as_posix() == FOLDER and is_manifest(Path(entry.name))


def read_remote(objects: Objects, name: str) -> Manifest:
    """One manifest; one that is damaged, or gone since it was listed, says so in `damage`."""
    content = objects.read(name)
    file = Path(PurePosixPath(name).name)
    return parse_manifest(file, content if content is not None else b"")


def missing(manifest: Manifest, shards: dict[str, int]) -> str:
    """What is wrong with a checkpoint at a URL as far as its lists tell; empty where nothing is."""
    if manifest.damage:
        return manifest.damage
    for shard in manifest.shards:
        found = shards.get(shard_name(shard.sha256))
        if found is None:
            return f"objects/{shard.sha256[:12]}….safetensors: the object is missing"
        if found != shard.bytes:
            return f"objects/{shard.sha256[:12]}….safetensors: {found} bytes where {shard.bytes} were written"
    return ""


def send_shards(
    objects: Objects,
    folder: Path,
    manifest: Manifest,
    there: Collection[str],
    *,
    buffer: SendBuffer,
    step: Callable[[int], None],
) -> Iterator[ShardRecord]:
    """Send the shards of a checkpoint that are not `there`; yields each when it is verified.

    Args:
        objects: below the run's URL.
        folder: the run's `checkpoints` folder.
        manifest: the checkpoint.
        there: names of shards known to be there; may grow meanwhile.
        buffer: what the files go through.
        step: called with the bytes of each piece sent.

    Raises:
        CheckpointError: a shard is gone from the folder, or is damaged there: this checkpoint cannot be sent.
        ConfigError: the store refuses.
        StoreError: it cannot be reached, or what came is not what was sent.
    """
    for shard in manifest.shards:
        name = shard_name(shard.sha256)
        if name in there:
            continue
        path = shard_path(folder, shard.sha256)
        try:
            sent = send_file(objects, name, path, buffer, step)
        except FileNotFoundError:
            raise CheckpointError(f"{manifest.file} cannot be sent: {path.name} is missing") from None
        if sent.sha256 != shard.sha256:
            objects.remove([name])
            raise CheckpointError(f"{manifest.file} cannot be sent: {path.name} is damaged")
        yield shard


def send_manifest(objects: Objects, manifest: Manifest) -> None:
    """Put the manifest, once all its shards are there; create-only.

    A manifest of that name is there already where a run was resumed from an earlier checkpoint: then it says the same,
    but for the time, or it is replaced, as this process is the only writer.

    Raises:
        ConfigError: the store refuses.
        StoreError: it cannot be reached.
        OSError: the file cannot be read.
    """
    name, content = manifest_name(manifest), manifest.file.read_bytes()
    if objects.create(name, content):
        return
    found = read_remote(objects, name)
    if replace(found, file=manifest.file, saved=manifest.saved) != manifest:
        objects.put(name, content)


def fetch_newest(objects: Objects, folder: Path, *, say: Say, mend: bool = False) -> Manifest | None:
    """Bring the newest checkpoint that is whole into `folder`; None where there is none.

    Shards that are there already are not brought again. The manifest is written last.

    Args:
        objects: below the run's URL.
        folder: a run's `checkpoints` folder; created if need be.
        say: told of each checkpoint that is skipped and why, and of the one that is used instead.
        mend: remove shards whose content is not what their names say, so that they are sent anew.

    Raises:
        ConfigError: the store refuses.
        StoreError: it cannot be reached.
        RunError: the disk is full, or the folder cannot be written.
    """
    names, shards = stored(objects)
    for skipped, name in enumerate(reversed(names)):
        manifest = read_remote(objects, name)
        problem = missing(manifest, shards) or _fetch_shards(objects, folder, manifest.shards, mend=mend)
        if not problem:
            write_object(folder / manifest.file.name, objects.read(name) or b"")
            if skipped:
                say(f"Checkpoint {manifest.file.name} (round {manifest.round}) is whole and is used instead.")
            return replace(manifest, file=folder / manifest.file.name)
        say(f"Checkpoint {manifest.file.name} at {objects.url} is damaged and is skipped: {problem}.")
    return None


def _fetch_shards(objects: Objects, folder: Path, shards: Iterable[ShardRecord], *, mend: bool) -> str:
    for shard in shards:
        if _is_here(folder, shard):
            continue
        try:
            write_object(shard_path(folder, shard.sha256), _checked(objects, shard))
        except CheckpointError as damage:
            if mend:
                objects.remove([shard_name(shard.sha256)])
            return str(damage)
    return ""


def _is_here(folder: Path, shard: ShardRecord) -> bool:
    return not verify(folder, Manifest(file=folder, round=0, step=0, shards=(shard,)))


def _checked(objects: Objects, shard: ShardRecord) -> Iterator[bytes]:
    """The shard's content; raises after the last piece where the hash is another, so that no file comes to be."""
    digest, short = hashlib.sha256(), f"objects/{shard.sha256[:12]}….safetensors"
    try:
        for piece in objects.pieces(shard_name(shard.sha256)):
            digest.update(piece)
            yield piece
    except FileNotFoundError:
        raise CheckpointError(f"{short}: the object is missing") from None
    if digest.hexdigest() != shard.sha256:
        raise CheckpointError(f"{short}: the hash of its content is {digest.hexdigest()[:12]}…")


def is_intact(objects: Objects, manifest: Manifest) -> bool:
    """Whether every byte of a checkpoint at a URL is as it was written; reads all of it."""
    return not any(_damage(objects, shard) for shard in manifest.shards)


def list_remote(objects: Objects) -> list[tuple[Manifest, list[str]]]:
    """Every checkpoint at a URL, newest last, and what is wrong with each; reads every shard once.

    Args:
        objects: below the run's URL.

    Raises:
        ConfigError: the store refuses.
        StoreError: it cannot be reached.
    """
    names, sizes = stored(objects)
    damage = cache(partial(_damage, objects))
    found = []
    for name in names:
        manifest = read_remote(objects, name)
        problem = missing(manifest, sizes)
        wrong = [problem] if problem else [damage(shard) for shard in manifest.shards]
        found.append((manifest, [each for each in wrong if each]))
    return found


def _damage(objects: Objects, shard: ShardRecord) -> str:
    try:
        for _ in _checked(objects, shard):
            pass
    except CheckpointError as damage:
        return str(damage)
    return ""
