"""State that a run and its mirror's thread share: the checkpoints that are sent, that wait, and that were dropped.

One checkpoint is being sent and at most one more waits, however slow the store is. State holds manifests, and the
checkpoints stay on the disk, so nothing here holds their bytes.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition

from flatwater.checkpoints.manifest import Manifest
from flatwater.storage.claims import RENEW_SECONDS
from flatwater_watch.units import format_bytes, format_duration


@dataclass
class UploadState:
    """State of sending, read and written under `turn` alone by the run's thread and the mirror's."""

    url: str
    unsent: Callable[[Manifest], int]
    """Returns the bytes of a checkpoint that are not at the store."""
    turn: Condition = field(default_factory=Condition)  # its lock is reentrant: methods here call each other
    stopped: bool = False
    """Whether the run no longer waits for the thread."""
    sending: Manifest | None = None
    waiting: Manifest | None = None
    closing: bool = False
    """Whether the run has ended."""
    unhurried: bool = False
    """Whether the run has finished by itself, so that the rest may take its time."""
    files: bool = False
    """Whether the run's last files are to be sent, and the lock to be released."""
    left: int = 0
    """Bytes of `sending` that have not gone yet."""
    moved: float = field(default_factory=time.monotonic)
    """Time when bytes last went."""
    ok: float | None = None
    """Time when something was last sent whole."""
    since: float | None = None
    """Time when trouble began; None if there is none."""
    trouble: str = ""
    lost: str = ""
    """Reason why this process must not write there any more."""
    sent: int = 0
    sent_bytes: int = 0
    dropped: int = 0
    failures: int = 0
    # Bounded: a store that fails for weeks must not fill the memory.
    messages: deque[str] = field(default_factory=lambda: deque(maxlen=20))

    @property
    def is_idle(self) -> bool:
        """Whether everything that was offered is at the store or was dropped."""
        return self.sending is None and self.waiting is None and not self.files

    def files_of_both(self) -> frozenset[Path]:
        """Return the manifests of the checkpoint that is being sent and of the waiting checkpoint."""
        with self.turn:
            return frozenset(manifest.file for manifest in (self.sending, self.waiting) if manifest is not None)

    def enqueue_manifest_(self, manifest: Manifest) -> None:
        """Let a checkpoint wait to be sent; drop the checkpoint that waited before."""
        with self.turn:
            if self.lost:
                return  # another process writes there
            if self.waiting is not None:
                self._drop_older_(self.waiting, manifest)
            self.waiting = manifest
            self.turn.notify_all()

    def _drop_older_(self, manifest: Manifest, newer: Manifest) -> None:
        """Count a checkpoint that a newer checkpoint replaced before it was sent; the first is told. Under `turn`."""
        # Told once, counted afterwards: at a slow store every checkpoint would be a line.
        self.dropped += 1
        if self.dropped == 1:
            self.messages.append(
                f"mirror: {self._why_behind()}: the checkpoint of round {newer.round} is sent in place of round "
                f"{manifest.round}. Later replacements are only counted"
            )

    def _why_behind(self) -> str:
        """Return the cause: a store that fails is not a slow store."""
        return f"{self.url} is slower than the run" if self.since is None else f"sending still fails ({self.trouble})"

    def wait_for_work_(self) -> bool:
        """Wait for something to send, or until the lock must be renewed, and take it. False if all is done."""
        # In the mirror's thread, which sleeps here without the lock.
        with self.turn:
            self.turn.wait_for(lambda: self.closing or not self.is_idle, RENEW_SECONDS)
            if self.stopped or (self.is_idle and self.closing):
                return False
            self.sending, self.waiting = self.waiting, None
            self.left = 0 if self.sending is None else self.unsent(self.sending)
        return True

    def is_last(self) -> bool:
        """Whether the run has ended, and no checkpoint waits behind the checkpoint that is being sent."""
        with self.turn:
            return self.closing and self.waiting is None

    def count_bytes_(self, count: int) -> bool:
        """Count sent bytes. False if the rest need not be sent now: the run ends, and a newer checkpoint waits."""
        with self.turn:
            self.left, self.moved = max(0, self.left - count), time.monotonic()
            self.sent_bytes += count
            return not (self.stopped or (self.closing and self.waiting is not None))

    def record_success_(self, *, ended: bool) -> None:
        """Record that the checkpoint is at the store; where `ended`, the last files too, and the lock is released."""
        with self.turn:
            if self.sending is not None:
                self.sent += 1
                self.ok = time.monotonic()
            if self.since is not None:
                lasted = format_duration(time.monotonic() - self.since)
                self.messages.append(f"mirror: {self.url} works again, after {lasted}")
            self.sending, self.since, self.trouble, self.left = None, None, "", 0
            self.files = self.files and not ended

    def record_failure_(self, reason: str, goes_on: str) -> None:
        """Record a failure; told when it is the first since all was well."""
        with self.turn:
            self.failures += 1
            self.trouble = reason
            if self.since is None:
                self.since = time.monotonic()
                self.messages.append(f"mirror: {reason}. {goes_on}, and the upload is tried again")

    def requeue_after_failure_(self, reason: str, pause: float) -> None:
        """Put the checkpoint that was being sent back to wait; returns after a pause, shorter where the run ends."""
        with self.turn:
            self.record_failure_(reason, "The run goes on")
            self.put_back_()
            # Not longer than a second at the end: somebody waits in `finish`.
            if self.closing:
                self.turn.wait_for(lambda: self.stopped, min(pause, 1.0))
            else:
                self.turn.wait_for(lambda: self.closing, pause)  # ends early where the run ends meanwhile

    def put_back_(self) -> None:
        """Put the checkpoint that was being sent back to wait, unless a newer checkpoint waits."""
        with self.turn:
            if self.sending is not None and self.waiting is None:
                self.waiting = self.sending
            elif self.sending is not None and self.waiting is not None:
                self._drop_older_(self.sending, self.waiting)
            self.sending, self.left = None, 0

    def skip_current_(self, reason: str) -> None:
        """Drop the checkpoint that is being sent, as it can never be sent."""
        with self.turn:
            self.dropped += 1
            self.messages.append(f"mirror: {reason}")
            self.sending, self.left = None, 0

    def stop_sending_(self, reason: str) -> None:
        """Stop sending for good: another process writes there."""
        with self.turn:
            self.lost = reason
            self.messages.append(f"mirror: {reason} The run goes on without a mirror")
            self.sending = self.waiting = None
            self.files, self.left = False, 0

    def take_news_(self) -> list[str]:
        """Return sentences about the events since the last call."""
        with self.turn:
            messages = [*self.messages]
            self.messages.clear()
        return messages

    def metrics(self) -> dict[str, float]:
        """Return checkpoints and bytes that wait, were sent and were dropped; and seconds since the last success."""
        with self.turn:
            numbers: dict[str, float] = {
                "pending": sum(manifest is not None for manifest in (self.sending, self.waiting)),
                "pending_bytes": self.left + (0 if self.waiting is None else self.unsent(self.waiting)),
                "sent": self.sent,
                "sent_bytes": self.sent_bytes,
                "dropped": self.dropped,
                "failures": self.failures,
            }
            age = {} if self.ok is None else {"seconds_since_ok": time.monotonic() - self.ok}
        return {f"mirror/{name}": float(value) for name, value in (numbers | age).items()}

    def status_line(self) -> str:
        """Return text such as `mirror: 2 pending, 37.0 MiB, last ok 12 s ago`."""
        if self.lost:
            return "mirror: off"
        numbers = self.metrics()
        ok = numbers.get("mirror/seconds_since_ok")
        dropped = numbers["mirror/dropped"]
        parts = [f"{numbers['mirror/pending']:.0f} pending"]
        parts += [format_bytes(numbers["mirror/pending_bytes"])] if numbers["mirror/pending"] else []
        parts += ["nothing sent yet" if ok is None else f"last ok {format_duration(ok)} ago"]
        parts += [f"{dropped:.0f} dropped"] if dropped else []
        parts += ["failing"] if self.since is not None else []
        return f"mirror: {', '.join(parts)}"
