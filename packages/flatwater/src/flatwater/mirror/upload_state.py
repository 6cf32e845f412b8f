"""What a run and its mirror's thread know of each other: what is sent, what waits, and what has become of the rest.

One checkpoint is being sent and at most one more waits, however slow the store is. Checkpoints are named here and stay
on the disk, so nothing here holds their bytes.
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
    """Read and written under `turn` alone."""

    url: str
    unsent: Callable[[Manifest], int]
    """Bytes of a checkpoint that are not at the store."""
    turn: Condition = field(default_factory=Condition)
    stopped: bool = False
    """Nobody waits for the thread any more."""
    sending: Manifest | None = None
    waiting: Manifest | None = None
    closing: bool = False
    """The run has ended."""
    unhurried: bool = False
    """It has finished: nobody asked it to stop."""
    files: bool = False
    """Its last files are to be sent, and the lock to be released."""
    left: int = 0
    """Bytes of `sending` that have not gone yet."""
    moved: float = field(default_factory=time.monotonic)
    """When bytes last went."""
    ok: float | None = None
    """When something was last sent whole."""
    since: float | None = None
    """When trouble began; None where there is none."""
    trouble: str = ""
    lost: str = ""
    """Why this process must not write there any more."""
    sent: int = 0
    sent_bytes: int = 0
    dropped: int = 0
    failures: int = 0
    news: deque[str] = field(default_factory=lambda: deque(maxlen=20))

    @property
    def is_idle(self) -> bool:
        """Whether everything that was offered is at the store or was dropped."""
        return self.sending is None and self.waiting is None and not self.files

    def files_of_both(self) -> frozenset[Path]:
        """The manifests of the checkpoint that is being sent and of the one that waits."""
        with self.turn:
            return frozenset(manifest.file for manifest in (self.sending, self.waiting) if manifest is not None)

    def enqueue_manifest_(self, manifest: Manifest) -> None:
        """Let this one wait; drop the one that waits."""
        with self.turn:
            if self.lost:
                return
            if self.waiting is not None:
                self._drop_older_(self.waiting, manifest)
            self.waiting = manifest
            self.turn.notify_all()

    def _drop_older_(self, manifest: Manifest, newer: Manifest) -> None:
        self.dropped += 1
        if self.dropped == 1:
            self.news.append(
                f"mirror: {self._why_behind()}: the checkpoint of round {manifest.round} is dropped there for that of "
                f"round {newer.round}. Dropped ones are counted from here on"
            )

    def _why_behind(self) -> str:
        """The cause, first: a store that fails is not a slow one."""
        return f"{self.url} is slower than the run" if self.since is None else f"sending still fails ({self.trouble})"

    def wait_for_work_(self) -> bool:
        """Wait for something to send, or until the lock must be renewed, and take it. False where all is done."""
        with self.turn:
            self.turn.wait_for(lambda: self.closing or not self.is_idle, RENEW_SECONDS)
            if self.stopped or (self.is_idle and self.closing):
                return False
            self.sending, self.waiting = self.waiting, None
            self.left = 0 if self.sending is None else self.unsent(self.sending)
        return True

    def is_last(self) -> bool:
        """Whether the run has ended, and nothing waits behind what is being sent."""
        with self.turn:
            return self.closing and self.waiting is None

    def count_bytes_(self, count: int) -> bool:
        """So many bytes went. False where the rest is not worth sending now: the run ends, and a newer one waits."""
        with self.turn:
            self.left, self.moved = max(0, self.left - count), time.monotonic()
            self.sent_bytes += count
            return not (self.stopped or (self.closing and self.waiting is not None))

    def record_success_(self, *, ended: bool) -> None:
        """What was taken is at the store; where `ended`, the last files are there and the lock is released."""
        with self.turn:
            if self.sending is not None:
                self.sent += 1
                self.ok = time.monotonic()
            if self.since is not None:
                lasted = format_duration(time.monotonic() - self.since)
                self.news.append(f"mirror: {self.url} works again, after {lasted}")
            self.sending, self.since, self.trouble, self.left = None, None, "", 0
            self.files = self.files and not ended

    def record_failure_(self, why: str, goes_on: str) -> None:
        """Something failed; told when it is the first since all was well."""
        with self.turn:
            self.failures += 1
            self.trouble = why
            if self.since is None:
                self.since = time.monotonic()
                self.news.append(f"mirror: {why}. {goes_on}, and sending is tried again")

    def requeue_after_failure_(self, why: str, pause: float) -> None:
        """What was taken waits again; returns after a pause, which is shorter where the run ends."""
        with self.turn:
            self.record_failure_(why, "The run goes on")
            self.put_back_()
            if self.closing:
                self.turn.wait_for(lambda: self.stopped, min(pause, 1.0))
            else:
                self.turn.wait_for(lambda: self.closing, pause)

    def put_back_(self) -> None:
        """What was being sent waits again, unless something newer does."""
        with self.turn:
            if self.sending is not None and self.waiting is None:
                self.waiting = self.sending
            elif self.sending is not None and self.waiting is not None:
                self._drop_older_(self.sending, self.waiting)
            self.sending, self.left = None, 0

    def skip_current_(self, why: str) -> None:
        """What was being sent can never be."""
        with self.turn:
            self.dropped += 1
            self.news.append(f"mirror: {why}")
            self.sending, self.left = None, 0

    def stop_sending_(self, why: str) -> None:
        """Somebody else writes there: nothing may be sent any more."""
        with self.turn:
            self.lost = why
            self.news.append(f"mirror: {why} The run goes on without it")
            self.sending = self.waiting = None
            self.files, self.left = False, 0

    def take_news_(self) -> list[str]:
        """What happened since the last call."""
        with self.turn:
            told = [*self.news]
            self.news.clear()
        return told

    def metrics(self) -> dict[str, float]:
        """Checkpoints and bytes that wait, that were sent, that were dropped; seconds since the last success."""
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
        """`mirror: 2 pending, 37.0 MiB, last ok 12 s ago`."""
        if self.lost:
            return "mirror: off"
        numbers = self.metrics()
        ok, dropped = numbers.get("mirror/seconds_since_ok"), numbers["mirror/dropped"]
        parts = [f"{numbers['mirror/pending']:.0f} pending"]
        parts += [format_bytes(numbers["mirror/pending_bytes"])] if numbers["mirror/pending"] else []
        parts += ["nothing sent yet" if ok is None else f"last ok {format_duration(ok)} ago"]
        parts += [f"{dropped:.0f} dropped"] if dropped else []
        parts += ["failing"] if self.since is not None else []
        return f"mirror: {', '.join(parts)}"
