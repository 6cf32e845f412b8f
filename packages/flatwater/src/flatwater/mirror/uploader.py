"""The mirror of a run: its checkpoints, sent to a URL in the background.

A thread sends one checkpoint at a time, from the run's folder through one buffer, so that memory does not depend on how
slow the store is. What is sent or waits is spared when the folder removes old checkpoints. Nothing that the store does
stops or slows the run.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread

from flatwater.checkpoints.manifest import read_manifest
from flatwater.mirror.sender import MirrorSender
from flatwater.mirror.upload_state import UploadState
from flatwater.storage.claims import LockedError
from flatwater_watch.errors import CheckpointError, FlatwaterError

GRACE_SECONDS = 25.0
"""Seconds for the rest after a signal has stopped the run: rented machines give 30 in all."""
STILL_SECONDS = 15.0
"""Seconds that a run which has ended waits for a store that fails."""
SLOW_SECONDS = 150.0
"""Seconds that it waits for a store that has not answered yet: a piece of 9 MiB takes that at 63 KB/s."""
OWNER = "mirror.buffer"
"""Name of the buffer in plan and ledger."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds before a second and any later try."""


class UploadAbandoned(Exception):  # noqa: N818  (no error: somebody has something newer, or goes)
    """Sending was given up: it is no longer wanted."""


class Mirror:
    """Sends a run's checkpoints from a thread; one for each process that trains a mirrored run."""

    def __init__(self, sender: Callable[[Callable[[int], None], Callable[[str], None]], MirrorSender]) -> None:
        """Prepare the state and the thread.

        Args:
            sender: makes the sender from two functions, for the bytes of each piece and for lines to tell.
        """
        self.sender = sender(self._count_piece, self._say)
        self.state = UploadState(self.sender.objects.url, self.sender.unsent_bytes)
        # A daemon: a store that never answers must not keep the process from ending.
        self._thread = Thread(target=self._run_thread, name="mirror", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def run_finished(self) -> None:
        """Say that the run has finished: the rest may take its time."""
        self.state.unhurried = True

    def buffer_bytes(self) -> dict[str, int]:
        """Return the bytes that sending holds, by owner."""
        return {OWNER: self.sender.buffer.buffer_bytes}

    def protected_manifests(self) -> frozenset[Path]:
        """Return the manifests of the checkpoint that is being sent and of the waiting checkpoint."""
        return self.state.files_of_both()

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

    def finish(self, *, deadline: float | None = None) -> bool:
        """Wait until everything is at the store, and release it.

        Args:
            deadline: seconds that this may take; None waits as long as bytes move.

        Returns:
            False if something is left.
        """
        state, begin = self.state, time.monotonic()
        with state.turn:
            state.closing, state.files = True, not state.lost
            state.turn.notify_all()
        # In short turns rather than one long join: how long to wait depends on whether bytes still move.
        while self._thread.is_alive() and time.monotonic() < self._wait_deadline(begin, deadline):
            self._thread.join(0.1)
        with state.turn:
            state.stopped = True
            state.turn.notify_all()
            return state.is_idle and not state.lost

    def _wait_deadline(self, began: float, deadline: float | None) -> float:
        """Return the time until which an end that began then is waited for."""
        if deadline is not None:
            return began + deadline
        return max(began, self.state.moved) + (SLOW_SECONDS if self.state.since is None else STILL_SECONDS)

    def _say(self, line: str) -> None:
        # In the mirror's thread, and before it in the run's; appending to a deque is atomic.
        self.state.messages.append(line)

    def _count_piece(self, count: int) -> None:
        """Count a piece; the sender calls it after each, in the mirror's thread.

        Raises:
            UploadAbandoned: the run ends, and a newer checkpoint waits or nobody waits.
        """
        if not self.state.count_bytes_(count):
            raise UploadAbandoned

    def _run_thread(self) -> None:
        """Send waiting checkpoints until the run has ended or the lock is lost: the body of the mirror's thread."""
        # The body of the mirror's thread. No exception leaves it but a defect: the run goes on without its mirror.
        state, pause = self.state, FIRST_PAUSE
        while state.wait_for_work_():
            try:
                has_ended = self._send()
            except LockedError as error:
                state.stop_sending_(str(error))
                return  # without releasing: the lock is another's
            except UploadAbandoned:
                state.put_back_()
            except (FlatwaterError, OSError) as error:
                # Damaged in the folder: no try can send it, while a store that fails may be better in a minute.
                if isinstance(error, CheckpointError) and state.sending is not None:
                    state.skip_current_(str(error))
                else:
                    state.requeue_after_failure_(str(error), pause)
                    pause = min(2 * pause, LONGEST_PAUSE)
            else:
                pause = FIRST_PAUSE
                state.record_success_(ended=has_ended)
        with suppress(FlatwaterError):  # a lock that cannot be released is found to be left behind
            self.sender.release_()

    def _send(self) -> bool:
        """Send the checkpoint that was taken. Returns True if it was the last of a run that has ended."""
        self.sender.connect_()  # again, where the store could not be reached before
        self.sender.renew_lock_()
        if self.state.sending is not None:
            self.sender.send_(self.state.sending)
        ends = self.state.is_last()
        if ends:
            # Files once more, then the lock: the result is written after the last checkpoint.
            self.sender.send_files_()
            self.sender.release_()
        return ends
