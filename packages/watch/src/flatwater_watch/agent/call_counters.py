"""Methods that count their calls as boundaries, at the price of one more call: most calls only count a number down."""

from collections.abc import Callable
from typing import Any, NamedTuple

Count = Callable[[str], None]
Method = Callable[[Any, Any], Any]


def _ignore_call(_kind: str) -> None:
    pass


class _CallListener:
    """The receiver of boundaries. Wrapped methods may be pickled into other processes, which have no receiver."""

    count: Count = staticmethod(_ignore_call)

    def __reduce__(self) -> str:
        # Pickled by name: the other process finds its own listener, and no state of this listener travels.
        return "_listener"


_listener = _CallListener()


def set_listener(count: Count | None) -> None:
    """Have `count` called at each boundary that may not pass unreported; None ends that."""
    _listener.count = _ignore_call if count is None else count


class CallCounter(NamedTuple):
    """The functions that count boundaries of one kind; closures over two integers, as attributes would cost more."""

    count_call: Callable[[], None]
    """Pass one boundary."""
    wrap: Callable[[Method], Method]
    """Turn a method of one argument into a method that passes a boundary first."""
    skip_next_: Callable[[int], int]
    """Let exactly the given number of boundaries pass unreported; return the number that have since the last query."""
    take_skipped_: Callable[[], int]
    """Return the number of boundaries that have passed unreported since the last query."""


def make_call_counter(kind: str) -> CallCounter:
    """A call counter that reports every boundary."""
    # In any thread, without a lock: CPython switches threads at a call or a backward jump only, and none comes between
    # two lines of these functions.
    # Boundaries that may still pass unreported, now and when the count was last taken.
    remaining = remaining_at_query = 0

    def count_call() -> None:
        """Pass a boundary, and report it unless it may pass unreported."""
        nonlocal remaining
        if remaining > 0:
            remaining -= 1
        else:
            _listener.count(kind)

    def wrap(method: Method) -> Method:
        """The method of one argument, with a boundary passed before each call."""

        def count_and_call(self: Any, argument: Any) -> Any:
            """Count this call as a boundary, then run the method."""
            nonlocal remaining
            if remaining > 0:  # as in `count_call`, which would be one call more
                remaining -= 1
            else:
                _listener.count(kind)
            return method(self, argument)

        return count_and_call

    def skip_next(boundaries: int) -> int:
        """Let `boundaries` boundaries pass unreported; return the number that have since the last query."""
        nonlocal remaining, remaining_at_query
        passed, remaining, remaining_at_query = remaining_at_query - remaining, boundaries, boundaries
        return passed

    def take_skipped() -> int:
        """Return the number of boundaries that have passed unreported since the last query."""
        nonlocal remaining_at_query
        passed, remaining_at_query = remaining_at_query - remaining, remaining
        return passed

    return CallCounter(count_call, wrap, skip_next, take_skipped)
