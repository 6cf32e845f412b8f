"""The run's end of a worker: it posts questions and takes answers, and starts a worker that was lost again.

Messages are pickles, which is safe because both ends are this program: nothing else can write to the sockets.
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
        """Machine that the process is on; known once it has answered."""

    @property
    def pid(self) -> int | None:
        """Process id; None if the process is on another machine."""

    @property
    def exit_reason(self) -> str:
        """Reason why the process has ended, in words, as far as it is known."""

    @property
    def restart_delay(self) -> float:
        """Seconds to wait before another process is started in its place."""

    def send(self, message: bytes) -> None:
        """Send a question.

        Raises:
            OSError: the connection is lost.
        """

    def receive(self) -> bytes | bytearray:
        """Wait for the answer to the oldest question, and return it.

        Raises:
            OSError, EOFError: the connection is lost.
        """

    def close(self) -> None:
        """End the process."""


class Worker:
    """A worker of the run: questions are posted, and their answers are taken in the same order."""

    def __init__(
        self,
        number: int,
        target: str,
        arguments: object,
        *,
        prepare: Callable[["Worker"], None],
        connect: Callable[[], WorkerConnection],
        budget: int | None = None,
    ) -> None:
        """Start the worker's process, without waiting for it; the first answer to take says that it has begun.

        Args:
            number: number of the worker, for messages.
            target: `package.module:Class` of the object that the process makes, whose methods answer questions.
            arguments: the one argument of the class.
            prepare: called with the worker once its process was replaced: brings the new process to the old state.
            connect: starts a process of the worker, and returns the connection to it.
            budget: private bytes that the process may have; allocations beyond them fail.
        """
        self.number, self._budget = number, budget
        # Kept, as it is also the first question of a process that replaces another.
        self._first_message = _encode_message("__init__", target, arguments, budget)
        self._prepare, self._connect = prepare, connect
        self._unanswered: deque[bytes] = deque()
        self._is_preparing, self._deaths_in_row = False, 0
        self.wire = 0
        """Bytes of all questions and answers so far."""
        self.arrays = 0
        """Bytes of the arrays in questions and answers so far."""
        self.times_started = 0
        """Number of processes that were started so far."""
        self.is_leaving = False
        """Whether the process has got SIGTERM: the run replaces it once it has the process's state."""
        self._start_()

    @property
    def pid(self) -> int | None:
        """Process id of the present process; None if it is on another machine."""
        return self._connection.pid

    @property
    def machine(self) -> str:
        """Machine of the present process; known once it has answered."""
        return self._connection.machine

    def post(self, name: str, *arguments: object) -> None:
        """Send a question: a call of the method `name`. Its answer must be taken later."""
        self.arrays += array_bytes(arguments)
        self._post(_encode_message(name, *arguments))

    def take_answer(self) -> Any:  # noqa: ANN401  (what the method gives)
        """Wait for the answer to the oldest question, and return it; start another process if the worker has died.

        Raises:
            RunError: the worker failed, or died again and again.
            BudgetError: the worker reached its memory budget.
        """
        while True:
            try:
                kind, result = self._take_message()
                break  # an answer came; else another process is asked
            except (EOFError, OSError):
                if self._is_preparing:  # `_replace_` has called this, and counts the death itself
                    raise
                self._replace_()
        self._unanswered.popleft()
        self.arrays += array_bytes(result)
        if not self._is_preparing:
            self._deaths_in_row = 0  # only deaths at one question add up
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
        """Call the method `name` and wait for its answer; no other answer may be outstanding."""
        self.post(name, *arguments)
        return self.take_answer()

    def restart_process_(self) -> None:
        """End the process and start another in the same state; no answer may be outstanding."""
        self.close()
        self._start_()
        self.take_answer()  # of `__init__`
        self._prepare(self)

    def close(self) -> None:
        """End the worker's process."""
        self._connection.close()

    def _start_(self) -> None:
        """Start a process, and post the question that makes its object."""
        self._connection = self._connect()
        self.is_leaving = False
        self.times_started += 1
        self._post(self._first_message)

    def _post(self, message: bytes) -> None:
        """Send a question, and keep it until it is answered, so that another process can be asked the same."""
        self._unanswered.append(message)
        self.wire += len(message)
        with suppress(OSError):  # the process has died: `take_answer` will start another and ask again
            self._connection.send(message)

    def _take_message(self) -> Any:  # noqa: ANN401  (whatever the method returns)
        """Receive the next answer, and return its kind and result; note its bytes, and whether the process leaves."""
        message = self._connection.receive()
        self.wire += len(message)
        kind, result, self.is_leaving = pickle.loads(message)  # noqa: S301  (from our own worker)
        return kind, result

    def _replace_(self) -> None:
        """Start another process, bring it to the dead process's state, and ask it the unanswered questions.

        Raises:
            RunError: the worker has died MAXIMUM_DEATHS times at one question.
        """
        # A copy: the queue is emptied, as these questions must wait until the new process has the state.
        unanswered_calls = list(self._unanswered)
        # A process that died before it had made its object has no state that another would need.
        had_begun = unanswered_calls[0] is not self._first_message
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
            self._is_preparing = True
            try:
                self.take_answer()  # of `__init__`
                self._prepare(self)
                break
            except (EOFError, OSError):  # the new process has died as well
                continue
            finally:
                self._is_preparing = False
        # If the first message is among them, `_start_` has posted it.
        for message in unanswered_calls if had_begun else unanswered_calls[1:]:
            self._post(message)


def array_bytes(value: object) -> int:
    """Return the bytes of all arrays in a value, also of those within its tuples, lists and dicts."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, dict):
        return sum(map(array_bytes, value.values()))
    return sum(map(array_bytes, value)) if isinstance(value, tuple | list) else 0


def _encode_message(name: str, *arguments: object) -> bytes:
    return pickle.dumps((name, arguments), protocol=pickle.HIGHEST_PROTOCOL)
