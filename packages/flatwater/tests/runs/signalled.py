"""Signals that reach a process while it is at certain work."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

LONGEST = 600.0
"""Seconds after which the work is given up: the test then fails by what the run returned."""


def signal_when(ready: Callable[[], bool], number: int) -> threading.Thread:
    """Send this process a signal as soon as something is so."""

    def wait() -> None:
        latest = time.monotonic() + LONGEST
        while not ready():
            if time.monotonic() > latest:
                return
            time.sleep(0.0005)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def signal_amid(function: str, checkpoint: Path, number: signal.Signals) -> threading.Thread:
    """Send it while the main thread is in a function, some time after a checkpoint was written."""
    return signal_when(lambda: checkpoint.exists() and function in functions_at_work(), number)


def functions_at_work() -> set[str]:
    """Names of the functions that the main thread is in."""
    names, frame = set(), sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    return names
