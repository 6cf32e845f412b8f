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
"""How long a worker may stand still at a signal (SIGSTOP) before it is ended and started again."""
_LOOK_SECONDS = 1.0
"""How often is looked at a worker that has not answered."""


def _modules_of_user() -> list[str]:
    """The folder of the command, where the run takes code of the user's from there."""
    return [folder for folder in current_folder() if folder in sys.path or "" in sys.path]


class Process:
    """A process that answers until nobody is left to ask."""

    restart_delay = 0.0

    def __init__(self) -> None:
        """Start it; it is not waited for."""
        mine, other = socket.socketpair()
        # Not with the folder of the command first on the search path (-P), where a file may be called like a library.
        command = [sys.executable, "-P", "-m", "flatwater.cluster.worker", str(other.fileno()), *_modules_of_user()]
        with other:
            self._process = subprocess.Popen(command, pass_fds=[other.fileno()], stdin=subprocess.DEVNULL)  # noqa: S603
        self._pipe = Pipe(mine, self._check_alive, _LOOK_SECONDS)
        self._still = 0.0

    @property
    def machine(self) -> str:
        """This one."""
        return platform.node()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def exit_reason(self) -> str:
        """Its exit status."""
        return f"exit status {self._process.returncode}"

    def send(self, message: bytes) -> None:
        """Post a question."""
        self._pipe.send(message)

    def receive(self) -> bytearray:
        """The oldest answer."""
        return self._pipe.receive()

    def close(self) -> None:
        """End the process: it ends by itself where nobody is left to ask."""
        self._pipe.close()
        try:
            self._process.wait(timeout=_LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _check_alive(self) -> None:
        """A process that stands still too long is ended; one that has ended says nothing more.

        A fork of its own, of an environment's, say, may live on and have the other end open.
        """
        if self._process.poll() is not None:
            self._pipe.shut_down()
        self._still = self._still + _LOOK_SECONDS if is_stopped(self.pid) else 0.0
        if self._still >= STOPPED_SECONDS:
            self._process.kill()
