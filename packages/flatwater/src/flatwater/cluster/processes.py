"""Workers as processes of this machine.

The child is a fresh interpreter that imports the target alone: it runs nothing of the program that started it.
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
"""Seconds for which a worker may be stopped by a signal (SIGSTOP) before it is killed and started again."""
_CHECK_SECONDS = 1.0
"""Seconds between two checks of a worker that has not answered."""


def _user_folder() -> list[str]:
    """Return the command's folder as the only item; no item if this process imports no code from there."""
    return [folder for folder in current_folder() if folder in sys.path or "" in sys.path]


class Process:
    """A `WorkerConnection` to a worker's process on this machine, which answers until its socket is closed."""

    restart_delay = 0.0

    def __init__(self) -> None:
        """Start the process, without waiting for it."""
        own_end, child_end = socket.socketpair()
        # -P leaves the folder of the command off the search path, where a file may have a library's name.
        command = [sys.executable, "-P", "-m", "flatwater.cluster.worker", str(child_end.fileno()), *_user_folder()]
        # This process closes the child's end at once, so that the death of either process closes the connection.
        with child_end:
            # No stdin: a worker that reads it would take input from the run.
            self._process = subprocess.Popen(command, pass_fds=[child_end.fileno()], stdin=subprocess.DEVNULL)  # noqa: S603  (our own command, without a shell)
        self._pipe = Pipe(own_end, on_wait=self._check_alive, seconds=_CHECK_SECONDS)
        self._stopped_seconds = 0.0

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
        """Send a question to the worker."""
        self._pipe.send(message)

    def receive(self) -> bytearray:
        """Return the oldest answer."""
        return self._pipe.receive()

    def close(self) -> None:
        """Close the socket, upon which the process ends by itself; kill it if it does not."""
        self._pipe.close()
        # It has a second to finish its last answer, which nobody reads any more.
        try:
            self._process.wait(timeout=_CHECK_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _check_alive(self) -> None:
        """Kill a process that is stopped for too long; shut down the connection to a process that has ended."""
        if self._process.poll() is not None:
            # A fork of the worker, an environment's for example, may keep the other end open: `receive` would hang.
            self._pipe.shut_down()
        # This is called every `_CHECK_SECONDS` while an answer is awaited.
        self._stopped_seconds = self._stopped_seconds + _CHECK_SECONDS if is_stopped(self.pid) else 0.0
        if self._stopped_seconds >= STOPPED_SECONDS:
            self._process.kill()  # SIGKILL ends a stopped process too, which the next check finds
