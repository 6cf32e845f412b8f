"""The edge between the watch and somebody else's program: a fault of the watch must not become a fault of the program.

A fault is an exception that the watch's own code raises. It ends the part of the watch that it is in, and is reported
once, in the summary. All faces share the guard: the runner, `with flatwater_watch.watch()`, callbacks, the pytest
plugin.
"""

from _thread import get_ident
from collections.abc import Callable, Collection
from types import CodeType, TracebackType
from typing import TypeVar

from flatwater_watch.meters.program_faults import is_program_fault

R = TypeVar("R")


class Guard:
    """A guard that runs the calls of one part of the watch, until one of them fails."""

    def __init__(self, report_fault: Callable[[str], object] | None = None, program: Collection[CodeType] = ()) -> None:
        """Begin without a fault.

        Args:
            report_fault: callback that gets the sentence about a fault at once: the process may end before the summary.
            program: code objects of the program that the watch calls: an exception from them is raised again, and is
                no fault of the watch.
        """
        self.has_ended = False
        """Whether this part of the watch is over: it has come to its end, or has failed."""
        self.thread: int | None = None
        """The thread in which the watch is at work; a fork made by another thread is the program's."""
        self.faults: list[str] = []
        """Sentences about faults: one, or two if the end of the watch failed as well."""
        self.undo: Callable[[], object] | None = None
        """Function, called after a fault, that takes the watch's tracer and callbacks out of the program."""
        self._report_fault = report_fault
        self._program_code = frozenset(program)

    def run(self, work: Callable[..., object], *arguments: object) -> None:
        """Call `work`, unless this part of the watch is over."""
        if not self.has_ended:
            self.run_or_default(None, work, *arguments)

    def run_or_default(self, default: R, work: Callable[..., R], *arguments: object) -> R:
        """Call `work`, even if this part of the watch is over, and return its result; `default` if the watch fails.

        An exception of the program's, such as one of its signal handlers, is raised again.
        """
        outer_thread, self.thread = self.thread, get_ident()  # calls may be nested
        try:
            return work(*arguments)
        except BaseException as fault:  # any exception: the program must never see a fault of the watch
            if self._belongs_to_program(fault):
                raise
            self._end_after_fault(fault)
            return default
        finally:
            self.thread = outer_thread

    def _belongs_to_program(self, fault: BaseException) -> bool:
        """Return whether an exception was raised by the program's code, or for the program."""
        try:
            return is_program_fault(fault, self._program_code)
        except Exception:  # noqa: BLE001  (the program may have replaced a function that is asked here)
            return False

    def _end_after_fault(self, fault: BaseException) -> None:
        """End this part of the watch after its fault: report the fault, then take the part out of the program."""
        # First of all: the report below may fail as well, and `run` must do nothing from here on.
        self.has_ended = True
        try:
            self._report_once(fault)
        except Exception:  # noqa: BLE001  (a fault that cannot be reported is dropped)
            self._report_fault = None
        undo, self.undo = self.undo, None  # taken out before it runs: a fault in it must not call it again
        if undo is not None:
            self.run_or_default(None, undo)

    def _report_once(self, fault: BaseException) -> None:
        """Report the sentence on a fault, unless the same sentence was reported before."""
        sentence = f"the watch failed: {type(fault).__name__}: {fault} ({_innermost_line(fault.__traceback__)})"
        if sentence in self.faults:
            return
        self.faults.append(sentence)
        if self._report_fault is not None:
            self._report_fault(sentence)


def _innermost_line(trace: TracebackType | None) -> str:
    """Return the innermost file and line of a traceback, such as `census.py:120`."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "no line"
    return f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
