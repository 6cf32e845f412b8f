"""Signals as a wish that is looked at where it can be granted: after a step, or between two trials.

Training stops with a checkpoint (`stop_on_signals`). Any other command ends at once, but cleanly: temporary files are
removed and locks released, as after Ctrl-C (`end_on_signals`). A signal that was ignored when the process was started
stays ignored, so `nohup` works; SIGINT alone is always heard, as shells ignore it for every job in the background.
"""

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import current_thread, main_thread
from types import FrameType

from rich.console import Console

ENDS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""What a machine says that is taken away: a shutdown, a closed terminal or a lost connection, SLURM's notice."""
SAVES = signal.SIGUSR2
"""Asks a run to save a checkpoint and to go on."""

SIGNALLED = 128
"""Exit codes of what a signal ended begin there, as in a shell."""

Handler = Callable[[int, FrameType | None], None]


class Terminated(KeyboardInterrupt):
    """A signal ends the command, as a second Ctrl-C does."""

    def __init__(self, number: int) -> None:
        """Keep the signal's number."""
        super().__init__(signal.Signals(number).name)
        self.number = number


@dataclass
class Stop:
    """Set by signals; looked at after each step."""

    signal: int = 0
    """The first that asked for the end."""
    asked: bool = False
    """Whether the program that trains asked for the end."""
    save: bool = False
    """Whether a checkpoint was asked for since `asks_to_save_`."""

    def asks_to_save_(self) -> bool:
        """Whether a checkpoint was asked for since the last call."""
        asked, self.save = self.save, False
        return asked

    def ask_(self) -> None:
        """Ask for the end, as Ctrl-C does."""
        self.asked = True

    @property
    def wanted(self) -> bool:
        """Whether the end was asked for."""
        return self.asked or self.signal != 0

    @property
    def exit_code(self) -> int:
        """Of a program that saved its work and ended: 0 after Ctrl-C, as it was the user's wish; else 128 + signal."""
        return 0 if self.signal in (0, signal.SIGINT) else SIGNALLED + self.signal


STOP_CODES = tuple(SIGNALLED + number for number in ENDS)
"""Exit codes of a run that a signal stopped with a checkpoint."""


@contextmanager
def stop_on_signals(console: Console) -> Iterator[Stop]:
    """Turn SIGINT and `ENDS` into a stop after the current step, `SAVES` into a checkpoint there.

    A second Ctrl-C interrupts at once. In a thread that is not the main one, which alone may listen to signals, nothing
    is listened to.
    """
    stop = Stop()
    if current_thread() is not main_thread():
        yield stop
        return

    def end(number: int, _frame: FrameType | None) -> None:
        if stop.signal and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not stop.signal:
            stop.signal = number
            told = f"{signal.Signals(number).name}: finishing this step, then saving a checkpoint …"
            console.print(told, style="yellow")

    def save(_number: int, _frame: FrameType | None) -> None:
        stop.save = True

    wanted = (signal.SIGINT, *(number for number in ENDS if signal.getsignal(number) is not signal.SIG_IGN))
    with _handled(wanted, end), _handled((SAVES,), save):
        before = signal.pthread_sigmask(signal.SIG_UNBLOCK, {SAVES})  # a sweep's trial is started with it blocked
        try:
            yield stop
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def end_on_signals() -> Iterator[None]:
    """Turn `ENDS` into `Terminated`, wherever the program is. `SAVES` does nothing where there is nothing to save.

    Handlers of the program that calls are left alone, and so are signals where this is not the main thread, the only
    one that may set them.
    """
    if current_thread() is not main_thread():
        yield
        return
    ended: list[int] = []

    def end(number: int, _frame: FrameType | None) -> None:
        if not ended:  # a second one must not interrupt the clearing away
            ended.append(number)
            signal.signal(signal.SIGCONT, ignore)  # systemd and `timeout` send it next: no screen is to be drawn for it
            raise Terminated(number)

    def ignore(_number: int, _frame: FrameType | None) -> None:
        """Unlike SIG_IGN this is not handed on to programs that are started."""

    untouched = [number for number in (*ENDS, SAVES, signal.SIGCONT) if signal.getsignal(number) is signal.SIG_DFL]
    with (
        _handled([number for number in untouched if number in ENDS], end),
        _handled([number for number in untouched if number not in ENDS], ignore),
    ):
        yield


@contextmanager
def _handled(numbers: Iterable[int], handler: Handler) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)
