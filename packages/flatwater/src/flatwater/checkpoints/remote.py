"""The checkpoints at a URL: the same files under the same names as in a run folder, so either is a copy of the other.

Shards go first, each under the hash of its content, and the manifest last: a manifest that is there says that the
checkpoint is complete, whenever the sender was killed. This module does not need torch.
"""

import re
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import TypeVar

from flatwater.checkpoints.intact import (
    DamagedError,
    ShardCheck,
    ShardReading,
    leaves_by_shard,
    read_shard,
    short_shard_name,
)
from flatwater.checkpoints.manifest import (
    LeafRecord,
    Manifest,
    ShardRecord,
    is_manifest,
    parse_manifest,
    shard_path,
)
from flatwater.storage.faults import OversizeError, StoreError
from flatwater.storage.objects import ObjectEntry, StoredObjects
from flatwater.storage.sending import OtherContentError, SendBuffer, send_file
from flatwater_watch.errors import CheckpointError
from flatwater_watch.files.directory import write_object
from flatwater_watch.files.safe_read import read_regular

CHECKPOINT_FOLDER = "checkpoints"
# At once by another connection, then after a pause.
RETRY_PAUSES = (0.0, 2.0)
"""Seconds before a wrong answer is read a second and a third time; then the object counts as damaged."""
_SHARD_NAME = re.compile(rf"{CHECKPOINT_FOLDER}/objects/[0-9a-f]{{64}}\.safetensors")
ShowLine = Callable[[str], None]
T = TypeVar("T")


def read_with_retries(objects: StoredObjects, read: Callable[[StoredObjects], T]) -> T:
    """Return the result of `read`, called again by another connection after a wrong answer, then after a pause.

    Raises:
        DamagedError: the third answer was wrong as well.
        StoreError: the store did not answer the third time either.
    """
    for pause in RETRY_PAUSES:
        try:
            return read(objects)
        except (DamagedError, StoreError):
            time.sleep(pause)
            objects = objects.reconnect()
    return read(objects)


def shard_name(sha256: str) -> str:
    """Return the shard's name below the run's URL."""
    return f"{CHECKPOINT_FOLDER}/{shard_path(Path(), sha256).as_posix()}"


def manifest_name(manifest: Manifest) -> str:
    """Return the manifest's name below the run's URL."""
    return f"{CHECKPOINT_FOLDER}/{manifest.file.name}"


def list_stored(objects: StoredObjects) -> tuple[list[str], dict[str, int]]:
    """Return the names of the manifests below a run's URL, oldest first, and the sizes of the shards by name."""
    entries = objects.entries(f"{CHECKPOINT_FOLDER}/")
    names = [entry.name for entry in entries if _is_manifest(entry)]
    shards = {entry.name: entry.bytes for entry in entries if _SHARD_NAME.fullmatch(entry.name)}
    # By numbers, not by text: rounds of seven digits come after those of six.
    return sorted(names, key=lambda name: [int(number) for number in name.split("/")[1].split(".")[:2]]), shards


def _is_manifest(entry: ObjectEntry) -> bool:
    return PurePosixPath(entry.name).parent.as_posix() == CHECKPOINT_FOLDER and is_manifest(Path(entry.name))


def read_remote(objects: StoredObjects, name: str) -> Manifest:
    """Return a manifest; if it is damaged, `damage` says why; if it is gone or unreadable, `unread` is set as well."""
    return _read_manifest(objects, name)[0]


def _read_manifest(objects: StoredObjects, name: str) -> tuple[Manifest, bytes]:
    """Return a manifest at a URL and its bytes, asked up to three times.

    One that stays wrong says so in `damage`, and comes without bytes where it is gone or too large.
    """
    file = Path(PurePosixPath(name).name)
    last_answer = (Manifest(file=Path(name), round=-1, step=-1), b"")

    def read(objects: StoredObjects) -> None:
        """Keep the answer of one try; raise where another try may be better."""
        nonlocal last_answer
        content = objects.read(name)
        manifest = parse_manifest(file, content if content is not None else b"")
        if content is None:
            manifest = replace(manifest, damage="the manifest is missing", unread=True)
        last_answer = manifest, content or b""
        if manifest.damage and (content is None or not manifest.unread):
            raise DamagedError(manifest.damage)

    # The last answer counts, also where all three were wrong: then it says what is damaged.
    try:
        read_with_retries(objects, read)
    except OversizeError as error:
        return replace(parse_manifest(file, b""), damage=f"the manifest cannot be read ({error})"), b""
    except DamagedError:
        pass
    return last_answer


def missing_shards(manifest: Manifest, shards: dict[str, int]) -> str:
    """Return a problem of a checkpoint at a URL that its lists tell; empty if there is none."""
    if manifest.damage:
        return manifest.damage
    for shard in manifest.shards:
        size = shards.get(shard_name(shard.sha256))
        if size is None:
            return f"{short_shard_name(shard)}: the object is missing"
        if size != shard.bytes:
            return f"{short_shard_name(shard)}: {size} bytes where {shard.bytes} were written"
    return ""


def send_shards(
    objects: StoredObjects,
    folder: Path,
    manifest: Manifest,
    there: Collection[str],
    *,
    buffer: SendBuffer,
    on_bytes_sent: Callable[[int], None],
) -> Iterator[ShardRecord]:
    """Send the shards of a checkpoint that are not `there`; yields each when it is verified.

    What is at the store is written over by good bytes alone: a shard that is damaged in the folder is not sent.

    Args:
        objects: below the run's URL.
        folder: the run's `checkpoints` folder.
        manifest: the checkpoint.
        there: names of shards known to be there; may grow meanwhile.
        buffer: memory that the files go through.
        on_bytes_sent: called with the bytes of each piece.

    Raises:
        CheckpointError: a shard is gone from the folder, or is damaged there: this checkpoint cannot be sent.
        StoreError: the store cannot be reached, or what came there is not what was sent.
    """
    for shard in manifest.shards:
        name = shard_name(shard.sha256)
        if name in there:  # under the hash of its content: the same name is the same content
            continue
        path = shard_path(folder, shard.sha256)
        try:
            send_file(objects, name, path, buffer, on_bytes_sent, sha256=shard.sha256)
        except FileNotFoundError:
            raise CheckpointError(f"{manifest.file} cannot be sent: {path.name} is missing") from None
        except OtherContentError:
            raise CheckpointError(f"{manifest.file} cannot be sent: {path.name} is damaged") from None
        yield shard


def send_manifest(objects: StoredObjects, manifest: Manifest) -> None:
    """Put the manifest, once all its shards are there; create-only.

    A manifest of that name is there already where a run was resumed from an earlier checkpoint: then it says the same,
    but for the time, or it is replaced, as this process is the only writer.
    """
    name = manifest_name(manifest)
    content = read_regular(manifest.file, follow=False)
    # Create-only first: where it succeeds, nothing at the store needs to be read.
    if objects.create(name, content):
        return
    stored_manifest = read_remote(objects, name)
    if replace(stored_manifest, file=manifest.file, saved=manifest.saved) != manifest:
        objects.put(name, content)


def fetch_newest(objects: StoredObjects, folder: Path, *, say: ShowLine) -> Manifest | None:
    """Copy the newest whole checkpoint into `folder`; None if there is none.

    Shards that are there already are not copied again. The manifest is written last. Nothing is removed at the store,
    whatever it answers: an object that comes wrong three times is told and skipped.

    Args:
        objects: below the run's URL.
        folder: a run's `checkpoints` folder; created if need be.
        say: gets sentences about each skipped checkpoint, why, and the checkpoint that is used instead.
    """
    names, sizes = list_stored(objects)
    for skipped, name in enumerate(reversed(names)):
        manifest, content = _read_manifest(objects, name)
        problem = missing_shards(manifest, sizes) or _fetch_shards(objects, folder, manifest)
        if not problem:
            # Last: a manifest in the folder says that its shards are there.
            write_object(folder / manifest.file.name, content)
            if skipped:
                say(f"Checkpoint {manifest.file.name} (round {manifest.round}) is whole and is used instead.")
            return replace(manifest, file=folder / manifest.file.name)
        state = "cannot be used" if manifest.unread else "is damaged"
        say(f"Checkpoint {manifest.file.name} at {objects.url} {state} and is skipped: {problem}.")
    return None


def _fetch_shards(objects: StoredObjects, folder: Path, manifest: Manifest) -> str:
    """Return a problem of the shards; empty if all are in the folder."""
    for shard, leaves in leaves_by_shard(manifest).items():
        path = shard_path(folder, shard.sha256)
        # A fetch that was cut off goes on: a shard here counts where all of it is right, not by its name.
        if path.is_file() and isinstance(read_shard(path, shard, leaves), ShardReading):
            continue

        def fetch(objects: StoredObjects) -> None:
            write_object(path, _verified_pieces(objects, shard, leaves))  # noqa: B023  (called in this turn alone)

        try:
            read_with_retries(objects, fetch)
        except DamagedError as error:
            return str(error)
    return ""


def _verified_pieces(objects: StoredObjects, shard: ShardRecord, leaves: tuple[LeafRecord, ...]) -> Iterator[bytes]:
    """Yield the shard's content; raises after the last piece where it is wrong, so that no file comes to be.

    Raises:
        DamagedError: the object is missing, longer or shorter than it must be, or has other content.
    """
    check = ShardCheck(shard, leaves)
    try:
        for piece in objects.pieces(shard_name(shard.sha256), shard.bytes):
            check.feed_bytes_(piece)
            yield piece
    except FileNotFoundError:
        raise DamagedError(f"{short_shard_name(shard)}: the object is missing") from None
    except OversizeError:
        raise DamagedError(f"{short_shard_name(shard)}: more than the {shard.bytes} bytes that were written") from None
    check.finish_check()


def is_intact(objects: StoredObjects, manifest: Manifest) -> bool:
    """Whether every byte of a checkpoint at a URL is as it was written; reads all of it."""
    return not any(_describe_damage(objects, shard, leaves) for shard, leaves in leaves_by_shard(manifest).items())


def list_remote(objects: StoredObjects) -> list[tuple[Manifest, list[str]]]:
    """Return every checkpoint at a URL, newest last, and the problems of each; reads every shard once."""
    names, sizes = list_stored(objects)
    damage = cache(partial(_describe_damage, objects))
    checkpoints = []
    for name in names:
        manifest = read_remote(objects, name)
        problem = missing_shards(manifest, sizes)
        problems = (
            [problem]
            if problem
            else [damage(*shard_and_leaves) for shard_and_leaves in leaves_by_shard(manifest).items()]
        )
        checkpoints.append((manifest, [problem_text for problem_text in problems if problem_text]))
    return checkpoints


def _describe_damage(objects: StoredObjects, shard: ShardRecord, leaves: tuple[LeafRecord, ...]) -> str:
    """Return the problem of a shard at a URL, which is read up to three times; empty if it is whole."""

    def read(objects: StoredObjects) -> None:
        """Read the shard through, and raise at its end where it is wrong."""
        for _ in _verified_pieces(objects, shard, leaves):
            pass

    try:
        read_with_retries(objects, read)
    except DamagedError as error:
        return str(error)
    return ""
