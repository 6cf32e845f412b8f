"""The lock at a URL, which the process that writes there holds while it lives.

It is an object that is written only if there is none, so of two processes that begin at the same moment the store
refuses one. A process that dies leaves its lock, which counts as stale once it was not renewed for `STALE_SECONDS`, or
at once if the process ran on this machine and is gone.
"""

import hashlib
import json
import os
import secrets
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from flatwater import __version__
from flatwater.storage.objects import StoredObjects
from flatwater_watch.errors import ConfigError, RunError
from flatwater_watch.files.json_values import convert_to_type, parse_json
from flatwater_watch.sanitize import short_repr
from flatwater_watch.units import format_duration

LOCK_FILE = "lock.json"
RENEW_SECONDS = 60.0
# Fifteen renewals in a row may fail, at a store that is slow or cannot be reached.
STALE_SECONDS = 900.0
"""Seconds without a renewal after which a lock is stale; stores refuse clocks that are wrong by more."""


class LockedError(RunError):
    """Another process writes at the URL."""


@dataclass(frozen=True)
class Holder:
    """Process that holds a lock, as the lock's object describes it."""

    token: str
    """Random text by which a process recognises its own lock."""
    host: str
    boot: str
    """Identity of the machine, which tells it from others of its name and from itself before a restart; empty if the
    system does not tell."""
    pid: int
    renewed: str
    """Time of the last renewal, in UTC (ISO 8601)."""
    ticks: int | None = None
    """Time of the process's start in ticks since the machine's: process numbers come again. None in a lock of a
    version that wrote the time of a clock instead, which anybody may set."""
    version: str = ""
    """Version of Flatwater that wrote the lock; empty for locks without a version."""

    @property
    def age(self) -> float:
        """Seconds since the last sign of life."""
        return (datetime.now(UTC) - datetime.fromisoformat(self.renewed)).total_seconds()

    @property
    def is_stale(self) -> bool:
        """Whether its process is gone, as far as this machine can know."""
        # For a process of this machine no clock counts: after a machine has slept, a lock that is held looks old.
        if self.ticks is not None and self.boot and self.boot == _machine_identity():
            # If the system hides the process, the lock's age decides below, as on another machine.
            with suppress(PermissionError):
                return process_start(self.pid) != self.ticks
        return self.age > STALE_SECONDS

    def __str__(self) -> str:
        """Return text such as `process 41 on box-7, last sign of life 12 s ago`."""
        return f"process {self.pid} on {self.host}, last sign of life {format_duration(max(0.0, self.age))} ago"


def _machine_identity() -> str:
    """Return text that tells this machine's processes from others: its name, boot and namespace of process numbers.

    Empty on a system without /proc.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        # The namespace of process numbers is part of it: containers share the boot, and number their own processes.
        return f"{socket.gethostname()} {boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:  # another system
        return ""


def read_holder(objects: StoredObjects) -> Holder | None:
    """Return the holder of the lock, alive or not; None if there is no lock, or it names no holder.

    Raises:
        LockedError: another version of Flatwater wrote the lock, in a form of its own.
    """
    content = objects.read(LOCK_FILE)
    return None if content is None else _parse_holder(content, objects.url)


def has_writer(objects: StoredObjects) -> bool:
    """Return whether a process that may be alive holds the lock of the URL."""
    try:
        holder = read_holder(objects)
    except LockedError:
        return True  # the lock of another version cannot be read, so its holder may be alive
    return holder is not None and not holder.is_stale


def _parse_holder(content: bytes, url: str) -> Holder | None:
    """Return the holder in a lock's content; None if it is no lock, or what `Lock.release_` has left.

    Raises:
        LockedError: the content has the token that locks of all versions have, and does not fit this version.
    """
    try:
        lock = parse_json(content)
    except ValueError:
        return None
    if not isinstance(lock, dict) or "token" not in lock:
        return None
    try:
        holder = convert_to_type(lock, Holder)
        if datetime.fromisoformat(holder.renewed).tzinfo:  # a time without a zone cannot be compared with now
            return holder
    except ValueError:
        pass  # refused below
    raise LockedError(
        f"{url}: a process of Flatwater {short_repr(lock.get('version', 'of another version'))} writes here. This "
        f"is Flatwater {__version__!r}, which cannot check whether that process is alive. Stop it, and use one version "
        f"for a run. If the process is gone, remove {url}/{LOCK_FILE}."
    )


@dataclass
class Lock:
    """A lock that this process holds from `take_lock` on."""

    objects: StoredObjects
    token: str

    def renew_(self) -> bool:
        """Renew the lock. Returns False if another process has taken it, as this one seemed dead, else True."""
        if not self.is_held():
            return False
        self.objects.put(LOCK_FILE, _lock_content(self.token))
        return True

    def is_held(self) -> bool:
        """Return whether the lock at the store is still this process's."""
        try:
            holder = read_holder(self.objects)
        except LockedError:
            return False
        return holder is not None and holder.token == self.token

    def release_(self) -> None:
        """Release the lock, so that others may write, unless another process has taken it."""
        if not self.is_held():
            return
        try:
            self.objects.remove([LOCK_FILE])
        except ConfigError:  # credentials that may only write replace the lock by a content without a holder
            self.objects.put(LOCK_FILE, json.dumps({"released_by": self.token}).encode() + b"\n")


def new_token() -> str:
    """Return a new random token for a lock's holder."""
    return secrets.token_hex(8)


def take_lock(objects: StoredObjects, token: str = "") -> tuple[Lock, str]:
    """Take the lock; return it, and a text about the dead process that held it before, empty if none did.

    Args:
        objects: the objects that are locked.
        token: token of an earlier try that may have taken the lock before it failed; empty for a new token.

    Raises:
        LockedError: a process that may be alive holds the lock; the message names it and says what to do.
    """
    lock = Lock(objects, token or new_token())
    # Written only if there is none: of two processes at the same moment the store refuses one.
    if objects.create(LOCK_FILE, _lock_content(lock.token)):
        return lock, ""
    old_content = objects.read(LOCK_FILE)
    if old_content is None:  # released in this moment
        return take_lock(objects, lock.token)
    holder = _parse_holder(old_content, objects.url)
    # An earlier try whose answer was lost: the lock is this process's already.
    if holder is not None and holder.token == lock.token:
        return lock, ""
    if holder is not None and not holder.is_stale:
        raise LockedError(
            f"{objects.url}: {holder} writes here. Stop it, or wait: its lock ends "
            f"after {format_duration(STALE_SECONDS)} without a sign of life. If the process is gone, "
            f"remove {objects.url}/{LOCK_FILE}."
        )
    _replace_stale_lock(lock, old_content)
    return lock, "" if holder is None else str(holder)


def _replace_stale_lock(lock: Lock, old_content: bytes) -> None:
    """Replace a lock whose process is gone.

    Several processes may try at the same time. Only one can create the object that is named after the old content, and
    replaces the lock. A process that comes after that object was removed finds a lock with another content.

    Raises:
        LockedError: another process took the lock in the meantime.
    """
    objects = lock.objects
    claim_name = f"lock.{hashlib.sha256(old_content).hexdigest()[:16]}.json"
    # A claim of a process that is gone, or of an earlier try of this one, keeps nobody from replacing the lock.
    if not objects.create(claim_name, _lock_content(lock.token)):
        new_holder = _parse_holder(objects.read(claim_name) or b"", objects.url)
        if new_holder is not None and new_holder.token != lock.token and not new_holder.is_stale:
            raise _lock_lost_error(objects)
    try:
        # Read once more, as another process may have replaced the lock before this one created its object.
        if objects.read(LOCK_FILE) != old_content:
            raise _lock_lost_error(objects)
        objects.put(LOCK_FILE, _lock_content(lock.token))
    finally:
        with suppress(ConfigError):  # if it may not be removed, it harms nobody: no other lock has this content
            objects.remove([claim_name])


def _lock_lost_error(objects: StoredObjects) -> LockedError:
    return LockedError(f"{objects.url}: another process has just begun to write here. Wait for it, or stop it.")


def is_lock(name: str) -> bool:
    """Return whether an object's name is that of a lock, or of an attempt to replace one."""
    return name.startswith("lock.")


def _lock_content(token: str) -> bytes:
    """Return a lock's content: JSON with this process as its holder, and now as the time of renewal."""
    pid = os.getpid()
    time_now = datetime.now(UTC).isoformat(timespec="seconds")
    machine = _machine_identity()
    holder = Holder(
        token=token,
        host=socket.gethostname(),
        boot=machine,
        pid=pid,
        renewed=time_now,
        ticks=process_start(pid) if machine else None,  # not known without /proc
        version=__version__,
    )
    return json.dumps(asdict(holder), indent=1).encode() + b"\n"


def process_start(pid: int) -> int | None:
    """Return the start of a process in clock ticks after the machine's start; None if no such process lives.

    Raises:
        PermissionError: the process lives and belongs to another user, and the system hides it from this process.
    """
    try:
        stat_text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        _raise_if_hidden(pid)
        return None
    # proc(5): `pid (name) state ...`. The name may hold spaces and parentheses: the last one ends it.
    state, *fields_from_4 = stat_text.rpartition(")")[2].split()
    is_dead = state in "ZX"  # Z: a zombie, which counts as dead; X: dead
    return None if is_dead else int(fields_from_4[22 - 4])  # field 22: starttime


def _raise_if_hidden(pid: int) -> None:
    """Raise PermissionError if a process of another user lives, though /proc does not show it."""
    try:
        # Signal 0 is not sent: the call only fails, with PermissionError if the process is another user's.
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return
