"""A trial's process, as the sweep sees it: started with an order, followed by its numbers, asked to end."""

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen, TimeoutExpired
from typing import Any, Literal

from flatwater.errors import FlatwaterError, RunError
from flatwater.metrics.jsonl import Record
from flatwater.metrics.lines import Tail, appended_, restarted_
from flatwater.runs.signals import SAVES, STOP_CODES, Stop

PROGRAM = (sys.executable, "-m", "flatwater.runs.sweeps.trial")
POLL_SECONDS = 0.2

Judge = Callable[[Record], bool]
"""Looks at a round's numbers; True asks for the trial's end."""


@dataclass(frozen=True)
class Ending:
    """How a trial's process ended."""

    how: Literal["finished", "pruned", "stopped", "failed"]
    """stopped: by a signal to the sweep or to the trial; it can be resumed."""
    reason: str = ""
    """Why it failed."""


@dataclass(frozen=True)
class Follow:
    """Reads the rounds of a trial while it trains."""

    metrics: Path
    judge: Judge
    stop: Stop
    check: Callable[[], None]
    """Raises where the sweep cannot go on."""

    def __call__(self, process: Popen[bytes]) -> Literal["ended", "pruned", "stopped"]:
        """Every round in its order, until the process has ended or shall end.

        Raises:
            RunError: the sweep cannot go on.
        """
        tail = Tail(self.metrics)
        while True:
            ended = process.poll() is not None  # before reading, so that the last round is read as well
            self.check()
            restarted_(tail)
            if any(self.judge(record) for record in appended_(tail)):
                return "pruned"
            if ended:
                return "ended"
            if self.stop.signal:
                return "stopped"
            if self.stop.asks_to_save_():
                process.send_signal(SAVES)
            try:
                process.wait(POLL_SECONDS)
            except TimeoutExpired:
                continue


def ask(program: Sequence[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration as runs keep it, from a process that has tried it.

    Raises:
        FlatwaterError: no trial could start with it.
    """
    process = _started(program, {"config": settings, "run": None}, None)
    with process:
        answer = _answer(process)
    if "config" not in answer:
        raise FlatwaterError(answer.get("error") or f"the check of the configuration ended with {process.returncode}")
    found: dict[str, Any] = answer["config"]
    return found


def train(program: Sequence[str], settings: Mapping[str, Any], run: Path, log: Path, follow: Follow) -> Ending:
    """Train one trial to its end, or until it is judged or stopped. Its checkpoint is complete in each case.

    Args:
        program: what is started; speaks as `trial.py` does.
        settings: the trial's configuration.
        run: its folder.
        log: what it says.
        follow: its numbers, and who judges them.

    Raises:
        RunError: the sweep cannot go on; the trial has saved.
    """
    log.parent.mkdir(exist_ok=True)
    with log.open("ab") as said, _started(program, {"config": settings, "run": str(run)}, said.fileno()) as process:
        try:
            how = follow(process)
            if how != "ended":
                process.send_signal(signal.SIGTERM)
            process.wait()
        except RunError:
            process.send_signal(signal.SIGTERM)  # so that it saves
            process.wait()
            raise
        finally:
            process.kill()  # after a second Ctrl-C it still runs; one that has ended is left alone
        answer = _answer(process)
    return Ending(how) if how != "ended" else _ending(process.returncode, answer)


def _started(program: Sequence[str], order: Mapping[str, Any], log: int | None) -> Popen[bytes]:
    # In a session of its own: a Ctrl-C of the terminal reaches the sweep alone, which then decides.
    # A wish for a checkpoint waits until the trial can grant it: it inherits that the signal is blocked.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {SAVES})
    try:
        process = Popen(program, stdin=PIPE, stdout=PIPE, stderr=log, start_new_session=True)  # noqa: S603  (our own)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert process.stdin is not None  # noqa: S101  (for the type checker)
    try:
        process.stdin.write(json.dumps({**order, "parent": os.getpid()}).encode())
        process.stdin.close()
    except BrokenPipeError:  # it ended at once; its exit code says more
        pass
    return process


def _answer(process: Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None  # noqa: S101  (for the type checker)
    written = process.stdout.read()
    process.wait()
    answer: dict[str, Any] = json.loads(written) if written else {}
    return answer


def _ending(code: int, answer: Mapping[str, Any]) -> Ending:
    """How a process ended that nobody asked to."""
    if answer.get("finished"):
        return Ending("finished")
    if answer.get("exit_code") in STOP_CODES or 128 - code in STOP_CODES:  # a machine that shuts down asks everybody
        return Ending("stopped")
    if "error" in answer:
        return Ending("failed", answer["error"])
    if "exit_code" in answer:
        return Ending("failed", "it came to its memory budget and stopped with a checkpoint")
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
    return Ending("failed", f"its process {how}; its last lines are in the log")
