"""The live screen of a run, whose folder it reads once a second."""

import time
from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.segment import Segment
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.containers import Horizontal, VerticalScroll
from textual.filter import LineFilter
from textual.widgets import Static

from flatwater.tui import panels
from flatwater.tui.followed_run import FollowedRun, read_new_lines_
from flatwater_watch.errors import RunError
from flatwater_watch.sanitize import escape_controls

REFRESH_SECONDS = 1.0
"""Seconds between two reads of the files; each reads new lines alone."""
KEYS = "q quit   tab next part   ↑ ↓ scroll"


class _Printable(LineFilter):
    """A filter that keeps control characters in a run's files from the terminal."""

    def apply(self, segments: list[Segment], _background: Color) -> list[Segment]:
        """Return each segment of a line with its control characters made visible."""
        # Segments with `control` are textual's own orders to the terminal.
        return [
            segment if segment.control else segment._replace(text=escape_controls(segment.text)) for segment in segments
        ]


FULL_HEIGHT = 24
"""Rows from which a screen has space for every part."""


class Top(App[RunError]):
    """Shows one run until `q` is pressed."""

    CSS = """
    Screen { background: #0b1120; color: #e2e8f0; overflow: hidden; }
    #head { height: 2; padding: 0 1; }
    .part { border-top: solid #475569; border-title-color: #f1f5f9; border-title-style: bold; padding: 0 1; }
    .part:focus { border-top: heavy #60a5fa; border-title-color: #93c5fd; }
    VerticalScroll { scrollbar-size-vertical: 1; scrollbar-gutter: stable; }
    VerticalScroll { scrollbar-color: #64748b; scrollbar-background: #0b1120; }
    #memory { height: 4; }
    VerticalScroll Static { width: 100%; }
    #middle { height: auto; max-height: 34%; }
    #middle.short { max-height: 3; }
    #owners { width: 11fr; height: auto; max-height: 100%; }
    #phases { width: 9fr; height: auto; max-height: 100%; margin-left: 1; }
    #course { height: auto; }
    #findings { height: 1fr; }
    #keys { height: 1; padding: 0 1; background: #131c2e; color: #94a3b8; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("q", "quit", "quit")]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, followed_run: FollowedRun, *, clock: Callable[[], float] = time.time) -> None:
        """Prepare the screen of a run.

        Args:
            followed_run: a run from `follow_run`, which the screen updates from now on.
            clock: function that returns the seconds since 1970.
        """
        super().__init__()
        self.title = followed_run.folder.path.resolve().name
        self._followed, self._clock = followed_run, clock

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return the filters that each line passes before it reaches the terminal."""
        return [*super().get_line_filters(), _Printable()]

    def compose(self) -> ComposeResult:
        """Yield the widgets of the screen, from the top."""
        yield Static(id="head")
        yield Static(id="memory", classes="part")
        with Horizontal(id="middle"):
            for name in ("owners", "phases"):
                with VerticalScroll(id=name, classes="part") as scroll:
                    scroll.border_title = f" {name} "
                    yield Static()
        yield Static(id="course", classes="part")
        with VerticalScroll(id="findings", classes="part"):
            yield Static()
        yield Static(KEYS, id="keys")

    def on_mount(self) -> None:
        """Show the run's present state, and start to read its files once a second."""
        self.query_one("#owners").focus()
        self.set_interval(REFRESH_SECONDS, self.refresh_files)
        self.call_after_refresh(self.show)  # after the first layout, before which no part has a width

    def on_resize(self) -> None:
        """Draw all parts in the new width; on a short screen, findings and alarms get more rows than owners."""
        self.query_one("#middle").set_class(self._is_short, "short")
        self.call_after_refresh(self.show)

    def refresh_files(self) -> None:
        """Read new records, and show them; a damaged file ends the app, with the error as its result."""
        try:
            read_new_lines_(self._followed)
        except RunError as error:
            self.exit(error)
            return
        self.show()

    def show(self) -> None:
        """Fill every part of the screen from the run's records, in the width that the part has."""
        run, width = self._followed, self._width  # `width` returns the columns of a part by its selector
        self.query_one("#head", Static).update(panels.header_panel(run, width("#head"), self._clock()))
        memory = self.query_one("#memory", Static)
        memory.border_title = f" {panels.memory_title(run.line)} "
        if run.line is None:
            memory.update(panels.missing_ledger_text(run))
        else:
            memory.update(panels.memory_panel(run.line, width("#memory")))
        self.query_one("#owners Static", Static).update(panels.owners_table(run, width("#owners Static")))
        self.query_one("#phases").border_title = f" {panels.phases_title(run)} "
        self.query_one("#phases Static", Static).update(panels.phase_table(run.line, width("#phases Static")))
        course = self.query_one("#course", Static)
        course.border_title = f" {panels.course_title(run)} "
        course.update(panels.curves_panel(run, width("#course")))
        self.query_one("#findings").border_title = f" {panels.findings_title(run)} "
        row_width = width("#findings Static") if self._is_short else None
        self.query_one("#findings Static", Static).update(panels.findings_panel(run, row_width))

    @property
    def _is_short(self) -> bool:
        return self.size.height < FULL_HEIGHT

    def _width(self, part: str) -> int:
        return max(1, self.query_one(part).content_size.width)
