"""A worker that is lost is noticed, whatever it leaves: forks that live on, half a message, a message nobody takes."""

import os
import signal
import socket
from pathlib import Path

import pytest

from flatwater.cluster.pipe import Pipe
from flatwater.cluster.processes import Process
from flatwater.cluster.worker_client import Worker
from flatwater_watch.errors import RunError

SOON = 0.01
FORKS = """
import os, time
if os.fork():
    os._exit(7)
while os.path.exists({!r}):
    time.sleep(0.05)
os._exit(0)
"""


def test_a_worker_that_dies_beside_a_fork_of_its_own_is_lost(tmp_path: Path) -> None:
    waiting = tmp_path / "waiting"
    waiting.touch()
    code = FORKS.format(str(waiting))
    worker = Worker(1, "builtins:exec", code, prepare=lambda _: None, connect=Process)
    try:
        with pytest.raises(RunError, match=r"worker 1 died 3 times.*exit status 7"):
            worker.take_answer()
    finally:
        worker.close()
        waiting.unlink()


def test_a_worker_that_stands_still_amid_a_question_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flatwater.cluster.processes.STOPPED_SECONDS", SOON)
    process = Process()
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(OSError, match=r"Broken pipe|Connection reset"):
        process.send(bytes(8 << 20))  # more than a socket keeps
    process.close()


def test_what_came_before_the_cut_is_received() -> None:
    mine, other = socket.socketpair()
    pipe = Pipe(mine, lambda: mine.shutdown(socket.SHUT_RDWR), SOON)
    with other:
        theirs = Pipe(other)
        for message in (b"", b"whole"):
            theirs.send(message)
        other.send((100).to_bytes(8) + b"half")
        assert [pipe.receive(), pipe.receive()] == [b"", b"whole"]
        with pytest.raises(EOFError):
            pipe.receive()
    pipe.close()
