"""The screen printed once, as plain text or as JSON: for logs and programs, and when the output is not a terminal."""

from typing import Any, cast

from rich.console import Console, RenderableType
from rich.text import Text

from flatwater.tui import panels
from flatwater.tui.follow import FollowedRun, seconds_left
from flatwater_watch.files.content import plain_json_value

MAXIMUM_OWNERS = 12
"""Most owners with a line of their own: a print cannot be scrolled."""


def print_once(followed: FollowedRun, console: Console, now: float) -> None:
    """Print the parts of the screen one below the other; `now` is in seconds since 1970."""
    width = console.width
    line = followed.line
    has_colours = console.color_system is not None and not console.no_color
    memory = panels.missing_ledger_text(followed)
    if line is not None:
        memory = panels.memory_panel(line, width, coloured=has_colours)
    parts: tuple[tuple[str, RenderableType], ...] = (
        (panels.memory_title(line), memory),
        ("owners", panels.owners_table(followed, width, MAXIMUM_OWNERS)),
        (panels.phases_title(followed), panels.phase_table(line, width)),
        (panels.course_title(followed), panels.curves_panel(followed, width)),
        (panels.findings_title(followed), panels.findings_panel(followed)),
    )
    console.print(panels.header_panel(followed, width, now))
    for title, content in parts:
        console.print()
        console.print(Text(title, style="bold"))
        console.print(content)


def as_json(followed: FollowedRun, now: float) -> dict[str, Any]:
    """Return the state of the run as an object for JSON, with the names of `train --json`; `now` as in `print_once`."""
    line, path = followed.line, followed.folder.path
    state = {
        "run": str(path.absolute()),
        "name": path.absolute().name,
        "trainer": followed.recipe.name,
        "state": followed.state,
        "done": followed.done,
        "rounds": followed.rounds,
        "left_seconds": seconds_left(followed, now) if followed.state == "training" else None,
        "metrics": {name: value for name, value in followed.metrics.items() if name != "round"},
        "resident": None if line is None else line.resident,
        "budget": None if line is None else line.budget,
        "alarms": followed.alarms,
        "alarm": followed.alarm or None,
        "findings": [{"round": round_} | finding.to_json() for round_, finding in followed.findings.values()],
    }
    return cast("dict[str, Any]", plain_json_value(state))
