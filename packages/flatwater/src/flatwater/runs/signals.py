"""Signals as requests: training stops after the current step, and any other command ends at once, but cleanly.

Training stops with a checkpoint (`stop_on_signals`). Another command removes its temporary files and releases its
locks, as after Ctrl-C (`end_on_signals`). A signal that was ignored when the process was started stays ignored, so
`nohup` works. SIGINT is always handled, as shells ignore it for every job in the background.

A command is ended by an exception that the signal's handler raises. Where Python ignores exceptions (a finaliser, a
callback of a weak reference or of the garbage collector, a hook at a fork, a library that catches everything) the
exception is lost. So the signal's number is kept as well: the exception is raised again until it has ended the command,
and training does not begin over it.
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

if TYPE_CHECKING:  # not imported at run time: every command handles signals, and few of them print by rich
    from rich.console import Console

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""Signals that end a run, in addition to SIGINT: of a shutdown, a closed terminal or lost connection, and of SLURM."""
SAVING_SIGNAL = signal.SIGUSR2
"""Signal that asks a run to save a checkpoint and to go on."""

REPEAT_SECONDS = 0.2
"""Seconds after which a signal that has not ended the command is sent again."""
SIGNAL_EXIT_BASE = 128
"""Added to a signal's number, it gives the exit code of a process that the signal ended, as in a shell."""

Handler = Callable[[int, FrameType | None], None]


@dataclass
class StopRequest:
    """A request to stop or to save, set by signal handlers and read after each step."""

    signal: int = 0
    """Number of the first signal that asked the run to stop; 0 before."""
    stop_requested: bool = False
    """Whether the user's program asked the run to stop."""
    save: bool = False
    """Whether a signal asked for a checkpoint since the last call of `asks_to_save_`."""

    def asks_to_save_(self) -> bool:
        """Return whether a signal asked for a checkpoint since the last call, and reset that."""
        was_asked, self.save = self.save, False
        return was_asked

    def ask_(self) -> None:
        """Ask the run to stop after its current step, as Ctrl-C does."""
        self.stop_requested = True

    @property
    def is_wanted(self) -> bool:
        """Whether a signal or the user's program asked the run to stop."""
        return self.stop_requested or self.signal != 0

    @property
    def exit_code(self) -> int:
        """Exit code of a run that was saved and stopped: 0 after Ctrl-C, the user's own wish; else 128 + signal."""
        return 0 if self.signal in (0, signal.SIGINT) else SIGNAL_EXIT_BASE + self.signal


STOP_CODES = tuple(SIGNAL_EXIT_BASE + number for number in ENDING_SIGNALS)
"""Exit codes of a run that a signal stopped with a checkpoint."""


@contextmanager
def stop_on_signals(console: "Console") -> Iterator[StopRequest]:
    """Yield a `StopRequest` that SIGINT and `ENDING_SIGNALS` set to stop, and `SAVING_SIGNAL` to save.

    A second Ctrl-C raises at once. Outside of the main thread no handler is set, and the request is never set.

    Raises:
        Terminated: `end_on_signals` got a signal before, and its exception was lost.
    """
    stop = StopRequest()
    if current_thread() is not main_thread():  # only the main thread may set signal handlers
        yield stop
        return

    def end(number: int, _frame: FrameType | None) -> None:
        """Note the first signal and print a line.

        Raises:
            Terminated: the signal is a second Ctrl-C, and no `finally` is at work.
        """
        # In a signal handler, between two bytecodes of the main thread.
        if stop.signal and number == signal.SIGINT and not _is_cleaning_up():
            raise Terminated(number)  # a second Ctrl-C: the user does not want to wait for the step
        if not stop.signal:
            stop.signal = number  # before the print, which could fail
            line = f"{signal.Signals(number).name}: finishing this step, then saving a checkpoint …"
            console.print(line, style="yellow")

    def save(_signal_number: int, _frame: FrameType | None) -> None:
        stop.save = True  # in a signal handler: the loop saves, after its step

    stop_signals = (
        signal.SIGINT,
        *(number for number in ENDING_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN),
    )
    with _install_handlers(stop_signals, end), _install_handlers((SAVING_SIGNAL,), save):
        # A signal may have come while the run was built, and its exception may have been lost: raise it now.
        for ending in _open_endings:
            ending.raise_pending()
        # A sweep starts its trials with the signal blocked, so that it does not kill them before this handler is set.
        previous_mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, {SAVING_SIGNAL})
        try:
            yield stop
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


@contextmanager
def end_on_signals() -> Iterator[None]:
    """Raise `Terminated` on SIGINT and `ENDING_SIGNALS` in the `with` block; ignore `SAVING_SIGNAL` and SIGCONT.

    A signal for which the calling program has its own handler is left alone. Outside of the main thread, where no
    handler may be set, nothing is done.
    """
    if current_thread() is not main_thread():
        yield
        return
    ending = _CommandEnding()
    default_handlers = (signal.SIG_DFL, signal.default_int_handler)
    ending_signals = [n for n in (signal.SIGINT, *ENDING_SIGNALS) if signal.getsignal(n) in default_handlers]
    ignored_signals = [n for n in (SAVING_SIGNAL, signal.SIGCONT) if signal.getsignal(n) in default_handlers]
    with _install_handlers(ending_signals, ending.on_signal_), _install_handlers(ignored_signals, _ignore):
        _open_endings.append(ending)
        try:
            yield
        finally:
            _open_endings.remove(ending)
            ending.close_()
    # If the exception was lost in a finaliser or a callback, it is raised here at the latest.
    ending.raise_pending()


class _CommandEnding:
    """The signal that ends a command: it is kept, and sent again until the command ends."""

    def __init__(self) -> None:
        """Keep the id of the calling thread, the main thread, to which the signal is sent again, and make the locks."""
        self._signal_number = 0  # no signal came
        self._is_accepted, self._is_closed = False, False
        # Held until `close_`: the thread that repeats the signal waits for this lock, and ends when it gets it.
        self._end_lock = _thread.allocate_lock()
        self._end_lock.acquire()
        self._send_lock = _thread.allocate_lock()
        """Held while the signal is sent again, so that `close_` can wait for it, before the handlers are removed."""
        self._main_thread_id = get_ident()

    def on_signal_(self, number: int, _frame: FrameType | None) -> None:
        """Raise `Terminated`, unless the command ends already: a second signal must not interrupt its cleaning up."""
        # In a signal handler of the main thread.
        if not self._signal_number:
            self._signal_number = number
            # systemd and `timeout` send SIGCONT next: a live screen's handler must not draw for it.
            signal.signal(signal.SIGCONT, _ignore)
            # Not `threading.Thread`, whose lock the interrupted code may hold. If no thread can start, `raise_pending`
            # still raises at the command's end.
            with suppress(RuntimeError):
                _thread.start_new_thread(self._repeat_signal, ())
        if not self._is_closed:
            self.raise_pending()

    def raise_pending(self) -> None:
        """Raise `Terminated` if a signal came that has not ended the command yet.

        Raises:
            Terminated: such a signal came, and no `finally` cleans up after it now.
        """
        if self._signal_number and not self._is_accepted and not _is_cleaning_up():
            # Whoever catches the exception and goes on calls `_accept_`, which ends the repetition.
            raise Terminated(self._signal_number, self._accept_)

    def close_(self) -> None:
        """Stop the repetition; handlers then only note a signal, until they are removed."""
        # In this order: handlers stop raising, the repeating thread wakes, and its last signal is waited for.
        self._is_closed = True
        self._end_lock.release()
        with self._send_lock:
            pass

    def _accept_(self) -> None:
        self._is_accepted = True

    def _repeat_signal(self) -> None:
        """Send the signal to the main thread again and again, until the command has ended or accepted the request."""
        # In a thread of its own, which ends when `close_` releases `_end_lock`.
        while not self._end_lock.acquire(timeout=REPEAT_SECONDS) and not self._is_accepted:
            with self._send_lock:
                if self._end_lock.locked():  # otherwise `close_` has begun: handlers are about to be removed
                    signal.pthread_kill(self._main_thread_id, self._signal_number)


_open_endings: list[_CommandEnding] = []
"""The `end_on_signals` contexts that the main thread is in, the innermost last."""


def _is_cleaning_up() -> bool:
    """Return whether the interrupted code handles a `Terminated` already, such as in a `finally`."""
    fault = sys.exception()  # the exception that this thread handles now
    while fault is not None:
        if isinstance(fault, Terminated):
            return True
        fault = fault.__context__  # the exception during whose handling this one was raised
    return False


def _ignore(_signal_number: int, _frame: FrameType | None) -> None:
    """Do nothing, as a signal handler; unlike SIG_IGN, child processes do not inherit it."""


@contextmanager
def _install_handlers(numbers: Iterable[int], handler: Handler) -> Iterator[None]:
    """Set one handler for all signals in the `with` block, and restore their previous handlers; main thread only."""
    previous_handlers: dict[int, object] = {}
    try:
        for number in numbers:
            previous_handlers[number] = signal.getsignal(number)
            signal.signal(number, handler)
        yield
    finally:  # also if one of the handlers could not be set
        for number, previous_handler in previous_handlers.items():
            signal.signal(number, cast("Any", previous_handler))
