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
"""For what is left, after a signal has stopped the run: rented machines give 30 in all."""
STILL_SECONDS = 15.0
"""A run that has ended waits so long for a store that fails."""
SLOW_SECONDS = 150.0
"""And so long for one that has not answered yet: a piece of 9 MiB takes that at 63 KB/s."""
OWNER = "mirror.buffer"
"""In plan and ledger."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds before a second and any later try."""


class UploadAbandoned(Exception):  # noqa: N818  (no error: somebody has something newer, or goes)
    """What is being sent is no longer wanted."""


class Mirror:
    """One for each process that trains a mirrored run."""

    def __init__(self, sender: Callable[[Callable[[int], None], Callable[[str], None]], MirrorSender]) -> None:
        """Prepare the state and the thread.

        Args:
            sender: makes the sender, from what it calls after each piece and what it tells.
        """
        self.sender = sender(self._count_piece, self._say)
        self.state = UploadState(self.sender.objects.url, self.sender.unsent_bytes)
        self._thread = Thread(target=self._run_thread, name="mirror", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def run_finished(self) -> None:
        """The run has finished: what is left may take its time."""
        self.state.unhurried = True

    def buffer_bytes(self) -> dict[str, int]:
        """Bytes that sending holds, by owner."""
        return {OWNER: self.sender.buffer.buffer_bytes}

    def protected_manifests(self) -> frozenset[Path]:
        """The checkpoint that is being sent and the one that waits."""
        return self.state.files_of_both()

    def offer(self, manifest: Path) -> None:
        """Send this checkpoint next; drop the one that waits."""
        self.state.enqueue_manifest_(read_manifest(manifest))

    def take_messages(self) -> list[str]:
        """What happened since the last call."""
        return self.state.take_news_()

    def metrics(self) -> dict[str, float]:
        """How it stands, as numbers."""
        return self.state.metrics()

    def status_line(self) -> str:
        """`mirror: 2 pending, 37.0 MiB, last ok 12 s ago`."""
        return self.state.status_line()

    def finish(self, *, deadline: float | None = None) -> bool:
        """Wait until everything is at the store, and release it.

        Args:
            deadline: seconds that this may take; None waits as long as bytes move.

        Returns:
            False where something is left.
        """
        state, began = self.state, time.monotonic()
        with state.turn:
            state.closing, state.files = True, not state.lost
            state.turn.notify_all()
        while self._thread.is_alive() and time.monotonic() < self._wait_deadline(began, deadline):
            self._thread.join(0.1)
        with state.turn:
            state.stopped = True
            state.turn.notify_all()
            return state.is_idle and not state.lost

    def _wait_deadline(self, began: float, deadline: float | None) -> float:
        """Until when an end that began then is waited for."""
        if deadline is not None:
            return began + deadline
        return max(began, self.state.moved) + (SLOW_SECONDS if self.state.since is None else STILL_SECONDS)

    def _say(self, line: str) -> None:
        self.state.news.append(line)

    def _count_piece(self, count: int) -> None:
        """Called by the sender after each piece.

        Raises:
            Abandoned: the run ends, and a newer checkpoint waits or nobody does.
        """
        if not self.state.count_bytes_(count):
            raise UploadAbandoned

    def _run_thread(self) -> None:
        state, pause = self.state, FIRST_PAUSE
        while state.wait_for_work_():
            try:
                ended = self._send()
            except LockedError as fault:
                state.stop_sending_(str(fault))
                return
            except UploadAbandoned:
                state.put_back_()
            except (FlatwaterError, OSError) as fault:
                if isinstance(fault, CheckpointError) and state.sending is not None:
                    state.skip_current_(str(fault))
                else:
                    state.requeue_after_failure_(str(fault), pause)
                    pause = min(2 * pause, LONGEST_PAUSE)
            else:
                pause = FIRST_PAUSE
                state.record_success_(ended=ended)
        with suppress(FlatwaterError):  # a lock that cannot be released is found to be left behind
            self.sender.release_()

    def _send(self) -> bool:
        """Send what was taken. Returns True where that was the last of a run that has ended."""
        self.sender.connect_()
        self.sender.renew_lock_()
        if self.state.sending is not None:
            self.sender.send_(self.state.sending)
        ends = self.state.is_last()
        if ends:
            self.sender.send_files_()
            self.sender.release_()
        return ends
