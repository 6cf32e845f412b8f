"""The console of all commands: tables fit 100 columns, in a terminal and in a log file."""

from rich.console import Console

WIDTH = 100


def terminal() -> Console:
    """A console of at most 100 columns; of exactly 100 where the output is no terminal."""
    console = Console(highlight=False)
    console.width = min(console.width, WIDTH) if console.is_terminal else WIDTH
    return console
