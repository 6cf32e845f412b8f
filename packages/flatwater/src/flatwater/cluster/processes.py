"""Workers as processes of this machine.

The child is a fresh interpreter that imports the target alone: nothing of the program that started it runs there.
Messages go over a pair of sockets.
"""

import platform
import socket
import subprocess
import sys

from flatwater.cluster.pipe import Pipe
from flatwater.sources import current_folder
from flatwater_watch.meters.proc import is_stopped

STOPPED_SECONDS = 10.0
"""Seconds that a worker may stand still at a signal (SIGSTOP) before it is ended and started again."""
_CHECK_SECONDS = 1.0
"""Seconds between two checks of a worker that has not answered."""


def _user_folder() -> list[str]:
    """Return the folder of the command, where the run imports the user's code from it."""
    return [folder for folder in current_folder() if folder in sys.path or "" in sys.path]


class Process:
    """A worker's process on this machine, which answers until its socket is closed."""

    restart_delay = 0.0

    def __init__(self) -> None:
        """Start the process, without waiting for it."""
        own_end, child_end = socket.socketpair()
        # Not with the folder of the command first on the search path (-P), where a file may be called like a library.
        command = [sys.executable, "-P", "-m", "flatwater.cluster.worker", str(child_end.fileno()), *_user_folder()]
        # The child alone keeps its end: only then does its death, or this process's, close the connection.
        with child_end:
            # A worker that read stdin would take it from the run.
            self._process = subprocess.Popen(command, pass_fds=[child_end.fileno()], stdin=subprocess.DEVNULL)  # noqa: S603  (our own command, without a shell)
        self._pipe = Pipe(own_end, self._check_alive, _CHECK_SECONDS)
        self._stopped_since = 0.0

    @property
    def machine(self) -> str:
        """Name of this machine."""
        return platform.node()

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self._process.pid

    @property
    def exit_reason(self) -> str:
        """Exit status of the process, as words."""
        return f"exit status {self._process.returncode}"

    def send(self, message: bytes) -> None:
        """Post a question."""
        self._pipe.send(message)

    def receive(self) -> bytearray:
        """Return the oldest answer."""
        return self._pipe.receive()

    def close(self) -> None:
        """End the process: it ends by itself once its socket is closed."""
        self._pipe.close()
        # A second for its last answer; then it is killed, as whatever it computes is wanted no more.
        try:
            self._process.wait(timeout=_CHECK_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _check_alive(self) -> None:
        """End a process that stands still too long; cut the connection to a process that has ended.

        A fork of the worker, an environment's for example, may live on and have the other end open.
        """
        if self._process.poll() is not None:
            self._pipe.shut_down()  # else `receive` would wait for what that fork never sends
        self._stopped_since = self._stopped_since + _CHECK_SECONDS if is_stopped(self.pid) else 0.0
        if self._stopped_since >= STOPPED_SECONDS:
            self._process.kill()  # SIGKILL, which a stopped process gets too; its end is found at the next look
