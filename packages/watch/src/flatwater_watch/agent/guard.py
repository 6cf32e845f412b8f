"""The edge between the watch and somebody else's program: what goes wrong in the watch must not go wrong there.

All faces share it: the runner, `with flatwater_watch.watch()`, the callbacks, the pytest plugin. A fault ends the part
of the watch that it is in, and is told once, in the summary.
"""

from _thread import get_ident
from collections.abc import Callable, Collection
from types import CodeType, TracebackType
from typing import TypeVar

from flatwater_watch.meters.signals import is_program_fault

R = TypeVar("R")


class Guard:
    """Runs one part of what the watch does, until a fault."""

    def __init__(self, told: Callable[[str], object] | None = None, program: Collection[CodeType] = ()) -> None:
        """Nothing has gone wrong yet.

        Args:
            told: gets the sentence about the fault at once, for a process that may end before it is asked.
            program: code that the watch calls for the program: what is raised in it is the program's own.
        """
        self.over = False
        """Set at the end, and after a fault."""
        self.thread: int | None = None
        """Where the watch is at work."""
        self.faults: list[str] = []
        """Sentences about what went wrong: one, or a second where the end of the watch failed as well."""
        self.undo: Callable[[], object] | None = None
        """What takes back, after a fault, what the watch has changed in the program: its tracer, its callbacks."""
        self._tell = told
        self._program = frozenset(program)

    def run(self, work: Callable[..., object], *given: object) -> None:
        """Work, unless it is over."""
        if not self.over:
            self.run_or_default(None, work, *given)

    def run_or_default(self, otherwise: R, work: Callable[..., R], *given: object) -> R:
        """What the work returns, also after the end; `otherwise` where it fails."""
        outer, self.thread = self.thread, get_ident()
        try:
            return work(*given)
        except BaseException as fault:  # whatever it is: the edge between the watch and somebody else's program
            if self._belongs_to_program(fault):
                raise
            self._end(fault)
            return otherwise
        finally:
            self.thread = outer

    def _belongs_to_program(self, fault: BaseException) -> bool:
        try:
            return is_program_fault(fault, self._program)
        except Exception:  # noqa: BLE001  (the same edge: the program may have replaced what is asked here)
            return False

    def _end(self, fault: BaseException) -> None:
        self.over = True
        try:
            self._note(fault)
        except Exception:  # noqa: BLE001  (the same edge: then it is not told)
            self._tell = None
        undo, self.undo = self.undo, None
        if undo is not None:
            self.run_or_default(None, undo)

    def _note(self, fault: BaseException) -> None:
        sentence = f"the watch failed: {type(fault).__name__}: {fault} ({_innermost_line(fault.__traceback__)})"
        if sentence in self.faults:
            return
        self.faults.append(sentence)
        if self._tell is not None:
            self._tell(sentence)


def _innermost_line(trace: TracebackType | None) -> str:
    """The innermost line, for the report of a fault: `census.py:120`."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "no line"
    return f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
