"""The mirror of a run: its checkpoints, sent to a URL in the background.

A thread sends one checkpoint at a time, from the run's folder through one buffer, so that memory does not depend on how
slow the store is. A checkpoint that is being sent or waits is not removed from the folder. No fault of the store stops
or slows the run.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread

from flatwater.checkpoints.manifest import read_manifest
from flatwater.mirror.sender import MirrorSender
from flatwater.mirror.upload_state import UploadState
from flatwater.storage.url_lock import LockedError
from flatwater_watch.errors import CheckpointError, FlatwaterError

GRACE_SECONDS = 25.0
"""Seconds to send the rest after a signal has stopped the run: rented machines give a process 30 in all."""
STILL_SECONDS = 15.0
"""Seconds without a sent byte after which a finished run no longer waits for a store that fails."""
SLOW_SECONDS = 150.0
"""The same for a store that has not failed: a piece of 9 MiB takes that time at 63 KB/s."""
BUFFER_OWNER = "mirror.buffer"
"""Name of the buffer in plan and ledger."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds before the second try, and the most before a later one."""


class UploadAbandoned(Exception):  # noqa: N818  (no error)
    """A checkpoint is no longer wanted at the store: a newer one waits, or the run no longer waits."""


class NoMirror:
    """The mirror of a run that has none: what a run calls on its mirror, and every method does nothing."""

    def protected_manifests(self) -> frozenset[Path]:
        """Return the manifests of checkpoints that must not be removed now, as they are being sent or wait."""
        return frozenset()

    def offer(self, manifest: Path) -> None:
        """Send a checkpoint that is on the disk, by the path of its manifest."""

    def take_messages(self) -> list[str]:
        """Return sentences about the events since the last call."""
        return []

    def status_line(self) -> str:
        """Return the mirror's status as a line for the terminal; empty if there is no mirror."""
        return ""

    def metrics(self) -> dict[str, float]:
        """Return the mirror's status as numbers by metric."""
        return {}

    def buffer_bytes(self) -> dict[str, int]:
        """Return the bytes that sending holds, by owner."""
        return {}

    def run_finished(self) -> None:
        """Note that the run has finished by itself, so that `finish_mirror` may wait as long as bytes move."""


class Mirror(NoMirror):
    """Sends a run's checkpoints from a thread; one for each process that trains a mirrored run."""

    def __init__(self, make_sender: Callable[[Callable[[int], None], Callable[[str], None]], MirrorSender]) -> None:
        """Prepare the state and the thread.

        Args:
            make_sender: makes the sender from two functions: one takes the bytes of each piece, one takes messages.
        """
        self.sender = make_sender(self._count_piece, self._say)
        self.state = UploadState(self.sender.objects.url, self.sender.unsent_bytes)
        # A daemon: a store that never answers must not keep the process from ending.
        self._thread = Thread(target=self._run_thread, name="mirror", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def run_finished(self) -> None:
        """Note that the run has finished, so that sending the rest may take as long as it needs."""
        self.state.rounds_finished = True

    def buffer_bytes(self) -> dict[str, int]:
        """Return the bytes that sending holds, by owner."""
        return {BUFFER_OWNER: self.sender.buffer.buffer_bytes}

    def protected_manifests(self) -> frozenset[Path]:
        """Return the manifests of the checkpoint that is being sent and of the waiting checkpoint."""
        return self.state.pending_manifests()

    def offer(self, manifest: Path) -> None:
        """Send this checkpoint next; drop the checkpoint that waited before."""
        self.state.enqueue_manifest_(read_manifest(manifest))

    def take_messages(self) -> list[str]:
        """Return sentences about the events since the last call."""
        return self.state.take_news_()

    def metrics(self) -> dict[str, float]:
        """Return the mirror's status as numbers by metric."""
        return self.state.metrics()

    def status_line(self) -> str:
        """Return text such as `mirror: 2 pending, 37.0 MiB, last ok 12 s ago`."""
        return self.state.status_line()

    def finish(self, *, timeout: float | None = None) -> bool:
        """Wait until the thread has sent everything and released the store's lock; at the timeout it gives up the rest.

        Args:
            timeout: most seconds to wait; None waits as long as bytes are being sent.

        Returns:
            Whether everything is at the store.
        """
        state, began = self.state, time.monotonic()
        with state.condition:
            state.run_ended = True
            state.files_pending = not state.lost_reason  # the last files, if this process may still write there
            state.condition.notify_all()
        # Joined for short times: the deadline moves while bytes are sent.
        while self._thread.is_alive() and time.monotonic() < self._wait_deadline(began, timeout):
            self._thread.join(timeout=0.1)
        with state.condition:
            state.abandoned = True
            state.condition.notify_all()
            return state.is_idle and not state.lost_reason

    def _wait_deadline(self, began: float, timeout: float | None) -> float:
        """Return the time, by `time.monotonic`, until which `finish`, called at `began`, waits."""
        if timeout is not None:
            return began + timeout
        patience = SLOW_SECONDS if self.state.failing_since is None else STILL_SECONDS
        return max(began, self.state.last_moved) + patience

    def _say(self, line: str) -> None:
        # In any thread: an append to a deque is atomic.
        self.state.messages.append(line)

    def _count_piece(self, count: int) -> None:
        """Count the bytes of a sent piece; the sender calls it in the mirror's thread.

        Raises:
            UploadAbandoned: the checkpoint is no longer wanted.
        """
        if not self.state.count_bytes_(count):
            raise UploadAbandoned

    def _run_thread(self) -> None:
        """Send checkpoints until the run has ended and all are sent, or the lock is lost: the thread's body."""
        # Faults of the store and of files are recorded and never raised: the run goes on without its mirror.
        state, pause = self.state, FIRST_PAUSE
        while state.wait_for_work_():
            try:
                is_last = self._send_checkpoint()
            except LockedError as error:
                state.stop_sending_(str(error))
                return  # without releasing: the lock is another's
            except UploadAbandoned:
                state.put_back_()
            except (FlatwaterError, OSError) as error:
                # A checkpoint that is damaged in the folder is skipped; a store that fails may work in a minute.
                if isinstance(error, CheckpointError) and state.sending is not None:
                    state.skip_current_(str(error))
                else:
                    state.requeue_after_failure_(str(error), pause)
                    pause = min(2 * pause, LONGEST_PAUSE)
            else:
                pause = FIRST_PAUSE
                state.record_success_(is_last=is_last)
        with suppress(FlatwaterError):  # a lock that is not released expires
            self.sender.release_()

    def _send_checkpoint(self) -> bool:
        """Send the checkpoint in `sending`, if there is one. Returns True if it was the last of an ended run."""
        self.sender.connect_()  # does nothing once it has succeeded
        self.sender.renew_lock_()
        if self.state.sending is not None:
            self.sender.send_(self.state.sending)
        is_last = self.state.is_last()
        if is_last:
            # Files are sent once more, as the result is written after the last checkpoint.
            self.sender.send_files_()
            self.sender.release_()
        return is_last
