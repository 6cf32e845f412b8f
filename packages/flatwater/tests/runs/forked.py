"""Forks that work silently: a process that has everything imported starts commands in them, to kill them."""

import os
from collections.abc import Callable


def in_fork(work: Callable[[], int]) -> int:
    """Start `work` in a fork; the fork's process id. It prints nothing, and its exit code is what `work` returns."""
    child = os.fork()
    if child == 0:
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        os._exit(work())
    return child


def exit_of(child: int) -> int:
    """Wait for a fork; its exit code, negative where a signal ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
