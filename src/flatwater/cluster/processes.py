"""A worker in a process of its own on this machine, asked in messages; one that dies is started again.

The child is a fresh interpreter that imports the target alone: nothing of the program that started it runs there.
Messages are pickles over a pair of sockets; both ends are this program.
"""

import pickle
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from flatwater.cluster.worker import FAILED, NO_MEMORY
from flatwater.errors import BudgetError, RunError
from flatwater.memory.probes.proc import stands_still
from flatwater.units import format_bytes

DEATHS = 3
"""Deaths of a worker at one question after which the run ends."""
STOPPED_SECONDS = 10.0
"""How long a worker may stand still at a signal (SIGSTOP) before it is ended and started again."""
_LOOK_SECONDS = 1.0
"""How often is looked at a worker that has not answered."""


class Worker:
    """One process: questions are posted, answers taken in the same order."""

    def __init__(
        self,
        number: int,
        target: str,
        given: object,
        prepare: Callable[["Worker"], None],
        budget: int | None = None,
    ) -> None:
        """Start the process; it is not waited for. The first answer to take says that it has begun.

        Args:
            number: by which people know it.
            target: `package.module:Class`, made of `given` in the process; its methods answer.
            given: what the class is called with.
            prepare: tells a process that was started in the place of a dead one what that one knew.
            budget: private bytes that the process may have; it is refused more.
        """
        self.number, self._budget = number, budget
        self._begin = _message("__init__", target, given, budget)
        self._prepare = prepare
        self._waiting: deque[bytes] = deque()
        self._preparing, self._deaths = False, 0
        self.wire = 0
        """Bytes of questions and answers so far."""
        self._start_()

    @property
    def pid(self) -> int:
        """Of the process now."""
        return self._process.pid

    def post(self, name: str, *given: object) -> None:
        """Ask a method. The answer must be taken, whatever it is."""
        self._post(_message(name, *given))

    def take(self) -> Any:  # noqa: ANN401  (what the method gives)
        """The answer to the oldest question.

        Raises:
            RunError: the worker failed, or died again and again.
            BudgetError: it came to its budget.
        """
        while True:
            try:
                kind, answer = self._answer()
                break
            except (EOFError, OSError):
                if self._preparing:
                    raise
                self._replace_()
        self._waiting.popleft()
        if not self._preparing:
            self._deaths = 0
        if kind == NO_MEMORY:
            allowed = "" if self._budget is None else f" of {format_bytes(self._budget)}"
            raise BudgetError(
                f"worker {self.number} came to its memory budget{allowed}, and was refused more. The newest checkpoint "
                "is intact: go on with more memory (--budget), or with fewer workers, which compute the same: "
                f"flatwater resume RUN --workers 1. Its own words:\n{answer}"
            )
        if kind == FAILED:
            raise RunError(f"worker {self.number} failed. Its own words:\n{answer}")
        return answer

    def ask(self, name: str, *given: object) -> Any:  # noqa: ANN401
        """Ask a method and wait; no other answer may be outstanding."""
        self.post(name, *given)
        return self.take()

    def close(self) -> None:
        """End the process: it ends by itself where nobody is left to ask."""
        self._pipe.close()
        try:
            self._process.wait(timeout=_LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _start_(self) -> None:
        mine, other = socket.socketpair()
        command = [sys.executable, "-m", "flatwater.cluster.worker", str(other.fileno())]
        with other:
            self._process = subprocess.Popen(command, pass_fds=[other.fileno()], stdin=subprocess.DEVNULL)  # noqa: S603
        self._pipe = Connection(mine.detach())
        self._post(self._begin)

    def _post(self, message: bytes) -> None:
        self._waiting.append(message)
        self.wire += len(message)
        with suppress(OSError):  # of a dead process: `take` starts another and asks it
            self._pipe.send_bytes(message)

    def _answer(self) -> Any:  # noqa: ANN401
        still = 0.0
        while not self._pipe.poll(_LOOK_SECONDS):
            still = still + _LOOK_SECONDS if stands_still(self.pid) else 0.0
            if still >= STOPPED_SECONDS:
                self._process.kill()
        answer = self._pipe.recv_bytes()
        self.wire += len(answer)
        return pickle.loads(answer)  # noqa: S301  (from our own process)

    def _replace_(self) -> None:
        """Start another process, tell it what the dead one knew, and ask it what that one had not answered."""
        unanswered = list(self._waiting)
        begun = unanswered[0] is not self._begin
        while True:
            self.close()
            self._deaths += 1
            if self._deaths >= DEATHS:
                raise RunError(
                    f"worker {self.number} died {DEATHS} times at one question, last with exit status "
                    f"{self._process.returncode}. The newest checkpoint is intact: go on with fewer workers, which "
                    "compute the same: flatwater resume RUN --workers 1"
                )
            self._waiting.clear()
            self._start_()
            if not begun:
                break
            self._preparing = True
            try:
                self.take()
                self._prepare(self)
                break
            except (EOFError, OSError):
                continue
            finally:
                self._preparing = False
        for message in unanswered[not begun :]:
            self._post(message)


def _message(name: str, *given: object) -> bytes:
    return pickle.dumps((name, given), protocol=pickle.HIGHEST_PROTOCOL)
