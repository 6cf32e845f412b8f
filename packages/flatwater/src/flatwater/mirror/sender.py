"""The requests of a mirror to the store: claim the URL, hold its lock, send new objects, remove old checkpoints.

Every call waits for the store. A run calls from the mirror's thread, `flatwater mirror` from the main thread.
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
    find_shard_problem,
    is_intact,
    list_stored_files,
    manifest_name,
    read_remote,
    send_manifest,
    send_shards,
    shard_name,
)
from flatwater.rundir.layout import RunFolder
from flatwater.storage.objects import StoredObjects
from flatwater.storage.upload import SendBuffer, send_file
from flatwater.storage.url_lock import RENEW_SECONDS, Lock, LockedError, new_token, take_lock
from flatwater_watch.errors import ConfigError, RunError
from flatwater_watch.events.background import ShowLine

CLAIM_FILE = "mirror.json"
"""Object with the identity of the run at a URL; in a run folder, the file with identity and URL of its mirror."""
FILES_KEPT_HERE = (CLAIM_FILE, "report.html", "result.png")
"""Files that are not sent: the claim is its own object, and page and picture can be made again anywhere."""


def encode_claim(identity: str) -> bytes:
    """Return the content of the claim's object, for the run of this identity."""
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
    say: ShowLine
    buffer: SendBuffer = field(default_factory=SendBuffer)
    token: str = field(default_factory=new_token)
    """Token of the lock; the same in all tries to connect, as one that failed half-way may have taken the lock."""
    lock: Lock | None = None
    renewed_at: float = 0.0
    """Time of the last renewal, by `time.monotonic`."""
    shards: set[str] = field(default_factory=set)
    """Names of shards that were verified and are at the store."""
    unnamed_shards: set[str] = field(default_factory=set)
    """Names of shards that no manifest names: left by a sender that was killed."""
    protected_shards: set[str] = field(default_factory=set)
    """Names of the shards of damaged checkpoints, which are not removed."""
    manifests: dict[str, Manifest] = field(default_factory=dict)
    """Manifests at the store by name, oldest first; without their leaves."""
    may_remove: bool = True
    """Whether objects may be removed; False once the store has refused it."""
    sent_marks: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Modification time in nanoseconds and size of each file when it was sent, by name."""

    def connect_(self) -> None:
        """Claim the URL, take its lock and list the store; do nothing if that is done already.

        Raises:
            LockedError: another process writes there, another run lies there, or this run went on elsewhere.
        """
        if self.lock is not None:
            return
        # The claim first: it says for good whose objects these are, while the lock is this process's.
        if not self.objects.create(CLAIM_FILE, encode_claim(self.identity)):
            raise LockedError(
                f"{self.objects.url}: another run is mirrored there. Give this run another folder name with "
                "--run, or another --mirror."
            )
        lock, previous_holder = take_lock(self.objects, self.token)
        if previous_holder:
            self.say(f"mirror: took over the lock that {previous_holder} has left behind")
        try:
            self._list_store_()
            self._require_not_ahead_()
        except LockedError:
            lock.release_()
            raise
        self.lock, self.renewed_at = lock, time.monotonic()  # set last, so that a failed try is repeated

    def _list_store_(self) -> None:
        """Remove leftovers, and note the manifests and the shards at the store: whole, damaged and unnamed.

        Damaged checkpoints stay, with their shards, and unnamed shards stay while a manifest cannot be read: the
        listing may be wrong, and the next read may succeed. `flatwater prune` removes them.
        """
        # "" is the run's own folder.
        for folder in ("", CHECKPOINT_FOLDER, f"{CHECKPOINT_FOLDER}/objects", "tensorboard"):
            self.objects.remove_unfinished_writes(folder)
        names, sizes = list_stored_files(self.objects)
        manifests = {name: read_remote(self.objects, name) for name in names}
        problems = {
            name: problem for name, manifest in manifests.items() if (problem := find_shard_problem(manifest, sizes))
        }
        # Without leaves, which are thousands of records and not needed here.
        self.manifests = {
            name: replace(manifest, leaves=()) for name, manifest in manifests.items() if name not in problems
        }
        self.shards = {shard_name(shard.sha256) for manifest in self.manifests.values() for shard in manifest.shards}
        self.protected_shards = {shard_name(shard.sha256) for name in problems for shard in manifests[name].shards}
        all_read = not any(manifest.damage for manifest in manifests.values())
        self.unnamed_shards = {*sizes} - self.shards - self.protected_shards if all_read else set()
        for name, problem in problems.items():
            self.say(f"mirror: {name} at {self.objects.url} is damaged and stays there: {problem}")

    def _require_not_ahead_(self) -> None:
        """Refuse to overwrite checkpoints that the run saved elsewhere since it left this folder.

        A newer checkpoint that is damaged does not count: the folder may have been fetched from this URL by an older,
        whole one. Shards that only it has count as missing, and are sent again.

        Raises:
            LockedError: the mirror is ahead of this folder, as the run was continued elsewhere.
        """
        # Round and step of the folder's newest checkpoint.
        own_state = max((_round_and_step(m) for m in list_checkpoints(self.folder.checkpoints)), default=(0, 0))
        newer_names = [name for name, m in self.manifests.items() if _round_and_step(m) > own_state]
        for name in reversed(newer_names):
            # Every byte is read, as the listing has shown only sizes.
            manifest = read_remote(self.objects, name)
            if not manifest.damage and is_intact(self.objects, manifest):
                raise LockedError(
                    f"{self.objects.url}: the mirror is at round {manifest.round}, "
                    f"{self.folder.with_current_name.path} at round {own_state[0]}: "
                    "the run was continued elsewhere. Resume it from there: flatwater resume "
                    f"{self.objects.url} --into FOLDER"
                )
            self.say(f"mirror: {name} at {self.objects.url} is damaged: it does not count")
            self.protected_shards |= {shard_name(shard.sha256) for shard in self.manifests.pop(name).shards}
        if newer_names:  # without the shards that only damaged ones name
            self.shards = {shard_name(shard.sha256) for m in self.manifests.values() for shard in m.shards}

    def unsent_bytes(self, manifest: Manifest) -> int:
        """Return the bytes of a checkpoint's shards that are not at the store yet."""
        return sum(shard.bytes for shard in manifest.shards if shard_name(shard.sha256) not in self.shards)

    def send_(self, manifest: Manifest) -> None:
        """Send a checkpoint's shards, the run's changed files, and last the manifest; then remove old checkpoints."""
        folder = self.folder.checkpoints
        for shard in send_shards(
            self.objects, folder, manifest, self.shards, buffer=self.buffer, on_bytes_sent=self.after_piece_
        ):
            self.shards.add(shard_name(shard.sha256))
        # Before the manifest, so that a checkpoint at the store has the records of its rounds next to it.
        self.send_files_()
        self._require_lock()  # another process may have taken the lock while shards were sent
        send_manifest(self.objects, manifest)
        self.manifests[manifest_name(manifest)] = replace(manifest, leaves=())
        self._remove_old_()  # after the new manifest was sent, so that a whole checkpoint is always there

    def after_piece_(self, count: int) -> None:
        """Count the bytes of a piece, and renew the lock, which could expire while a single large file is sent."""
        self.on_bytes_sent(count)
        self.renew_lock_()

    def renew_lock_(self) -> None:
        """Renew the lock, if the last renewal is `RENEW_SECONDS` ago.

        Raises:
            LockedError: another process has taken the lock.
        """
        if self.lock is not None and time.monotonic() - self.renewed_at >= RENEW_SECONDS:
            if not self.lock.renew_():
                raise _lock_lost_error(self.objects.url)
            self.renewed_at = time.monotonic()

    def _require_lock(self) -> None:
        """Refuse to change the store if the lock, as the store has it now, is no longer this process's.

        Raises:
            LockedError: another process took the lock.
        """
        if self.lock is None or not self.lock.is_held():
            raise _lock_lost_error(self.objects.url)

    def send_files_(self) -> int:
        """Send the run's small files that have changed since they were last sent. Returns their number."""
        count = 0
        for path in sorted(small_files(self.folder)):
            name = path.relative_to(self.folder.root).as_posix()
            try:
                # Taken before the file is read: a line that is appended meanwhile changes the mark, and is sent later.
                status = path.stat()
                mark = (status.st_mtime_ns, status.st_size)
                if self.sent_marks.get(name) == mark:
                    continue
                send_file(self.objects, name, path, self.buffer, self.after_piece_)
            except FileNotFoundError:  # removed since it was listed
                continue
            self.sent_marks[name] = mark
            count += 1
        return count

    def _remove_old_(self) -> None:
        """Remove checkpoints that the policy does not keep, and the shards that no other checkpoint needs."""
        oldest_first = sorted(self.manifests.values(), key=_round_and_step)
        kept_by_name = {manifest_name(m): m for m in checkpoints_to_keep(oldest_first, self.keep)}
        removed_names = [name for name in self.manifests if name not in kept_by_name]
        needed_shards = {shard_name(shard.sha256) for m in kept_by_name.values() for shard in m.shards}
        try:
            # Manifests first: a kill in between leaves shards that nobody needs, never a manifest without its shards.
            self.objects.remove(removed_names)
            unneeded_shards = (self.shards | self.unnamed_shards) - needed_shards - self.protected_shards
            self.objects.remove(sorted(unneeded_shards))
        except ConfigError as error:  # the credentials may permit writing alone
            if self.may_remove:
                self.say(f"mirror: old checkpoints cannot be removed: {error}")
            self.may_remove = False
        # Also where the store has refused: what is left there is not asked for again.
        self.manifests = kept_by_name
        self.shards = needed_shards
        self.unnamed_shards = set()

    def release_(self) -> None:
        """Release the lock, so that others may write there."""
        if self.lock is not None:
            self.lock.release_()
            self.lock = None


def _round_and_step(manifest: Manifest) -> tuple[int, int]:
    return manifest.round, manifest.step


def small_files(folder: RunFolder) -> Iterator[Path]:
    """Yield the files of a run that are sent besides checkpoints: settings, records, plan, result; no links."""
    # Names that begin with a dot are locks and unfinished files.
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
