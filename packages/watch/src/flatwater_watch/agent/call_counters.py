"""Methods that count their calls as boundaries at the price of one more call: most only count down what was granted."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Count = Callable[[str], None]
Method = Callable[[Any, Any], Any]


def _ignore_call(_kind: str) -> None:
    pass


class _CallListener:
    """Who is told of boundaries. What is wrapped may be pickled into other processes, where it is nobody."""

    count: Count = staticmethod(_ignore_call)

    def __reduce__(self) -> str:
        return "_listener"


_listener = _CallListener()


def set_listener(count: Count | None) -> None:
    """Tell `count` of each boundary that was not granted; nobody any more if it is None."""
    _listener.count = _ignore_call if count is None else count


@dataclass(frozen=True)
class CallCounter:
    """Where boundaries of one kind are passed."""

    count_call: Callable[[], None]
    """Pass one."""
    wrap: Callable[[Method], Method]
    """A method of `self` and one argument, passing a boundary first."""
    skip_next_: Callable[[int], int]
    """Let so many, and no more, pass without telling of them. Returns how many did since it was last asked."""
    take_skipped_: Callable[[], int]
    """How many passed without telling of them since it was last asked."""


def make_call_counter(kind: str) -> CallCounter:
    """A gate that has been granted nothing yet.

    CPython gives its lock to another thread at a call or a jump back: none comes between two lines of these functions.
    """
    left = counted = 0

    def pass_() -> None:
        nonlocal left
        if left > 0:
            left -= 1
        else:
            _listener.count(kind)

    def wrap(method: Method) -> Method:
        def count_and_call(self: Any, given: Any) -> Any:  # noqa: ANN401
            nonlocal left
            if left > 0:  # as in `pass_`, which would be one call more
                left -= 1
            else:
                _listener.count(kind)
            return method(self, given)

        return count_and_call

    def grant_(boundaries: int) -> int:
        nonlocal left, counted
        passed, left, counted = counted - left, boundaries, boundaries
        return passed

    def take_passed_() -> int:
        nonlocal counted
        passed, counted = counted - left, left
        return passed

    return CallCounter(pass_, wrap, grant_, take_passed_)
