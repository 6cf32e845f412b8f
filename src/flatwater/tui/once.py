"""The screen printed once, as plain text: for logs, and where the output is no terminal."""

from rich.console import Console, RenderableType
from rich.text import Text

from flatwater.tui import panels
from flatwater.tui.follow import Followed

MOST_OWNERS = 12
"""Owners with a line of their own: a print cannot be scrolled."""


def print_once(followed: Followed, console: Console, now: float) -> None:
    """Print every part, one below the other.

    Args:
        followed: the run.
        console: where it is printed; its width is filled.
        now: seconds since 1970.
    """
    width = console.width
    line = followed.line
    coloured = console.color_system is not None
    held = panels.without_ledger(followed) if line is None else panels.memory(line, width, coloured=coloured)
    parts: tuple[tuple[str, RenderableType], ...] = (
        (panels.memory_title(line), held),
        ("owners", panels.owners(followed, width, MOST_OWNERS)),
        (f"phases, last {followed.recipe.layout.round}", panels.phases(line, width)),
        (panels.course_title(followed), panels.course(followed, width)),
        (panels.findings_title(followed), panels.findings(followed)),
    )
    console.print(panels.head(followed, width, now))
    for title, content in parts:
        console.print()
        console.print(Text(title, style="bold"))
        console.print(content)
