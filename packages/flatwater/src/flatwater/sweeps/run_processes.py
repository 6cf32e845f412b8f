"""Runs in processes of their own, for a sweep or a study, which starts them, reads their numbers and ends them."""

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
from flatwater.metrics.jsonl_lines import FollowedFile, read_appended_records_, rewind_if_replaced_
from flatwater.named_imports import is_trusted
from flatwater.rundir.layout import RunFolder
from flatwater.rundir.listing import run_state
from flatwater.runs.signals import SAVING_SIGNAL, STOP_CODES, StopRequest
from flatwater_watch.errors import FlatwaterError, MemoryLimitError, RunError
from flatwater_watch.events.background import ShowLine
from flatwater_watch.files.regular_files import append_regular

TRIAL_PROGRAM = (sys.executable, "-P", "-m", "flatwater.sweeps.trial")
"""-P keeps the command's folder off the front of the search path: a file there may have the name of a library."""
# Seconds between two reads of the files. Rounds take longer, and a file that has not grown costs little.
POLL_SECONDS = 0.2

JudgeRecord = Callable[[Record], bool]
"""Function that takes a round's numbers, and returns whether to end the run."""


@dataclass(frozen=True)
class RunExit:
    """End of a run's process, and the reason."""

    how: Literal["finished", "pruned", "stopped", "failed"]
    """Kind of the end. A signal to the sweep or to the run stops it; it can be resumed."""
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
    """Parameters of `train_jobs`: the program, the number of processes, and the checks and signals that end them."""

    program: Sequence[str]
    """Command of a process; it takes and gives JSON as `trial.py` does."""
    stop: StopRequest
    check: Callable[[], None]
    """Raises a RunError if the sweep or study cannot go on."""
    say: ShowLine
    at_once: int = 1
    """Number of processes."""


class _JobProcess:
    """The process of a job, and how far the run's numbers were read."""

    def __init__(self, job: Job, program: Sequence[str]) -> None:
        """Start the job's process, whose stderr is appended to the job's log."""
        self.job = job
        job.log.parent.mkdir(exist_ok=True)
        with append_regular(job.log) as log_file:
            self.process = _start_process(program, {**job.order, "run": str(job.run.path)}, log_file.fileno())
        self._metrics_tail = FollowedFile(job.run.metrics)
        self._end_requested: Literal["", "pruned", "stopped"] = ""

    def poll_process_(self) -> RunExit | None:
        """Let the job judge the new rounds, in their order. Returns how the process ended, None while it works."""
        has_ended = self.process.poll() is not None  # before the rounds are read, so that the last one is among them
        if not self._end_requested:
            rewind_if_replaced_(self._metrics_tail)  # a resumed run may cut rows off
            # Stops at the first round by which the run is to end.
            if any(self.job.judge(record) for record in read_appended_records_(self._metrics_tail)):
                self.request_end_("pruned")
        if not has_ended:
            return None
        answer = _read_answer(self.process)
        return (
            RunExit(self._end_requested) if self._end_requested else _unrequested_exit(self.process.returncode, answer)
        )

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
    process = _start_process(program, {**order, "run": None}, log=None)
    with process:
        answer = _read_answer(process)
    if "config" not in answer:
        error_class = MemoryLimitError if answer.get("exit_code") == MemoryLimitError.exit_code else FlatwaterError
        raise error_class(answer.get("error") or f"the check of the configuration ended with {process.returncode}")
    return answer


def train_jobs(jobs: Iterable[Job | None], pool: RunPool) -> Generator[tuple[Job, RunExit]]:
    """Train each job until it finishes, its judge ends it, or a signal stops it; a checkpoint is saved in each case.

    Yields:
        Each job that was begun, and the end of its process, in the order in which they end.

    Raises:
        RunError: the sweep cannot go on; the runs that were training have saved.
    """
    jobs_left = iter(jobs)
    processes = list[_JobProcess]()
    try:
        while True:
            while len(processes) < pool.at_once and (job := _next_job(jobs_left, pool)) is not None:
                processes.append(_JobProcess(job, pool.program))
            if not processes:
                return
            # Checked before numbers are read, as a folder that was moved would not get them.
            pool.check()
            for job_process, ending in _poll_processes_(processes, pool.stop):
                processes.remove(job_process)
                _close_process(job_process.process)
                yield job_process.job, ending
            _wait_for_oldest(processes)
    except (RunError, GeneratorExit):  # GeneratorExit: the caller has closed the generator, as it cannot go on
        # All are asked before the first is waited for, so that they save at the same time.
        for job_process in processes:
            job_process.request_end_("stopped")
        for job_process in processes:
            job_process.process.wait()
        raise
    finally:
        # After a second Ctrl-C processes may still be training.
        for job_process in processes:
            job_process.process.kill()
            _close_process(job_process.process)


def _poll_processes_(processes: Sequence[_JobProcess], stop: StopRequest) -> Iterator[tuple[_JobProcess, RunExit]]:
    """Poll each process once and pass signals on to it; yield those that have ended, with their ends."""
    # Asked once for all processes, as asking clears the request.
    must_save = stop.asks_to_save_()
    for job_process in tuple(processes):  # a copy, as the caller removes those that have ended
        if (ending := job_process.poll_process_()) is not None:
            yield job_process, ending
        elif stop.signal:
            job_process.request_end_("stopped")
        elif must_save:
            job_process.process.send_signal(SAVING_SIGNAL)


def _next_job(jobs: Iterator[Job | None], pool: RunPool) -> Job | None:
    """Return the next job, once no other process trains its run; None if there is none now, or a signal came."""
    job = None if pool.stop.signal else next(jobs, None)
    if job is not None:
        _await_run(job.run, pool)
    return None if pool.stop.signal else job  # the signal may have come during the wait


def _await_run(run: RunFolder, pool: RunPool) -> None:
    """Wait while the process of an earlier, killed sweep still saves the run's checkpoint."""
    is_announced = False
    # The run's lock tells it, whatever the rounds are: the process is no child, so `wait` is not possible.
    while run_state(run, rounds_done=0, rounds=1) == "training" and not pool.stop.signal:
        if not is_announced:
            pool.say(f"  waiting for {run.path.name}, which another process is saving")
            is_announced = True
        time.sleep(POLL_SECONDS)


def _wait_for_oldest(processes: Sequence[_JobProcess]) -> None:
    """Wait `POLL_SECONDS`, or less if the oldest process ends before; not at all without a process."""
    if processes:
        try:
            processes[0].process.wait(timeout=POLL_SECONDS)
        except TimeoutExpired:
            return


def _close_process(process: Popen[bytes]) -> None:
    """Wait for a process that has answered or was killed, and close its pipes."""
    with process:
        process.wait()


def _start_process(program: Sequence[str], order: Mapping[str, Any], log: int | None) -> Popen[bytes]:
    """Start a process, and write its order to its stdin; `log` is a descriptor for its stderr, None for ours."""
    # A session of its own: a Ctrl-C in the terminal reaches the sweep alone, which asks the trials to end.
    # The process begins with SAVING_SIGNAL blocked: before its handler is set, the signal would end it.
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {SAVING_SIGNAL})
    try:
        process = Popen(program, stdin=PIPE, stdout=PIPE, stderr=log, start_new_session=True)  # noqa: S603  (our own)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)
    assert process.stdin is not None  # noqa: S101  (for the type checker)
    try:
        process.stdin.write(json.dumps({**order, "parent": os.getpid(), "trust": is_trusted()}).encode())
        process.stdin.close()  # `json.load` in the process reads until the end of the pipe
    except BrokenPipeError:  # the process has ended already; its exit code says more
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


def _unrequested_exit(code: int, answer: Mapping[str, Any]) -> RunExit:
    """Return the exit of a process that the sweep did not ask to end, by its exit code and its JSON answer."""
    # The answer counts before the code: a run that had finished may still be killed before its process ends.
    if answer.get("finished"):
        return RunExit("finished")
    # A signal was sent to all processes, as when the machine shuts down. One that ended the process itself has a
    # negative code: -15 stands for 143, which is 128 + 15.
    if answer.get("exit_code") in STOP_CODES or 128 - code in STOP_CODES:
        return RunExit("stopped")
    if "error" in answer:
        return RunExit("failed", answer["error"])
    if "exit_code" in answer:  # of an end without an error or a signal
        return RunExit("failed", "the run reached its memory budget and stopped with a checkpoint")
    reason = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
    return RunExit("failed", f"the process {reason}; its last lines are in the log")
