"""A meter whose readings take a bounded share of the time, as the memory of many processes does."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from flatwater_watch.meters.system_calls import monotonic

T = TypeVar("T")


@dataclass(eq=False, repr=False)
class CostlyMeter(Generic[T]):
    """A meter that is read again only when a reading is a small share of the time since the last one."""

    query: Callable[[], T]
    maximum_share: float
    """Maximum share of the time that readings may take."""
    next_time: float = 0.0
    """Monotonic time from which on the next reading may be taken."""
    newest: T | None = None
    """The newest reading; None before the first."""

    def read_if_due_(self) -> T:
        """Return the newest reading, which is taken now if the time since the last reading allows it."""
        began = monotonic()
        if self.newest is None or began >= self.next_time:
            self.newest = self.query()
            end = monotonic()
            self.next_time = end + (end - began) / self.maximum_share  # then the reading was this share of the time
        return self.newest
