"""Work of a mirror at the store: claim its place, keep the lock, send new objects, remove those that are not kept.

Everything here waits for the store. A run calls it from the mirror's thread, `flatwater mirror` from the command line.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from flatwater.checkpoints.catalogue import checkpoints_to_keep, list_checkpoints
from flatwater.checkpoints.config import CheckpointConfig
from flatwater.checkpoints.manifest import Manifest
from flatwater.checkpoints.remote import (
    CHECKPOINT_FOLDER,
    is_intact,
    list_stored,
    manifest_name,
    missing_shards,
    read_remote,
    send_manifest,
    send_shards,
    shard_name,
)
from flatwater.rundir.layout import RunFolder
from flatwater.storage.claims import RENEW_SECONDS, Lock, LockedError, new_token, take_lock
from flatwater.storage.objects import StoredObjects
from flatwater.storage.sending import SendBuffer, send_file
from flatwater_watch.errors import ConfigError, RunError

CLAIM_FILE = "mirror.json"
"""Object that says which run lies at a URL; in a run folder the file that says where its mirror is."""
FILES_KEPT_HERE = (CLAIM_FILE, "report.html", "result.png")
"""Files that stay here: the page and the picture can be made again anywhere."""


def encode_claim(identity: str) -> bytes:
    """Return the claim as the bytes of its object."""
    return json.dumps({"run": identity}).encode() + b"\n"


@dataclass
class MirrorSender:
    """Sends a run to its URL; one for each process that mirrors a run."""

    objects: StoredObjects
    """Objects below the run's URL."""
    folder: RunFolder
    identity: str
    """Identity of the run: it is the same wherever the run goes on."""
    keep: CheckpointConfig
    """Policy of the folder, which the mirror follows."""
    on_bytes_sent: Callable[[int], None]
    """Called with the bytes of each piece sent; an exception that it raises ends the sending."""
    say: Callable[[str], None]
    buffer: SendBuffer = field(default_factory=SendBuffer)
    token: str = field(default_factory=new_token)
    """Token of the lock: a try that failed half-way may have taken it."""
    lock: Lock | None = None
    renewed: float = 0.0
    """Time of the last renewal, by `time.monotonic`."""
    shards: set[str] = field(default_factory=set)
    """Names of shards that were verified and are at the store."""
    loose: set[str] = field(default_factory=set)
    """Names of shards that no manifest names, which a sender that was killed has left."""
    spared: set[str] = field(default_factory=set)
    """Names of shards that checkpoints need which are not whole, as far as is known."""
    manifests: dict[str, Manifest] = field(default_factory=dict)
    """Manifests at the store by name, oldest first; without their leaves."""
    removes: bool = True
    """False once the store has refused to remove something."""
    files: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Time of the last change and size of each file by name, as it was sent."""

    def connect_(self) -> None:
        """Claim the place, take the lock and list the store. Does nothing once that is done.

        Raises:
            LockedError: another process writes there, another run lies there, or this run went on elsewhere.
        """
        if self.lock is not None:
            return
        # Claim before lock: the claim stays with the objects, the lock goes with the process.
        if not self.objects.create(CLAIM_FILE, encode_claim(self.identity)):
            raise LockedError(
                f"{self.objects.url}: another run is mirrored there. Give this run another folder name with "
                "--run, or another --mirror."
            )
        lock, left_by = take_lock(self.objects, self.token)
        if left_by:
            self.say(f"mirror: took over the lock that {left_by} has left behind")
        try:
            self._read_store_()
            self._require_not_ahead_()
        except LockedError:
            lock.release_()
            raise
        self.lock, self.renewed = lock, time.monotonic()  # last: a try that failed begins again at the top

    def _read_store_(self) -> None:
        """List the store. A damaged checkpoint stays; all shards stay while a manifest there cannot be read.

        The list may be wrong, and the manifest may come whole another time: `flatwater prune` is asked to remove it.
        """
        for folder in ("", CHECKPOINT_FOLDER, f"{CHECKPOINT_FOLDER}/objects", "tensorboard"):
            self.objects.remove_unfinished(folder)
        names, sizes = list_stored(self.objects)
        manifests = {name: read_remote(self.objects, name) for name in names}
        problems = {name: problem for name, m in manifests.items() if (problem := missing_shards(m, sizes))}
        whole_ones = {name: m for name, m in manifests.items() if name not in problems}
        # Leaves are thousands of records, and never asked here.
        self.manifests = {name: replace(m, leaves=()) for name, m in whole_ones.items()}
        self.shards = {shard_name(shard.sha256) for m in whole_ones.values() for shard in m.shards}
        self.spared = {shard_name(shard.sha256) for name in problems for shard in manifests[name].shards}
        all_read = not any(m.damage for m in manifests.values())
        self.loose = {*sizes} - self.shards - self.spared if all_read else set()
        for name, problem in problems.items():
            self.say(f"mirror: {name} at {self.objects.url} is damaged and stays there: {problem}")

    def _require_not_ahead_(self) -> None:
        """Refuse to overwrite checkpoints that the run saved elsewhere since it left this folder.

        One that is damaged is no reason: the folder may come from here, by the newest checkpoint that is whole. Its
        shards count as missing, and are sent again.

        Raises:
            LockedError: the mirror is ahead of this folder, as the run was continued elsewhere.
        """
        own_state = max((_round_and_step(m) for m in list_checkpoints(self.folder.checkpoints)), default=(0, 0))
        newer = [name for name, m in self.manifests.items() if _round_and_step(m) > own_state]
        for name in reversed(newer):
            # A list shows sizes, and no byte that is wrong.
            manifest = read_remote(self.objects, name)
            if not manifest.damage and is_intact(self.objects, manifest):
                raise LockedError(
                    f"{self.objects.url}: the mirror is at round {manifest.round}, "
                    f"{self.folder.with_current_name.path} at round {own_state[0]}: "
                    "the run was continued elsewhere. Resume it from there: flatwater resume "
                    f"{self.objects.url} --into FOLDER"
                )
            self.say(f"mirror: {name} at {self.objects.url} is damaged: it does not count")
            self.spared |= {shard_name(shard.sha256) for shard in self.manifests.pop(name).shards}
        if newer:
            self.shards = {shard_name(shard.sha256) for m in self.manifests.values() for shard in m.shards}

    def unsent_bytes(self, manifest: Manifest) -> int:
        """Return the bytes of a checkpoint's shards that are not at the store yet."""
        return sum(shard.bytes for shard in manifest.shards if shard_name(shard.sha256) not in self.shards)

    def send_(self, manifest: Manifest) -> None:
        """Send a checkpoint: its shards, the run's files as they are now, and last the manifest."""
        folder = self.folder.checkpoints
        for shard in send_shards(
            self.objects, folder, manifest, self.shards, buffer=self.buffer, on_bytes_sent=self.after_piece_
        ):
            self.shards.add(shard_name(shard.sha256))
        # Before the manifest: a checkpoint at the store has the records of its rounds next to it.
        self.send_files_()
        self._require_lock()  # asked of the store itself: another process may have taken over while shards went
        send_manifest(self.objects, manifest)
        self.manifests[manifest_name(manifest)] = replace(manifest, leaves=())
        self._retain_()  # after the new manifest is there: the last whole checkpoint never goes

    def after_piece_(self, count: int) -> None:
        """Count a piece, and renew the lock: a single file may take longer than a lock lives."""
        self.on_bytes_sent(count)
        self.renew_lock_()

    def renew_lock_(self) -> None:
        """Renew the lock when it is due.

        Raises:
            LockedError: another process has taken the lock.
        """
        if self.lock is not None and time.monotonic() - self.renewed >= RENEW_SECONDS:
            if not self.lock.renew_():
                raise _lock_lost_error(self.objects.url)
            self.renewed = time.monotonic()

    def _require_lock(self) -> None:
        """Refuse to go on where the lock is not this process's any more; asked before the store is changed.

        Raises:
            LockedError: another process took the lock.
        """
        if self.lock is None or not self.lock.is_held():
            raise _lock_lost_error(self.objects.url)

    def send_files_(self) -> int:
        """Send the run's files that have changed since they were sent. Returns their number."""
        count = 0
        for path in sorted(small_files(self.folder)):
            name = path.relative_to(self.folder.root).as_posix()
            try:
                # Before the file is read: a line appended meanwhile makes another mark, and is sent the next time.
                status = path.stat()
                mark = (status.st_mtime_ns, status.st_size)
                if self.files.get(name) == mark:
                    continue
                send_file(self.objects, name, path, self.buffer, self.after_piece_)
            except FileNotFoundError:  # removed since it was listed
                continue
            self.files[name] = mark
            count += 1
        return count

    def _retain_(self) -> None:
        """Remove checkpoints that the policy does not keep: manifests, then shards."""
        order = sorted(self.manifests.values(), key=_round_and_step)
        kept_by_name = {manifest_name(m): m for m in checkpoints_to_keep(order, self.keep)}
        removed_names = [name for name in self.manifests if name not in kept_by_name]
        needed_shards = {shard_name(shard.sha256) for m in kept_by_name.values() for shard in m.shards}
        try:
            # In this order: a kill in between leaves shards that nobody needs, never a manifest without its shards.
            self.objects.remove(removed_names)
            self.objects.remove(sorted((self.shards | self.loose) - needed_shards - self.spared))
        except ConfigError as error:  # who may only write keeps everything
            if self.removes:
                self.say(f"mirror: old checkpoints cannot be removed: {error}")
            self.removes = False
        self.manifests, self.shards, self.loose = kept_by_name, needed_shards, set()

    def release_(self) -> None:
        """Release the lock, so that others may write there."""
        if self.lock is not None:
            self.lock.release_()
            self.lock = None


def _round_and_step(manifest: Manifest) -> tuple[int, int]:
    return manifest.round, manifest.step


def small_files(folder: RunFolder) -> Iterator[Path]:
    """Yield every file of a run but its checkpoints: configuration, records, plan, result. Links stay here."""
    for path in (*folder.root.iterdir(), *folder.tracker("tensorboard").glob("*")):
        if (
            path.is_file()
            and not path.is_symlink()
            and not path.name.startswith(".")
            and path.name not in FILES_KEPT_HERE
        ):
            yield path


def _lock_lost_error(url: str) -> RunError:
    return LockedError(f"{url}: another process has taken over this mirror, so this process no longer writes to it.")
