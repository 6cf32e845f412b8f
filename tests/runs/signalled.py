"""Signals that reach a process while it is at a certain work."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

LONGEST = 120.0
"""Seconds after which the function is given up."""


def signal_amid(function: str, checkpoint: Path, number: signal.Signals) -> threading.Thread:
    """Send this process a signal while it is in a function, some time after a checkpoint was written."""

    def wait() -> None:
        latest = time.monotonic() + LONGEST
        while not (checkpoint.exists() and function in functions_at_work()):
            if time.monotonic() > latest:
                return  # the test then fails by what the run returned, and does not wait for ever
            time.sleep(0.0005)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def functions_at_work() -> set[str]:
    """Names of the functions that the main thread is in."""
    names, frame = set(), sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    return names
