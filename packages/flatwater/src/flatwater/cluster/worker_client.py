"""A worker that is asked in messages, wherever it computes; a lost worker is started again.

Messages are pickles, and both ends are this program: nothing else can write to the sockets.
"""

import pickle
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from flatwater.cluster.worker import FAILED, NO_MEMORY
from flatwater_watch.errors import BudgetError, RunError
from flatwater_watch.units import format_bytes

MAXIMUM_DEATHS = 3
"""Deaths of a worker at one question after which the run ends."""


class WorkerConnection(Protocol):
    """A connection to one process of a worker, from its start to its end."""

    @property
    def machine(self) -> str:
        """Machine that it computes on; known once it has answered."""

    @property
    def pid(self) -> int | None:
        """Process id, where it is on this machine."""

    @property
    def exit_reason(self) -> str:
        """Words for how it ended, as far as that is known."""

    @property
    def restart_delay(self) -> float:
        """Seconds that pass before another takes its place."""

    def send(self, message: bytes) -> None:
        """Post a question.

        Raises:
            OSError: the connection is lost.
        """

    def receive(self) -> bytes | bytearray:
        """Return the answer to the oldest question.

        Raises:
            OSError, EOFError: the connection is lost.
        """

    def close(self) -> None:
        """End the process."""


class Worker:
    """A worker of the run: questions are posted, answers taken in the same order."""

    def __init__(
        self,
        number: int,
        target: str,
        arguments: object,
        *,
        prepare: Callable[["Worker"], None],
        open_desk: Callable[[], WorkerConnection],
        budget: int | None = None,
    ) -> None:
        """Start it, without waiting for it; the first answer to take says that it has begun.

        Args:
            number: number by which people know it.
            target: `package.module:Class`, made of `arguments` at the desk; its methods answer.
            arguments: argument of the class.
            prepare: brings a worker that replaces a dead worker to the dead worker's state.
            open_desk: starts a process of the worker.
            budget: private bytes that its process may have; the system refuses it more.
        """
        self.number, self._budget = number, budget
        # Kept for every process that takes the place of a dead process.
        self._first_message = _message("__init__", target, arguments, budget)
        self._prepare, self._open_connection = prepare, open_desk
        self._unanswered: deque[bytes] = deque()
        self._preparing, self._deaths_in_row = False, 0
        self.wire = 0
        """Bytes of questions and answers so far."""
        self.arrays = 0
        """Bytes of the arrays in them."""
        self.times_started = 0
        """Processes that were started for it so far."""
        self.is_leaving = False
        """Whether its process was told to end (SIGTERM): another takes its place once the run has its state."""
        self._start_()

    @property
    def pid(self) -> int | None:
        """Process id now, where it is on this machine."""
        return self._connection.pid

    @property
    def machine(self) -> str:
        """Machine that it computes on now; known once it has answered."""
        return self._connection.machine

    def post(self, name: str, *arguments: object) -> None:
        """Ask a method. The answer must be taken, whatever it is."""
        self.arrays += array_bytes(arguments)
        self._post(_message(name, *arguments))

    def take_answer(self) -> Any:  # noqa: ANN401  (what the method gives)
        """Return the answer to the oldest question, by another process where the worker has died.

        Raises:
            RunError: the worker failed, or died again and again.
            BudgetError: the worker came to its budget.
        """
        while True:
            try:
                kind, result = self._take_message()
                break
            except (EOFError, OSError):
                if self._preparing:  # `_replace_` is at work further up, and counts this death
                    raise
                self._replace_()
        self._unanswered.popleft()
        self.arrays += array_bytes(result)
        if not self._preparing:
            self._deaths_in_row = 0  # deaths count against one question alone
        if kind == NO_MEMORY:
            budget = "" if self._budget is None else f" of {format_bytes(self._budget)}"
            raise BudgetError(
                f"worker {self.number} reached its memory budget{budget}. The newest checkpoint is intact. Give more "
                "memory (--budget), or use fewer workers, which compute the same numbers: flatwater resume RUN "
                f"--workers 1. The worker's message:\n{result}"
            )
        if kind == FAILED:
            raise RunError(f"worker {self.number} failed. Its message:\n{result}")
        return result

    def ask(self, name: str, *arguments: object) -> Any:  # noqa: ANN401  (whatever the method returns)
        """Ask a method and wait for its answer; no other answer may be outstanding."""
        self.post(name, *arguments)
        return self.take_answer()

    def restart_process_(self) -> None:
        """Put another process in its place. No answer may be outstanding."""
        self.close()
        self._start_()
        self.take_answer()  # of `__init__`
        self._prepare(self)

    def close(self) -> None:
        """End the worker."""
        self._connection.close()

    def _start_(self) -> None:
        """Start the process, and post the question that makes its desk."""
        self._connection, self.is_leaving, self.times_started = self._open_connection(), False, self.times_started + 1
        self._post(self._first_message)

    def _post(self, message: bytes) -> None:
        """Send a question, and note it until it is answered, so that a new process can be asked it again."""
        self._unanswered.append(message)
        self.wire += len(message)
        with suppress(OSError):  # of a dead process: `take_answer` starts another and asks it
            self._connection.send(message)

    def _take_message(self) -> Any:  # noqa: ANN401  (whatever the method returns)
        """Return kind and result of the next answer, whichever question it belongs to; counts its bytes."""
        message = self._connection.receive()
        self.wire += len(message)
        kind, result, self.is_leaving = pickle.loads(message)  # noqa: S301  (from our own worker)
        return kind, result

    def _replace_(self) -> None:
        """Start another process, bring it to the dead process's state, and ask it the unanswered questions.

        Raises:
            RunError: the worker has died DEATHS times in one task.
        """
        # A copy: `_start_` posts its own question,
        # and the others must wait until the new process is told what it missed.
        unanswered = list(self._unanswered)
        # False if it died before it was made: then there is nothing to tell it.
        had_begun = unanswered[0] is not self._first_message
        while True:
            self.close()
            self._deaths_in_row += 1
            if self._deaths_in_row >= MAXIMUM_DEATHS:
                raise RunError(
                    f"worker {self.number} died {MAXIMUM_DEATHS} times in one task, last with "
                    f"{self._connection.exit_reason}. The newest checkpoint is intact. Use fewer workers, which "
                    "compute the same numbers: flatwater resume RUN --workers 1"
                )
            time.sleep(self._connection.restart_delay)
            self._unanswered.clear()
            self._start_()
            if not had_begun:
                break
            self._preparing = True
            try:
                self.take_answer()
                self._prepare(self)
                break
            except (EOFError, OSError):
                continue
            finally:
                self._preparing = False
        for message in unanswered[not had_begun :]:  # `_start_` has asked the first itself
            self._post(message)


def array_bytes(value: object) -> int:
    """Return the bytes of the arrays in a message."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, dict):
        value = tuple(value.values())
    return sum(map(array_bytes, value)) if isinstance(value, tuple | list) else 0


def _message(name: str, *arguments: object) -> bytes:
    return pickle.dumps((name, arguments), protocol=pickle.HIGHEST_PROTOCOL)
