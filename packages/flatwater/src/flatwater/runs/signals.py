"""Signals as requests that are granted at a safe point: after a step, or between two trials.

Training stops with a checkpoint (`stop_on_signals`). Any other command ends at once, but cleanly: temporary files are
removed and locks released, as after Ctrl-C (`end_on_signals`). A signal that was ignored when the process was started
stays ignored, so `nohup` works; SIGINT alone is always heard, as shells ignore it for every job in the background.

A command is ended by an exception that its handler raises. Where Python ignores exceptions (a finaliser, a callback of
a weak reference or of the garbage collector, a hook at a fork, a library that catches everything) the exception is
lost. So the wish is also written down: it is raised again until it has ended the command, and training does not begin
over it.
"""

import _thread
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import current_thread, get_ident, main_thread
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

from flatwater_watch.errors import Terminated

if TYPE_CHECKING:  # every command listens to signals, and few of them print by rich
    from rich.console import Console

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""Signals that mean the machine is taken away: a shutdown, a closed terminal or lost connection, SLURM's notice."""
SAVING_SIGNAL = signal.SIGUSR2
"""Asks a run to save a checkpoint and to go on."""

REPEAT_SECONDS = 0.2
"""Seconds after which a signal that has not ended the command is raised again."""
SIGNAL_EXIT_BASE = 128
"""Number at which exit codes of a process that a signal ended begin, as in a shell."""

Handler = Callable[[int, FrameType | None], None]


@dataclass
class StopRequest:
    """A request to stop or to save, set by signal handlers and read after each step."""

    signal: int = 0
    """The first signal that asked for the end."""
    stop_requested: bool = False
    """Whether the program that trains asked for the end."""
    save: bool = False
    """Whether a checkpoint was asked for since `asks_to_save_`."""

    def asks_to_save_(self) -> bool:
        """Whether a checkpoint was asked for since the last call."""
        was_asked, self.save = self.save, False
        return was_asked

    def ask_(self) -> None:
        """Ask for the end, as Ctrl-C does."""
        self.stop_requested = True

    @property
    def is_wanted(self) -> bool:
        """Whether the end was asked for."""
        return self.stop_requested or self.signal != 0

    @property
    def exit_code(self) -> int:
        """Exit code after the work was saved: 0 after Ctrl-C, as it was the user's wish; else 128 + signal."""
        return 0 if self.signal in (0, signal.SIGINT) else SIGNAL_EXIT_BASE + self.signal


STOP_CODES = tuple(SIGNAL_EXIT_BASE + number for number in ENDING_SIGNALS)
"""Exit codes of a run that a signal stopped with a checkpoint."""


@contextmanager
def stop_on_signals(console: "Console") -> Iterator[StopRequest]:
    """Turn SIGINT and `ENDING_SIGNALS` into a stop after the current step, `SAVING_SIGNAL` into a checkpoint there.

    A second Ctrl-C interrupts at once. In a thread other than the main thread, which alone may listen to signals,
    nothing is listened to.

    Raises:
        Terminated: `end_on_signals` has heard a signal before, and its exception was lost.
    """
    stop = StopRequest()
    if current_thread() is not main_thread():  # Python runs handlers in the main thread alone
        yield stop
        return

    def end(number: int, _frame: FrameType | None) -> None:
        """Note the first signal and say so.

        Raises:
            Terminated: the signal is a second Ctrl-C, and no `finally` is at work.
        """
        # In a signal handler, between two bytecodes of the main thread.
        if stop.signal and number == signal.SIGINT and not _is_clearing_up():
            raise Terminated(number)  # a second Ctrl-C: the user does not want to wait for the step
        if not stop.signal:
            stop.signal = number  # before anything that could fail
            line = f"{signal.Signals(number).name}: finishing this step, then saving a checkpoint …"
            console.print(line, style="yellow")

    def save(_number: int, _frame: FrameType | None) -> None:
        stop.save = True  # in a signal handler: the loop saves, after its step

    stop_signals = (
        signal.SIGINT,
        *(number for number in ENDING_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN),
    )
    with _install_handlers(stop_signals, end), _install_handlers((SAVING_SIGNAL,), save):
        # A signal that came while the run was built was raised where an exception is lost:
        # the run must not begin over it.
        for ending in _active_endings:
            ending.raise_missed()
        # A sweep's trial is started with the signal blocked.
        mask_before = signal.pthread_sigmask(signal.SIG_UNBLOCK, {SAVING_SIGNAL})
        try:
            yield stop
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask_before)


@contextmanager
def end_on_signals() -> Iterator[None]:
    """Raise `Terminated` in the main thread on SIGINT and `ENDING_SIGNALS`; ignore `SAVING_SIGNAL` and SIGCONT.

    Around a whole command. A signal for which the calling program has a handler of its own is left alone. In other
    threads, which may not set handlers, nothing is done.
    """
    if current_thread() is not main_thread():
        yield
        return
    ending = _SignalEnding()
    default = (signal.SIG_DFL, signal.default_int_handler)
    unhandled = [
        n for n in (signal.SIGINT, *ENDING_SIGNALS, SAVING_SIGNAL, signal.SIGCONT) if signal.getsignal(n) in default
    ]
    with (
        _install_handlers(
            [number for number in unhandled if number not in {SAVING_SIGNAL, signal.SIGCONT}], ending.on_signal_
        ),
        _install_handlers([number for number in unhandled if number in {SAVING_SIGNAL, signal.SIGCONT}], _ignore),
    ):
        _active_endings.append(ending)
        try:
            yield
        finally:
            _active_endings.remove(ending)
            ending.close_()
    # A signal whose exception was lost, in a finaliser or a callback, is raised here.
    ending.raise_missed()


class _SignalEnding:
    """A request that a command ends, kept until it does."""

    def __init__(self) -> None:
        """Keep the calling thread, the main thread, to which the signal is sent again."""
        self._number, self._is_granted, self._closed = 0, False, False
        # Held until the ending is over: the thread that repeats the signal waits for it.
        self._end_lock = _thread.allocate_lock()
        self._end_lock.acquire()
        self._send_lock = _thread.allocate_lock()
        """Held where the signal is sent again, so that none comes when the handlers are gone."""
        self._main = get_ident()

    def on_signal_(self, number: int, _frame: FrameType | None) -> None:
        """Raise, unless the command ends already: a second signal must not interrupt the clearing away."""
        # In a signal handler of the main thread.
        if not self._number:
            self._number = number
            signal.signal(signal.SIGCONT, _ignore)  # systemd and `timeout` send it next: no screen is drawn for it
            with suppress(RuntimeError):  # no thread to be had: then it counts when it is looked at
                _thread.start_new_thread(self._repeat, ())  # not `Thread`, whose lock this thread may hold right now
        if not self._closed:
            self.raise_missed()

    def raise_missed(self) -> None:
        """Raise for a signal that was heard, where it has not ended the command yet.

        Raises:
            Terminated: a signal was heard that has not ended the command yet.
        """
        if self._number and not self._is_granted and not _is_clearing_up():
            raise Terminated(self._number, self._grant_)

    def close_(self) -> None:
        """Stop the repetition, and raise nothing while handlers are put back."""
        # In this order: from here on a handler only notes the signal,
        # the thread wakes, and the lock waits for its last one.
        self._closed = True
        self._end_lock.release()
        with self._send_lock:
            pass

    def _grant_(self) -> None:
        self._is_granted = True

    def _repeat(self) -> None:
        """Send the signal again, until the command has ended or has granted the request in another way."""
        # In a thread of its own, which ends when `close_` releases `_end_lock`.
        while not self._end_lock.acquire(timeout=REPEAT_SECONDS) and not self._is_granted:
            with self._send_lock:
                if self._end_lock.locked():
                    signal.pthread_kill(self._main, self._number)


_active_endings: list[_SignalEnding] = []
"""Endings of the main thread, the innermost last: signals come to that thread alone."""


def _is_clearing_up() -> bool:
    """Whether the interrupted code clears up after a signal has ended its surroundings, as in a `finally`."""
    # `sys.exception` is the exception that this thread handles: a `finally` that a signal caused has it in its chain.
    fault = sys.exception()
    while fault is not None:
        if isinstance(fault, Terminated):
            return True
        fault = fault.__context__
    return False


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Do nothing, in a signal handler; unlike SIG_IGN, programs that are started do not inherit it."""


@contextmanager
def _install_handlers(numbers: Iterable[int], handler: Handler) -> Iterator[None]:
    """Set one handler for the signals, and put those before back at the end; in the main thread only."""
    handlers_before: dict[int, object] = {}
    try:
        for number in numbers:
            handlers_before[number] = signal.getsignal(number)
            signal.signal(number, handler)
        yield
    finally:  # also where one of them could not be set
        for number, handler_before in handlers_before.items():
            signal.signal(number, cast("Any", handler_before))
