"""Runs in processes of their own, as a sweep or a study uses them: started, followed by their numbers, asked to end."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen, TimeoutExpired
from typing import Any, Literal

from flatwater.metrics.jsonl import Record
from flatwater.metrics.lines import FollowedFile, read_appended_, rewind_if_replaced_
from flatwater.named_imports import is_trusted
from flatwater.rundir.layout import RunFolder
from flatwater.rundir.listing import run_state
from flatwater.runs.signals import SAVING_SIGNAL, STOP_CODES, StopRequest
from flatwater_watch.errors import FlatwaterError, MemoryLimitError, RunError
from flatwater_watch.files.safe_read import append_regular

TRIAL_PROGRAM = (sys.executable, "-P", "-m", "flatwater.sweeps.trial")
"""-P: not with the folder of the command first on the search path, where a file may be called like a library."""
# Seconds between two looks. Rounds take longer, and a look at a file that has not grown costs little.
POLL_SECONDS = 0.2

JudgeRecord = Callable[[Record], bool]
"""Function that takes a round's numbers; True asks for the run's end."""


@dataclass(frozen=True)
class RunExit:
    """End of a run's process, and the reason."""

    how: Literal["finished", "pruned", "stopped", "failed"]
    """Kind of the end; stopped means by a signal to the sweep or to the run, which can be resumed."""
    reason: str = ""
    """Reason why it failed."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run that is to be trained."""

    order: Mapping[str, Any]
    """Order that its process reads, in the form of `trial.py`."""
    run: RunFolder
    log: Path
    """File for the process's output."""
    judge: JudgeRecord


@dataclass(frozen=True, kw_only=True)
class RunPool:
    """Parameters of training jobs: the program, the processes at once, and who may stop them."""

    program: Sequence[str]
    """Command that is started; it speaks as `trial.py` does."""
    stop: StopRequest
    check: Callable[[], None]
    """Raises where the sweep or study cannot go on."""
    say: Callable[[str], None]
    at_once: int = 1
    """Number of processes."""


class _JobProcess:
    def __init__(self, job: Job, program: Sequence[str]) -> None:
        """Start the job's process, whose stderr is appended to the job's log."""
        self.job = job
        job.log.parent.mkdir(exist_ok=True)
        with append_regular(job.log) as log_file:
            self.process = _start_process(program, {**job.order, "run": str(job.run.path)}, log_file.fileno())
        self._metrics_tail = FollowedFile(job.run.metrics)
        self._end_requested: Literal["", "pruned", "stopped"] = ""

    def poll_process_(self) -> RunExit | None:
        """Read new rounds in their order. Returns how the process ended, None while it works."""
        has_ended = self.process.poll() is not None  # before reading, so that the last round is read as well
        if not self._end_requested:
            rewind_if_replaced_(self._metrics_tail)
            if any(self.job.judge(record) for record in read_appended_(self._metrics_tail)):
                self.request_end_("pruned")
        if not has_ended:
            return None
        answer = _read_answer(self.process)
        return RunExit(self._end_requested) if self._end_requested else _exit_words(self.process.returncode, answer)

    def request_end_(self, reason: Literal["pruned", "stopped"]) -> None:
        """Ask the process, once, to save a checkpoint and to end."""
        if not self._end_requested:
            self._end_requested = reason
            self.process.send_signal(signal.SIGTERM)


def ask_process(program: Sequence[str], order: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of a process that tries a configuration out and trains nothing.

    Raises:
        FlatwaterError: no run could start with the configuration.
    """
    process = _start_process(program, {**order, "run": None}, None)
    with process:
        answer = _read_answer(process)
    if "config" not in answer:
        kind = MemoryLimitError if answer.get("exit_code") == MemoryLimitError.exit_code else FlatwaterError
        raise kind(answer.get("error") or f"the check of the configuration ended with {process.returncode}")
    return answer


def train_jobs(jobs: Iterable[Job | None], pool: RunPool) -> Generator[tuple[Job, RunExit]]:
    """Train each job to its end, or until it is judged or stopped; its checkpoint is complete in each case.

    Yields:
        Each job that was begun, with how it ended, as it ends.

    Raises:
        RunError: the sweep cannot go on; what was at work has saved.
    """
    jobs_left = iter(jobs)
    processes = list[_JobProcess]()
    try:
        while True:
            while len(processes) < pool.at_once and (job := _next_job(jobs_left, pool)) is not None:
                processes.append(_JobProcess(job, pool.program))
            if not processes:
                return
            # Before numbers are read: a folder that was moved would get none of them.
            pool.check()
            for work, ending in _poll_processes_(processes, pool.stop):
                processes.remove(work)
                _close_process(work.process)
                yield work.job, ending
            _wait_for_oldest(processes)
    except (RunError, GeneratorExit):  # the latter where the caller cannot go on
        # All are asked before the first is waited for, so that they save at the same time.
        for work in processes:
            work.request_end_("stopped")  # so that it saves
        for work in processes:
            work.process.wait()
        raise
    finally:
        for work in processes:
            work.process.kill()  # after a second Ctrl-C it still works
            _close_process(work.process)


def _poll_processes_(working: Sequence[_JobProcess], stop: StopRequest) -> Iterator[tuple[_JobProcess, RunExit]]:
    """Check each process once, and pass on requests that came by signals."""
    # Taken once for all: the wish is gone with the first look at it.
    save = stop.asks_to_save_()
    for work in tuple(working):
        if (ending := work.poll_process_()) is not None:
            yield work, ending
        elif stop.signal:
            work.request_end_("stopped")
        elif save:
            work.process.send_signal(SAVING_SIGNAL)


def _next_job(waiting: Iterator[Job | None], pool: RunPool) -> Job | None:
    """Return the next job; None if there is none now, or a signal came before it could begin."""
    job = None if pool.stop.signal else next(waiting, None)
    if job is not None:
        _await_run(job.run, pool)
    return None if pool.stop.signal else job  # it may have come while waiting


def _await_run(run: RunFolder, pool: RunPool) -> None:
    """Wait until the process of a killed sweep has saved its checkpoint, which it does when the sweep dies."""
    announced = False
    # By the run's lock: that process has another parent, so it cannot be waited for.
    while run_state(run, 0, 1) == "training" and not pool.stop.signal:
        if not announced:
            pool.say(f"  waiting for {run.path.name}, which another process is saving")
            announced = True
        time.sleep(POLL_SECONDS)


def _wait_for_oldest(working: Sequence[_JobProcess]) -> None:
    """Wait until the oldest process ends, or for a moment."""
    if working:
        try:
            working[0].process.wait(POLL_SECONDS)
        except TimeoutExpired:
            return


def _close_process(process: Popen[bytes]) -> None:
    """Wait for a process that has answered or was killed, and close its pipes."""
    # Closes the pipes as well.
    with process:
        process.wait()


def _start_process(program: Sequence[str], order: Mapping[str, Any], log: int | None) -> Popen[bytes]:
    """Start a trial's process and give it its order on stdin; `log` takes its stderr, None leaves it here."""
    # In a session of its own: a Ctrl-C of the terminal reaches the sweep alone, which then decides.
    # A wish for a checkpoint waits until the trial can grant it: it inherits that the signal is blocked.
    mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, {SAVING_SIGNAL})
    try:
        process = Popen(program, stdin=PIPE, stdout=PIPE, stderr=log, start_new_session=True)  # noqa: S603  (our own)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask_before)
    assert process.stdin is not None  # noqa: S101  (for the type checker)
    try:
        process.stdin.write(json.dumps({**order, "parent": os.getpid(), "trust": is_trusted()}).encode())
        process.stdin.close()  # the end of the order: `json.load` reads up to here
    except BrokenPipeError:  # it ended at once; its exit code says more
        pass
    return process


def _read_answer(process: Popen[bytes]) -> dict[str, Any]:
    """Wait for a process to end, and return the JSON object that it wrote on stdout; empty if it was killed."""
    assert process.stdout is not None  # noqa: S101  (for the type checker)
    # Read to the end before the wait: a child that fills the pipe would never end.
    output = process.stdout.read()
    process.wait()
    answer: dict[str, Any] = json.loads(output) if output else {}
    return answer


def _exit_words(code: int, answer: Mapping[str, Any]) -> RunExit:
    """Return the exit of a process that nobody asked to end."""
    # The answer counts before the code: a run that had finished may still be killed on its way out.
    if answer.get("finished"):
        return RunExit("finished")
    if answer.get("exit_code") in STOP_CODES or 128 - code in STOP_CODES:  # a machine that shuts down asks everybody
        return RunExit("stopped")
    if "error" in answer:
        return RunExit("failed", answer["error"])
    if "exit_code" in answer:
        return RunExit("failed", "the run reached its memory budget and stopped with a checkpoint")
    reason = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
    return RunExit("failed", f"the process {reason}; its last lines are in the log")
