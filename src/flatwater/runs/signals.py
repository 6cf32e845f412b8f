"""Signals as a wish that is looked at where it can be granted: after a step, or between two trials."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from rich.console import Console


@dataclass
class Stop:
    """Set by a signal; looked at after each step."""

    signal: int = 0


@contextmanager
def stop_on_signals(console: Console) -> Iterator[Stop]:
    """Turn SIGINT and SIGTERM into a stop after the current step. A second Ctrl-C interrupts at once."""
    stop = Stop()

    def note(number: int, _frame: FrameType | None) -> None:
        if stop.signal and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.signal = number
        console.print(f"{signal.Signals(number).name}: finishing this step, then saving a checkpoint …", style="yellow")

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
