"""The exceptions a user can meet. Each message names the field, what was given, what is wanted and the remedy."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flatwater_watch.sanitize import short_repr


class Terminated(KeyboardInterrupt):
    """A signal ends the command at once, as Ctrl-C does."""

    def __init__(self, number: int, grant_: Callable[[], None] = lambda: None) -> None:
        """Keep the signal's number.

        Args:
            number: of the signal.
            grant_: to be called by who catches it and does something else that was wanted by it than to end.
        """
        super().__init__(signal.Signals(number).name)
        self.number, self.grant_ = number, grant_


@contextmanager
def until_interrupted() -> Iterator[None]:
    """Leave the block at Ctrl-C or at a signal that ends commands, and continue with the code after the block."""
    try:
        yield
    except KeyboardInterrupt as asked:
        if isinstance(asked, Terminated):
            asked.grant_()  # else it is raised again


class FlatwaterError(Exception):
    """Something the user can put right. The command line prints it without a traceback and exits with `exit_code`."""

    exit_code = 2


class ConfigError(FlatwaterError):
    """A configuration value, or a combination of values, that cannot work."""


class DataError(FlatwaterError):
    """A file, a row or a column of market data that cannot be used."""


class CheckpointError(FlatwaterError):
    """A checkpoint that cannot be loaded, or that belongs to another run."""


class RunError(FlatwaterError):
    """A run folder that cannot be used as asked."""


class TrustError(RunError):
    """A run names code that nobody has said is the user's; none of it was imported."""


class UserCodeError(RunError):
    """Code that the user brings, a class or a function by its name, failed, or cannot be called as it must be."""


class MemoryLimitError(FlatwaterError):
    """A run that does not fit into memory; told before anything large is allocated."""

    exit_code = 3


class BudgetError(RunError):
    """A process that computes for a run came to its memory budget; the run ends with what was saved before."""

    exit_code = 4


def require(holds: bool, field: str, given: object, wanted: str) -> None:
    """Raise a `ConfigError` that names the field, the value given and the one wanted, unless `holds`."""
    if not holds:
        raise ConfigError(f"{field} = {short_repr(given)}: must be {wanted}")
