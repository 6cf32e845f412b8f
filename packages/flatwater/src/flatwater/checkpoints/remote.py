"""Sends, lists, verifies and fetches the checkpoints at a URL, where files have the same names as in a run folder.

Shards are sent first, each under the hash of its content, and the manifest last. So a checkpoint with a manifest is
complete, even if the sender is killed. This module does not need torch.
"""

import re
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import TypeVar

from flatwater.checkpoints.manifest import (
    LeafRecord,
    Manifest,
    ShardRecord,
    is_manifest,
    parse_manifest,
    shard_path,
)
from flatwater.checkpoints.verification import (
    DamagedError,
    ShardCheck,
    ShardReading,
    leaves_by_shard,
    read_shard,
    short_shard_name,
)
from flatwater.storage.faults import OversizeError, StoreError
from flatwater.storage.objects import ObjectEntry, StoredObjects
from flatwater.storage.upload import OtherContentError, SendBuffer, send_file
from flatwater_watch.errors import CheckpointError
from flatwater_watch.events.background import ShowLine
from flatwater_watch.files.directory import write_object
from flatwater_watch.files.regular_files import read_regular

CHECKPOINT_FOLDER = "checkpoints"
RETRY_PAUSES = (0.0, 2.0)
"""Seconds before the second and the third attempt to read an object that came damaged; each has a new connection."""
_SHARD_NAME = re.compile(rf"{CHECKPOINT_FOLDER}/objects/[0-9a-f]{{64}}\.safetensors")
T = TypeVar("T")


def read_with_retries(objects: StoredObjects, read_once: Callable[[StoredObjects], T]) -> T:
    """Return the result of `read_once`, called again at most twice after a damaged object or an error of the store.

    Raises:
        DamagedError: the object was damaged the third time as well.
        StoreError: the store failed the third time as well.
    """
    for pause in RETRY_PAUSES:
        try:
            return read_once(objects)
        except (DamagedError, StoreError):
            time.sleep(pause)
            objects = objects.reconnect()
    return read_once(objects)


def shard_name(sha256: str) -> str:
    """Return the shard's name below the run's URL."""
    return f"{CHECKPOINT_FOLDER}/{shard_path(Path(), sha256).as_posix()}"


def manifest_name(manifest: Manifest) -> str:
    """Return the manifest's name below the run's URL."""
    return f"{CHECKPOINT_FOLDER}/{manifest.file.name}"


def list_stored_files(objects: StoredObjects) -> tuple[list[str], dict[str, int]]:
    """Return the names of the manifests below a run's URL, oldest first, and the sizes of the shards by name."""
    entries = objects.entries(f"{CHECKPOINT_FOLDER}/")
    names = [entry.name for entry in entries if _is_manifest_entry(entry)]
    shards = {entry.name: entry.bytes for entry in entries if _SHARD_NAME.fullmatch(entry.name)}
    # By round and step in `checkpoints/ROUND.STEP.json`, as numbers: a round of seven digits comes after one of six.
    names.sort(key=lambda name: [int(number) for number in name.split("/")[1].split(".")[:2]])
    return names, shards


def _is_manifest_entry(entry: ObjectEntry) -> bool:
    return PurePosixPath(entry.name).parent.as_posix() == CHECKPOINT_FOLDER and is_manifest(Path(entry.name))


def read_remote(objects: StoredObjects, name: str) -> Manifest:
    """Return a manifest at a URL; `damage` says that it is damaged or missing, and a missing one is `unread` too."""
    manifest, _content = _read_manifest(objects, name)
    return manifest


def _read_manifest(objects: StoredObjects, name: str) -> tuple[Manifest, bytes]:
    """Return a manifest at a URL and its bytes, read up to three times.

    If it stays damaged, its `damage` says why; if it is missing or too large, the bytes are empty.
    """
    file = Path(PurePosixPath(name).name)
    # The first value is never returned: each attempt replaces it, or raises an error of the store.
    last_result = (Manifest(file=Path(name), round=-1, step=-1), b"")

    def read(objects: StoredObjects) -> None:
        """Read the manifest into `last_result`; raise if another attempt may give a better one."""
        nonlocal last_result
        content = objects.read(name)
        manifest = parse_manifest(file, content if content is not None else b"")
        if content is None:
            manifest = replace(manifest, damage="the manifest is missing", unread=True)
        last_result = manifest, content or b""
        # A manifest that is there and `unread` has a later format: another attempt reads the same.
        if manifest.damage and (content is None or not manifest.unread):
            raise DamagedError(manifest.damage)

    # The last result counts, even if all three were damaged: then it says why.
    try:
        read_with_retries(objects, read)
    except OversizeError as error:
        # Parsed without content, for the round and the step in the file's name.
        return replace(parse_manifest(file, b""), damage=f"the manifest cannot be read ({error})"), b""
    except DamagedError:
        pass
    return last_result


def find_shard_problem(manifest: Manifest, shards: dict[str, int]) -> str:
    """Return a problem of a checkpoint at a URL that shows from `shards`, sizes by name; empty if there is none."""
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
    stored_names: Collection[str],
    *,
    buffer: SendBuffer,
    on_bytes_sent: Callable[[int], None],
) -> Iterator[ShardRecord]:
    """Send the shards of a checkpoint that the store lacks; yields each when it was sent and verified.

    A shard that is damaged in the folder is not sent, so that it overwrites nothing at the store.

    Args:
        objects: below the run's URL.
        folder: the run's `checkpoints` folder.
        manifest: the checkpoint.
        stored_names: names of the shards at the store; may grow meanwhile.
        buffer: memory that the files go through.
        on_bytes_sent: called with the bytes of each piece.

    Raises:
        CheckpointError: a shard is missing or damaged in the folder, so the checkpoint cannot be sent.
        StoreError: the store cannot be reached, or received other bytes than were sent.
    """
    for shard in manifest.shards:
        name = shard_name(shard.sha256)
        if name in stored_names:  # the name is the hash of the content, so the content is the same
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
    """Send the manifest, after all its shards.

    If the run was resumed from an earlier checkpoint, a manifest of that name exists already. It stays if it differs in
    its time alone; else it is replaced, as this process is the only writer.
    """
    name = manifest_name(manifest)
    content = read_regular(manifest.file, follow_links=False)
    # `create` fails if the object exists; if it succeeds, nothing needs to be read from the store.
    if objects.create(name, content):
        return
    stored_manifest = read_remote(objects, name)
    if replace(stored_manifest, file=manifest.file, saved=manifest.saved) != manifest:
        objects.put(name, content)


def fetch_newest(objects: StoredObjects, folder: Path, *, say: ShowLine) -> Manifest | None:
    """Copy the newest complete checkpoint at a URL into `folder`. Returns its manifest; None if there is none.

    Shards that are in the folder already are not copied again. A checkpoint with an object that is damaged three times
    is reported and skipped; nothing is removed at the store.

    Args:
        objects: below the run's URL.
        folder: a run's `checkpoints` folder; created if it is missing.
        say: gets sentences about each skipped checkpoint, why, and the checkpoint that is used instead.
    """
    names, sizes = list_stored_files(objects)
    for skipped_count, name in enumerate(reversed(names)):
        manifest, content = _read_manifest(objects, name)
        problem = find_shard_problem(manifest, sizes) or _fetch_shards(objects, folder, manifest)
        if not problem:
            # The manifest is written last: it says that its shards are there.
            write_object(folder / manifest.file.name, content)
            if skipped_count:
                say(f"Checkpoint {manifest.file.name} (round {manifest.round}) is whole and is used instead.")
            return replace(manifest, file=folder / manifest.file.name)
        state = "cannot be used" if manifest.unread else "is damaged"
        say(f"Checkpoint {manifest.file.name} at {objects.url} {state} and is skipped: {problem}.")
    return None


def _fetch_shards(objects: StoredObjects, folder: Path, manifest: Manifest) -> str:
    """Copy a checkpoint's shards into `folder`. Returns a problem; empty if all shards are in the folder."""
    for shard, leaves in leaves_by_shard(manifest).items():
        path = shard_path(folder, shard.sha256)
        # A shard that an interrupted fetch has left is used if it is intact.
        if path.is_file() and isinstance(read_shard(path, shard, leaves), ShardReading):
            continue

        def fetch(objects: StoredObjects) -> None:
            """Copy the shard; no file is written if its bytes are wrong."""
            write_object(path, _verified_pieces(objects, shard, leaves))  # noqa: B023  (called in this turn alone)

        try:
            read_with_retries(objects, fetch)
        except DamagedError as error:
            return str(error)
    return ""


def _verified_pieces(objects: StoredObjects, shard: ShardRecord, leaves: tuple[LeafRecord, ...]) -> Iterator[bytes]:
    """Yield a shard's bytes from a URL; raise after the last piece if they are wrong, so that no file is written.

    Raises:
        DamagedError: the object is missing, or has another size or content than the manifest says.
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
    """Return whether every shard of a checkpoint at a URL is intact; reads all of them."""
    return not any(_describe_damage(objects, shard, leaves) for shard, leaves in leaves_by_shard(manifest).items())


def list_remote(objects: StoredObjects) -> list[tuple[Manifest, list[str]]]:
    """Return every checkpoint at a URL with a list of its problems, newest last; reads every shard once."""
    names, sizes = list_stored_files(objects)
    damage = cache(partial(_describe_damage, objects))  # cached, as checkpoints share shards
    checkpoints = []
    for name in names:
        manifest = read_remote(objects, name)
        if problem := find_shard_problem(manifest, sizes):
            problems = [problem]
        else:
            problems = [damage(shard, leaves) for shard, leaves in leaves_by_shard(manifest).items()]
        checkpoints.append((manifest, [problem for problem in problems if problem]))
    return checkpoints


def _describe_damage(objects: StoredObjects, shard: ShardRecord, leaves: tuple[LeafRecord, ...]) -> str:
    """Return the problem of a shard at a URL, which is read up to three times; empty if it is intact."""

    def read(objects: StoredObjects) -> None:
        """Read the whole shard, and raise at its end if it is damaged."""
        for _piece in _verified_pieces(objects, shard, leaves):
            pass

    try:
        read_with_retries(objects, read)
    except DamagedError as error:
        return str(error)
    return ""
