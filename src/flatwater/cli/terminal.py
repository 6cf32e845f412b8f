"""The console of all commands: tables fit 100 columns, in a terminal and in a log file."""

import sys

from rich.console import Console

from flatwater.metrics.lasting import lasting

WIDTH = 100


def lasting_terminal(*, errors: bool = False) -> Console:
    """The console of what must go on when nobody reads it any more: of training, and of what is said at the end.

    Args:
        errors: print to stderr.
    """
    return _of_width(Console(file=lasting(sys.stderr if errors else sys.stdout), highlight=False))


def terminal() -> Console:
    """A console of at most 100 columns; of exactly 100 where the output is no terminal."""
    return _of_width(Console(highlight=False))


def _of_width(console: Console) -> Console:
    console.width = min(console.width, WIDTH) if console.is_terminal else WIDTH
    return console
