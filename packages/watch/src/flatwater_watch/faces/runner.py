"""The runner: it starts a program with the watch inside, waits for its end, and collects the summary of the watch.

The program gets the terminal, the arguments and the environment that it would have without us; its exit code is ours.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from flatwater_watch.agent import runner_protocol, spool
from flatwater_watch.errors import ConfigError
from flatwater_watch.faces.command_name import WATCH_COMMAND
from flatwater_watch.faces.runner_folder import read_sentences, read_summaries, watch_folder
from flatwater_watch.faces.summary_masking import masked_summary

FORWARDED_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCONT"))
"""Signals that are passed on. Ctrl-C reaches the program by itself, as it is in the same process group."""
SIGNAL_EXIT_BASE = 128
"""What shells add to the number of a signal that has ended a program, for its exit code."""
NO_PYTHON_SENTENCE = "no Python program was seen: it was started with -I, -E or -S, or failed before its first line"


def watch_command(
    words: Sequence[str],
    *,
    unit: str | None = None,
    limit: int | None = None,
    reports: spool.PeriodicReports | None = None,
) -> tuple[int, dict[str, Any]]:
    """Run a command, and watch the first Python program in it; return its exit code and the JSON of `flatwater watch`.

    Args:
        words: `python train.py ...`, `train.py ...`, `-m module ...`, or any command that starts Python.
        unit: kind of boundary by which growth is reported; None takes the slowest regular one.
        limit: resident bytes at which the program would have to stop; None takes the machine's limit.
        reports: reports while the program runs; None makes none.

    Raises:
        ConfigError: there is no such script or command.
    """
    command = python_command(words)
    with watch_folder() as folder:
        environment = watched_environment(folder, unit, limit)

        def make_summary(code: int | None) -> dict[str, Any]:
            return collect_summary(read_summaries(folder), folder, command, code, limit)

        code = _run_program(command, environment, reports, lambda: make_summary(code=None))  # None: it still runs
        return code, make_summary(code)


def python_command(words: Sequence[str]) -> list[str]:
    """Return the command to run: with this Python before a script or a module, and with the path of its program.

    Raises:
        ConfigError: the command is empty, or does not exist.
    """
    if not words:
        raise ConfigError(f"watch: nothing to run. Write it like: {WATCH_COMMAND} -- python train.py")
    command = list(words)
    # A script that is no command by itself, or a module, is run by this Python.
    if words[0] == "-m" or (words[0].endswith(".py") and shutil.which(words[0]) is None):
        command = [sys.executable, *words]
    executable = shutil.which(command[0])
    if executable is None:
        raise ConfigError(f"watch: there is no command {command[0]!r}. Give a command, a script (.py) or -m MODULE.")
    script = _find_script(command)
    if script is not None and not (Path(script).is_file() or Path(script, "__main__.py").is_file()):
        raise ConfigError(f"watch: there is no script {script!r} in {Path.cwd()}. Give a file, or -m MODULE.")
    return [executable, *command[1:]]


def _find_script(command: Sequence[str]) -> str | None:
    """Return the script that a command runs, if the command is Python's; None if it runs no script, or is another."""
    if not Path(command[0]).name.startswith("python"):
        return None
    words = iter(command[1:])
    for word in words:
        if word in {"-W", "-X"}:  # their value is not a script
            next(words, None)
        elif not word.startswith("-"):
            return word
        elif word.startswith(("-m", "-c")) or word == "-":  # a module, code, or a script on stdin
            return None
    return None


def watched_environment(
    folder: Path, unit: str | None, limit: int | None, environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the environment of a program that is watched, with the variables by which the watch starts in it."""
    variables = {runner_protocol.FOLDER: str(folder), runner_protocol.PACKAGE: str(Path(__file__).parents[1])}
    if unit is not None:
        variables[runner_protocol.UNIT] = unit
    if limit is not None:
        variables[runner_protocol.LIMIT] = str(limit)
    return {**environment, **runner_protocol.injected_environment(variables, environment.get("PYTHONPATH"))}


def _run_program(
    command: list[str],
    environment: dict[str, str],
    reports: spool.PeriodicReports | None,
    make_summary: Callable[[], dict[str, Any]],
) -> int:
    """Run the program to its end; its output goes where ours goes.

    Returns:
        Its exit code; `SIGNAL_EXIT_BASE` plus the signal's number if a signal has ended it.
    """
    sys.stdout.flush()  # so that our lines come before the program's
    with _forward_signals() as children:
        child = subprocess.Popen(command, env=environment)  # noqa: S603  (the user's own command)
        children.append(child)  # from now on it gets the signals
        if reports is not None:
            _report_until_end(child.pid, reports, make_summary)
        code = child.wait()
    return SIGNAL_EXIT_BASE - code if code < 0 else code  # Popen returns minus the number of a signal


def _report_until_end(pid: int, reports: spool.PeriodicReports, make_summary: Callable[[], dict[str, Any]]) -> None:
    """Report the summary every `reports.every` seconds until the program ends."""
    # A pidfd is readable when the process ends, so that one wait is for its end and for the next report.
    pidfd = os.pidfd_open(pid)
    try:
        while not select.select([pidfd], [], [], reports.every)[0]:  # empty after `every` seconds without an end
            reports.report(make_summary())
    finally:
        os.close(pidfd)


@contextmanager
def _forward_signals() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Pass signals on to the processes that the block appends to the list; Ctrl-C, which they get too, is ignored."""
    children: list[subprocess.Popen[bytes]] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        """Send a signal on to the children; a signal handler, which runs while the main thread waits for them."""
        for child in children:
            with suppress(ProcessLookupError):  # the child has ended
                child.send_signal(number)

    previous_handlers = {number: signal.signal(number, forward) for number in FORWARDED_SIGNALS}
    # A handler, not SIG_IGN: that would be inherited, and the program could not be stopped.
    previous_handlers[signal.SIGINT] = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        yield children
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


def collect_summary(
    summaries: Sequence[dict[str, Any]], folder: Path, command: list[str], code: int | None, limit: int | None
) -> dict[str, Any]:
    """Return the summary of the process that was watched longest, with the findings of the workers.

    Args:
        summaries: summaries that processes of the command have written, that of the longest watch first.
        folder: folder with the notes of all processes of the command.
        command: words of the command.
        code: exit code of the command; None while it runs.
        limit: resident bytes at which the program must stop; None if the user gave none.
    """
    summary = summaries[0] if summaries else spool.unwatched_summary("", NO_PYTHON_SENTENCE)
    summary.pop("ended_at", None)
    # The watch writes `ended` as it closes: a program that was killed has only the summary of an earlier moment.
    if not summary.pop("ended", False) and summaries and code is not None:
        missing_part = "what it did in its last two seconds is missing, in its last ten where it slept"
        summary["unseen"].append(f"the program ended at once: {missing_part}")
    # Sentences on watches that failed, and on programs whose Python is too old to be watched.
    faults, old_versions = read_sentences(folder, "fault"), read_sentences(folder, "old")
    if not summaries and (faults or old_versions):  # a Python program was seen, but could not be read
        summary["unseen"].clear()
    if not summaries:  # else another program of the command was new enough, and was watched
        faults += old_versions
    summary["unseen"] += [*faults, *read_sentences(folder, "unseen")]
    if workers := read_summaries(folder, spool.WORKER):
        from flatwater_watch.faces.worker_findings import add_workers  # noqa: PLC0415  (most programs have none)

        summary = add_workers(summary, workers, budget=limit)
    # Of a program in Python, the script and its arguments say more than the path of the interpreter before them.
    masked = masked_summary(summary, command[1:] or command)
    return masked if code is None else masked | {"exit_code": code}
