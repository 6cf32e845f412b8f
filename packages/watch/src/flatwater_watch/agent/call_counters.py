"""Methods that count their calls as boundaries, at the price of one more call: most calls only decrement an integer.

A boundary is a place that a program passes again and again; its kind is a word such as `step` or `update`. A boundary
is reported if `_listener.count` is called for it. A counter can leave a number of boundaries unreported: it counts
down to 0, and somebody who wants to know how many have passed queries it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

Count = Callable[[str], None]
Method = Callable[[Any, Any], Any]


def _ignore_call(_kind: str) -> None:
    pass


class _CallListener:
    """The holder of the function that boundaries are reported to; in a process without a watch it does nothing."""

    count: Count = staticmethod(_ignore_call)

    def __reduce__(self) -> str:
        # Wrapped methods may be pickled into other processes. By its name they find the listener of that process.
        return "_listener"


_listener = _CallListener()


def set_listener(count: Count | None) -> None:
    """Set the function that call counters report boundaries to; None drops their reports."""
    _listener.count = _ignore_call if count is None else count


class CallCounter(NamedTuple):
    """The functions that count boundaries of one kind; closures over two integers, as attributes would cost more."""

    count_call: Callable[[], None]
    wrap: Callable[[Method], Method]
    """Return a method that counts a boundary, and then calls the given method, which takes one argument."""
    skip_next_: Callable[[int], int]
    """Leave the next boundaries, of the given number, unreported; return how many were since the last query."""
    take_skipped_: Callable[[], int]
    """Return the number of boundaries that were left unreported since the last query."""


def make_call_counter(kind: str) -> CallCounter:
    """Return a call counter of a kind of boundary, such as `step`, which reports every boundary at first.

    Its four functions share two integers: how many boundaries to leave unreported, and that number at the last query.
    """
    # In any thread, without a lock: CPython switches threads at a call or a backward jump only, and none comes between
    # two lines of these functions.
    remaining = 0  # how many of the coming boundaries are still left unreported
    remaining_at_query = 0  # `remaining` at the last query: the difference to `remaining` came since then, unreported

    def count_call() -> None:
        """Count a boundary, and report it unless it is one of those left unreported."""
        nonlocal remaining
        if remaining > 0:
            remaining -= 1
        else:
            _listener.count(kind)

    def wrap(method: Method) -> Method:
        """Return a method that counts each call as a boundary before it calls the given one."""

        def count_and_call(self: Any, argument: Any) -> Any:
            """Count a boundary, report it unless it is one of those left unreported, and call the given method."""
            nonlocal remaining
            if remaining > 0:  # the lines of `count_call`, whose call would take time at every step
                remaining -= 1
            else:
                _listener.count(kind)
            return method(self, argument)

        return count_and_call

    def skip_next(boundaries: int) -> int:
        """Leave the next `boundaries` boundaries unreported; return how many were since the last query."""
        nonlocal remaining, remaining_at_query
        # One statement, in which no other thread can count: see above.
        skipped_calls, remaining, remaining_at_query = remaining_at_query - remaining, boundaries, boundaries
        return skipped_calls

    def take_skipped_count() -> int:
        """Return the number of boundaries that were left unreported since the last query."""
        nonlocal remaining_at_query
        skipped_calls, remaining_at_query = remaining_at_query - remaining, remaining
        return skipped_calls

    return CallCounter(count_call, wrap, skip_next, take_skipped_count)
