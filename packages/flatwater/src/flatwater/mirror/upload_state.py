"""State that a run and its mirror's thread share: the checkpoint that is being sent, the waiting one, and counts.

At most one checkpoint waits while one is being sent, however slow the store is. The state has their manifests; their
bytes stay on the disk.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition

from flatwater.checkpoints.manifest import Manifest
from flatwater.storage.url_lock import RENEW_SECONDS
from flatwater_watch.units import format_bytes, format_duration


@dataclass
class UploadState:
    """State of a mirror; its methods may be called from the run's thread and the mirror's, and hold `condition`."""

    url: str
    unsent_bytes: Callable[[Manifest], int]
    """Returns the bytes of a checkpoint that are not at the store."""
    condition: Condition = field(default_factory=Condition)  # its lock is reentrant, as methods call each other
    abandoned: bool = False
    """Whether the run no longer waits for the thread: what was not sent stays unsent."""
    sending: Manifest | None = None
    """Checkpoint that is being sent; None if there is none."""
    waiting: Manifest | None = None
    """Checkpoint that is sent next; None if there is none."""
    run_ended: bool = False
    """Whether the run has ended, after its rounds or not."""
    rounds_finished: bool = False
    """Whether the run has finished its rounds, so that sending the rest may take as long as it needs."""
    files_pending: bool = False
    """Whether the run's last files are to be sent, and the lock to be released."""
    bytes_left: int = 0
    """Bytes of `sending` that were not sent yet."""
    last_moved: float = field(default_factory=time.monotonic)
    """Time when bytes were last sent, by `time.monotonic`."""
    last_success: float | None = None
    """Time when a checkpoint was last sent whole; None before the first."""
    failing_since: float | None = None
    """Time of the first failure since the last success; None if there is none."""
    trouble: str = ""
    """Reason of the last failure; empty after a success."""
    lost_reason: str = ""
    """Reason why this process must not write at the URL any more; empty while it may."""
    sent: int = 0
    """Number of checkpoints that were sent whole."""
    sent_bytes: int = 0
    dropped: int = 0
    """Number of checkpoints that are not sent, as a newer one replaced them or they are damaged."""
    failures: int = 0
    """Number of attempts that failed."""
    # Bounded: a store that fails for weeks must not fill the memory.
    messages: deque[str] = field(default_factory=lambda: deque(maxlen=20))

    @property
    def is_idle(self) -> bool:
        """Whether everything that was offered is at the store or was dropped."""
        return self.sending is None and self.waiting is None and not self.files_pending

    def pending_manifests(self) -> frozenset[Path]:
        """Return the manifest files of the checkpoint that is being sent and of the waiting checkpoint."""
        with self.condition:
            return frozenset(manifest.file for manifest in (self.sending, self.waiting) if manifest is not None)

    def enqueue_manifest_(self, manifest: Manifest) -> None:
        """Let a checkpoint wait to be sent, and drop the one that waited; do nothing if this process lost the lock."""
        with self.condition:
            if self.lost_reason:  # another process writes there
                return
            if self.waiting is not None:
                self._count_dropped_checkpoint_(self.waiting, manifest)
            self.waiting = manifest
            self.condition.notify_all()

    def _count_dropped_checkpoint_(self, older: Manifest, newer: Manifest) -> None:
        """Count a checkpoint that a newer one replaces unsent. Called with `condition` held."""
        # Only the first has a message: at a slow store every checkpoint would have one.
        self.dropped += 1
        if self.dropped == 1:
            self.messages.append(
                f"mirror: {self._lateness_reason()}: the checkpoint of round {newer.round} is sent in place of round "
                f"{older.round}. Later replacements are only counted"
            )

    def _lateness_reason(self) -> str:
        """Return why checkpoints are not sent in time: sending fails, or the store is slow."""
        return (
            f"{self.url} is slower than the run"
            if self.failing_since is None
            else f"sending still fails ({self.trouble})"
        )

    def wait_for_work_(self) -> bool:
        """Wait until there is something to send, or the store's lock must be renewed; move `waiting` to `sending`.

        Called in the mirror's thread. Returns False if the thread is to end.
        """
        with self.condition:
            self.condition.wait_for(lambda: self.run_ended or not self.is_idle, timeout=RENEW_SECONDS)
            if self.abandoned or (self.is_idle and self.run_ended):
                return False
            # `sending` stays None where only the lock must be renewed.
            self.sending, self.waiting = self.waiting, None
            self.bytes_left = 0 if self.sending is None else self.unsent_bytes(self.sending)
        return True

    def is_last(self) -> bool:
        """Return whether the run has ended, and no checkpoint waits behind the checkpoint that is being sent."""
        with self.condition:
            return self.run_ended and self.waiting is None

    def count_bytes_(self, count: int) -> bool:
        """Count sent bytes. Returns whether the checkpoint is still wanted.

        It is not if the run has ended and a newer checkpoint waits, or if the run no longer waits for the thread.
        """
        with self.condition:
            self.bytes_left = max(0, self.bytes_left - count)
            self.sent_bytes += count
            self.last_moved = time.monotonic()
            return not (self.abandoned or (self.run_ended and self.waiting is not None))

    def record_success_(self, *, is_last: bool) -> None:
        """Record that `sending` is at the store; with `is_last`, also the run's last files."""
        with self.condition:
            if self.sending is not None:
                self.sent += 1
                self.last_success = time.monotonic()
            if self.failing_since is not None:
                duration = format_duration(time.monotonic() - self.failing_since)
                self.messages.append(f"mirror: {self.url} works again, after {duration}")
            self.sending, self.bytes_left = None, 0
            self.failing_since, self.trouble = None, ""
            self.files_pending = self.files_pending and not is_last

    def record_failure_(self, reason: str, consequence: str) -> None:
        """Record a failure; the first since the last success becomes a message, with its consequence for the run."""
        with self.condition:
            self.failures += 1
            self.trouble = reason
            if self.failing_since is None:
                self.failing_since = time.monotonic()
                self.messages.append(f"mirror: {reason}. {consequence}, and the upload is tried again")

    def requeue_after_failure_(self, reason: str, pause: float) -> None:
        """Record a failure, let the checkpoint that was being sent wait again, and pause.

        Args:
            reason: reason of the failure.
            pause: seconds of the pause, which the end of the run shortens.
        """
        with self.condition:
            self.record_failure_(reason, "The run goes on")
            self.put_back_()
            # At most a second once the run has ended, as `Mirror.finish` waits for this thread.
            if self.run_ended:
                self.condition.wait_for(lambda: self.abandoned, timeout=min(pause, 1.0))
            else:
                self.condition.wait_for(lambda: self.run_ended, timeout=pause)

    def put_back_(self) -> None:
        """Let the checkpoint that was being sent wait again; drop it if a newer checkpoint waits."""
        with self.condition:
            if self.sending is not None and self.waiting is None:
                self.waiting = self.sending
            elif self.sending is not None and self.waiting is not None:  # the waiting one is newer
                self._count_dropped_checkpoint_(self.sending, self.waiting)
            self.sending, self.bytes_left = None, 0

    def skip_current_(self, reason: str) -> None:
        """Drop the checkpoint that is being sent, as it is damaged in the folder."""
        with self.condition:
            self.dropped += 1
            self.messages.append(f"mirror: {reason}")
            self.sending, self.bytes_left = None, 0

    def stop_sending_(self, reason: str) -> None:
        """Stop sending for good, as another process has taken the lock."""
        with self.condition:
            self.lost_reason = reason
            self.messages.append(f"mirror: {reason} The run goes on without a mirror")
            self.sending = self.waiting = None
            self.files_pending, self.bytes_left = False, 0

    def take_news_(self) -> list[str]:
        """Return sentences about the events since the last call."""
        with self.condition:
            messages = [*self.messages]
            self.messages.clear()
        return messages

    def metrics(self) -> dict[str, float]:
        """Return numbers for the round's metrics: checkpoints and bytes by state, failures, age of the last success."""
        with self.condition:
            numbers: dict[str, float] = {
                "pending": sum(manifest is not None for manifest in (self.sending, self.waiting)),
                "pending_bytes": self.bytes_left + (0 if self.waiting is None else self.unsent_bytes(self.waiting)),
                "sent": self.sent,
                "sent_bytes": self.sent_bytes,
                "dropped": self.dropped,
                "failures": self.failures,
            }
            age = {} if self.last_success is None else {"seconds_since_ok": time.monotonic() - self.last_success}
        return {f"mirror/{name}": float(value) for name, value in (numbers | age).items()}

    def status_line(self) -> str:
        """Return text such as `mirror: 2 pending, 37.0 MiB, last ok 12 s ago`."""
        if self.lost_reason:
            return "mirror: off"
        numbers = self.metrics()
        success_age = numbers.get("mirror/seconds_since_ok")
        dropped_count = numbers["mirror/dropped"]
        texts = [f"{numbers['mirror/pending']:.0f} pending"]
        texts += [format_bytes(numbers["mirror/pending_bytes"])] if numbers["mirror/pending"] else []
        texts += ["nothing sent yet" if success_age is None else f"last ok {format_duration(success_age)} ago"]
        texts += [f"{dropped_count:.0f} dropped"] if dropped_count else []
        texts += ["failing"] if self.failing_since is not None else []
        return f"mirror: {', '.join(texts)}"
