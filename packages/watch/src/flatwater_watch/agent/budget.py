"""The CPU seconds that the watch of a process may take, from which all of its work is paid.

The watch earns a share of the time that passes, and gets some seconds on credit at the beginning. Work that can be cut,
such as a census, is cut into slices that fit; other work waits until its price is earned. A trace of allocations, whose
price nobody knows before, ends when the budget does, and begins again when it is affordable for longer.
"""

from flatwater_watch.meters.system_calls import monotonic, process_seconds
from flatwater_watch.thresholds import MEASURING

FIRST_SECONDS = 0.01
"""CPU seconds that may be spent at once: a census of a small program takes 1 to 10 ms."""
CREDIT_SECONDS, CREDIT_SHARE = 1.5, 1 / 8
"""CPU seconds on credit, so that the first answer does not wait, and the share of the program's own CPU time as which
they are lent: a program of a second does not pay for the whole census of a large heap. They are not lent again."""
TIME_SHARE = MEASURING.maximum_time_share
"""Share of the time passed that is earned: a program that rests leaves its core to the watch, and one that works does
not feel a twenty-fifth."""
TRACED_COST_SHARE = 0.5
"""Part of the CPU time of a traced program that counts as the watch's: a traced program is about half as fast."""


class Budget:
    """The CPU seconds that are earned with the time or lent, and those that are spent."""

    def __init__(self, began: float | None = None) -> None:
        """Begin with `FIRST_SECONDS`; more are earned and lent from the monotonic time `began` on, by default now."""
        self._began, self.cpu_at_start = monotonic() if began is None else began, process_seconds()
        self.spent_seconds = 0.0
        self.is_credit_open = False
        """Whether the credit may be taken whole, as memory rises: the answer must not wait."""
        self.cpu_at_last_payment = 0.0
        """CPU seconds of the process when a trace was last paid or a reading ended, and those of the work since."""

    def left_seconds(self, now: float) -> float:
        """Return the CPU seconds that may be spent now; negative while more is spent than earned and lent."""
        return FIRST_SECONDS + self._lent_seconds() + TIME_SHARE * (now - self._began) - self.spent_seconds

    def wait_seconds(self, now: float, price: float = 0.0) -> float:
        """Return the seconds until `left_seconds` reaches a price, if the program goes on as before; at least 0.

        A negative price is a debt: it is reached earlier.
        """
        lent_seconds, passed_seconds = self._lent_seconds(), now - self._began
        is_lending = lent_seconds < CREDIT_SECONDS and passed_seconds > 0
        lent_share = lent_seconds / passed_seconds if is_lending else 0.0  # CPU seconds lent per second
        return max(0.0, (price - self.left_seconds(now)) / (TIME_SHARE + lent_share))

    def program_seconds(self) -> float:
        """Return the CPU seconds of the program so far, without those of the watch."""
        return process_seconds() - self.cpu_at_start - self.spent_seconds

    def _lent_seconds(self) -> float:
        """Return the CPU seconds on credit that are lent so far: `CREDIT_SHARE` of the program's own CPU time.

        If the credit is open, or the program has run for long, they are all `CREDIT_SECONDS`.
        """
        if self.is_credit_open:
            return CREDIT_SECONDS
        return min(CREDIT_SECONDS, CREDIT_SHARE * max(0.0, self.program_seconds()))

    def pay_for_work_(self, cpu_seconds: float) -> None:
        """Pay for work of the watch between two readings, for which a trace pauses."""
        self.spent_seconds += cpu_seconds
        self.cpu_at_last_payment += cpu_seconds  # so that `trace_seconds` does not count them again

    def pay_for_trace_(self) -> None:
        """Pay for a trace of allocations since the last payment or reading."""
        self.spent_seconds += self.trace_seconds()
        self.cpu_at_last_payment = process_seconds()

    def trace_seconds(self) -> float:
        """Return the CPU seconds that a trace has cost since the last payment or reading."""
        return TRACED_COST_SHARE * (process_seconds() - self.cpu_at_last_payment)
