"""The exceptions that a user can meet; each message names the field, the value, the expected one and the remedy."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flatwater_watch.sanitize import short_repr


class Terminated(KeyboardInterrupt):
    """A signal that ends the command at once, as Ctrl-C does."""

    def __init__(self, number: int, grant_: Callable[[], None] = lambda: None) -> None:
        """Record the signal.

        Args:
            number: number of the signal.
            grant_: function that records that the signal was obeyed. Whoever catches the exception and goes on must
                call it: else the signal is sent again, and raises once more.
        """
        super().__init__(signal.Signals(number).name)
        self.number, self.grant_ = number, grant_


@contextmanager
def until_interrupted() -> Iterator[None]:
    """Leave the block at Ctrl-C or at a signal that ends commands, and continue with the code after the block."""
    try:
        yield
    except KeyboardInterrupt as error:
        if isinstance(error, Terminated):
            error.grant_()  # notes that the signal was obeyed; otherwise it would be raised again


class FlatwaterError(Exception):
    """A mistake that the user can correct; commands print it without a traceback and exit with `exit_code`."""

    exit_code = 2


class ConfigError(FlatwaterError):
    """A configuration value, or a combination of values, that cannot work."""


class DataError(FlatwaterError):
    """A file, a row or a column of market data that cannot be used."""


class CheckpointError(FlatwaterError):
    """A checkpoint that cannot be loaded, or that belongs to another run."""


class RunError(FlatwaterError):
    """A run folder that cannot be used for the request."""


class TrustError(RunError):
    """A run names code that is not trusted; none of it was imported."""


class UserCodeError(RunError):
    """Code of the user's, a class or a function given by name, that failed or has the wrong signature."""


class MemoryLimitError(FlatwaterError):
    """A run that does not fit into memory, found out before anything large is allocated."""

    exit_code = 3


class BudgetError(RunError):
    """A process of a run that reached its memory budget; the run ends with the last checkpoint."""

    exit_code = 4


def require(holds: bool, field: str, value: object, expected: str) -> None:
    """Check a field's value.

    Args:
        holds: whether the value is as expected.
        field: name of the field, as the user writes it.
        value: value of the field, which the message shows shortened.
        expected: expected value in words, to follow "expected".

    Raises:
        ConfigError: `holds` is false; the message names the field, its value and the expected one.
    """
    if not holds:
        raise ConfigError(f"{field} = {short_repr(value)}: expected {expected}")
