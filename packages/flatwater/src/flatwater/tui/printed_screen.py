"""The screen printed once, as plain text or as JSON: for logs and programs, and when the output is not a terminal."""

from typing import Any, cast

from rich.console import Console, RenderableType
from rich.text import Text

from flatwater.tui import panels
from flatwater.tui.followed_run import FollowedRun, seconds_left
from flatwater_watch.files.json_values import plain_json_value

MAXIMUM_OWNERS = 12
"""Most owners with a line of their own: a print cannot be scrolled."""


def print_once(run: FollowedRun, console: Console, now: float) -> None:
    """Print the parts of the screen one below the other; `now` is in seconds since 1970."""
    width = console.width
    line = run.line
    has_colours = console.color_system is not None and not console.no_color
    if line is None:
        memory = panels.missing_ledger_text(run)
    else:
        memory = panels.memory_panel(line, width, is_coloured=has_colours)
    parts: tuple[tuple[str, RenderableType], ...] = (
        (panels.memory_title(line), memory),
        ("owners", panels.owners_table(run, width, maximum=MAXIMUM_OWNERS)),
        (panels.phases_title(run), panels.phase_table(line, width)),
        (panels.course_title(run), panels.curves_panel(run, width)),
        (panels.findings_title(run), panels.findings_panel(run)),
    )
    console.print(panels.header_panel(run, width, now))
    for title, content in parts:
        console.print()
        console.print(Text(title, style="bold"))
        console.print(content)


def as_json(run: FollowedRun, now: float) -> dict[str, Any]:
    """Return the state of the run as an object for JSON, with the names of `train --json`; `now` as in `print_once`."""
    line, path = run.line, run.folder.path
    state = {
        "run": str(path.absolute()),
        "name": path.absolute().name,
        "trainer": run.recipe.name,
        "state": run.state,
        "done": run.done,
        "rounds": run.rounds,
        "left_seconds": seconds_left(run, now) if run.state == "training" else None,
        "metrics": {name: value for name, value in run.metrics.items() if name != "round"},
        "resident": None if line is None else line.resident,
        "budget": None if line is None else line.budget,
        "alarms": run.alarms,
        "alarm": run.alarm or None,
        "findings": [{"round": round_} | finding.to_json() for round_, finding in run.findings.values()],
    }
    return cast("dict[str, Any]", plain_json_value(state))
