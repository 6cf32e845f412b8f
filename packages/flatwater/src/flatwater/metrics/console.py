"""One row a round on the terminal, 99 characters wide or 80, and below the rows a bar for the phase at work.

If the output is not a terminal (a log file, a pipe) the rows are plain text; instead of the bar, a line says every 10
seconds how far a long round has come.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType, TracebackType
from typing import NamedTuple, Self

from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from flatwater.metrics.figures import short_duration, short_number, short_seconds
from flatwater.metrics.sinks import Metrics
from flatwater_watch.progress import ProgressTrack, Ticker, is_due, track_progress
from flatwater_watch.units import format_duration

ROWS_PER_HEADER = 20
REFRESH_SECONDS = 0.1
# A median over the last rounds: the first rounds, and a disturbed round, do not move the forecast.
ROUNDS_REMEMBERED = 8
SHOWN_CHANGE_SHARE = 0.01
"""Relative change of resident memory from which the line about memory is printed again."""
# Each bound is where rounding would need one character more than the column has.
LARGE_PERCENT = 999.95
WHOLE_DIGITS_LIMIT = 99_999.5


@dataclass(frozen=True)
class Column:
    """One column of the table: the title above it, and how its number is made short."""

    group: str
    title: str
    width: int
    """Characters, the space on the left included."""
    name: str
    """Name of the metric that it shows; a dot stands in the rows of rounds that do not have it."""
    show: Callable[[float], str] = short_number
    repeats: str = ""
    """Name of a metric that it may repeat: below a header it is left out if it does so in the first row."""

    def is_repetition(self, metrics: Metrics) -> bool:
        """Return whether the column shows the number of another one."""
        return self.name in metrics and metrics[self.name] == metrics.get(self.repeats)


def format_whole(value: float) -> str:
    """Return all digits up to 99,999, then a short number."""
    return f"{value:z.0f}" if abs(value) < WHOLE_DIGITS_LIMIT else short_number(value)  # `z`: no minus before a zero


def format_percent(value: float) -> str:
    """Return a share in whole percent, without the sign."""
    return f"{100 * value:z.0f}" if value == value else "nan"  # noqa: PLR0124  (only NaN differs from itself)


def format_small(value: float) -> str:
    """Return a number near 0 with three significant digits: `0.00312`."""
    return f"{value:.3g}"


def format_explained(value: float) -> str:
    """Return an explained variance with two decimals; all critics that are worse than a constant are alike: -1."""
    return f"{max(value, -1.0):z.2f}" if value == value else "nan"  # noqa: PLR0124  (only NaN differs from itself)


def whole_share(value: float) -> str:
    """Return a share in whole percent: `50%`."""
    return f"{format_percent(value)}%"


def format_share(value: float) -> str:
    """Return a share with one decimal: `3.4%`."""
    return f"{value:.1%}"


def signed_percent(value: float) -> str:
    """Return a return with its sign: `+12.3%`; of a thousand percent or more as a short number."""
    percents = 100 * value
    return f"{percents:+.1f}%" if abs(percents) < LARGE_PERCENT else f"{short_number(percents)}%"


def _megabytes(value: float) -> str:
    return f"{value / 1e6:.0f}"


RESIDENT_COLUMN = Column("", "MB", 6, "memory/resident", _megabytes)
WHOLE = Column("seconds", "all", 4, "seconds", short_seconds)
"""Seconds of a whole round, saving and recording included; the table itself measures them."""
BUFFER_COLUMN = Column("", "buffer", 9, "buffer/fill", whole_share)
MISSING_METRIC = "buffer/missing"
"""Metric of the transitions that a replay must still take in before learning begins."""
FIRST, LEFT = 9, 6


class RoundTime(NamedTuple):
    """Time of a round that has just ended."""

    number: int
    seconds: float
    left_seconds: float
    """Seconds to the end of the run."""


@dataclass(frozen=True)
class TableLayout:
    """Form of the table for a kind of run."""

    round: str
    """Name of a round: `generation`."""
    short: str
    """Name of a round as a title, in at most 8 characters."""
    columns: tuple[Column, ...]
    """Columns of at most 78 characters together, for a row of 99."""
    dispensable: frozenset[str]
    """Titles of the columns that are left out where the terminal has 80 characters."""
    glance: tuple[Column, ...] = ()
    """Numbers of the last round on the live screen, besides the recipe's curves: title and number of each."""

    @property
    def rounds(self) -> str:
        """The plural of `round`."""
        return f"{self.round}{'es' if self.round.endswith('ch') else 's'}"

    def fitting_columns(self, width: int) -> tuple[Column, ...]:
        """Return all columns where a row of them fits, else those that cannot be dispensed with."""
        if len(title_line(self.columns, self.short)) <= width:
            return self.columns
        return tuple(column for column in self.columns if column.title not in self.dispensable)


class ConsoleTable:
    """The table of a run. Use it as a context manager, so that the bar goes away when the run ends or fails."""

    def __init__(
        self,
        total_rounds: int,
        console: Console,
        layout: TableLayout,
        *,
        done: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare the table.

        Args:
            total_rounds: number of rounds in all.
            console: the place where it is printed.
            layout: form of the table for the run's kind.
            done: rounds that a resumed run has behind it.
            clock: seconds from any beginning; tests bring their own.
        """
        self._total, self._console, self._done, self._clock = total_rounds, console, done, clock
        self._layout, self._columns = layout, list[Column]()
        self._rows_printed = 0
        self._shown_resident = 0.0
        self._round_times: deque[float] = deque(maxlen=ROUNDS_REMEMBERED)
        self._began_at = self._round_began_at = self._phase_began_at = self._last_refresh = clock()
        self._last_line_at = self._began_at
        self._rounds_before = done
        self._phase, self._steps = "", (0, 0)
        self._bar, self._task = _bar(console)
        self._exit_stack = ExitStack()
        self._progress_track: ProgressTrack | None = None

    def __enter__(self) -> Self:
        """Show the bar, and the progress within the steps of long phases."""
        self._bar.start()
        self._progress_track = self._exit_stack.enter_context(track_progress())
        if not self._console.quiet:
            # A thread of its own: a step that takes minutes returns to no loop that could say so.
            ticker = Ticker(self.report_progress_)
            ticker.start()
            self._exit_stack.callback(ticker.stop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Take the bar away; the rows stay, and below them the time that they took."""
        self._exit_stack.close()  # the thread first: nothing may draw on a bar that is gone
        self._bar.stop()
        if pace := self.pace_text():
            self._print(pace, "dim")

    def phase(self, name: str, done: int, total: int) -> None:
        """Move the bar: `done` of `total` parts of the phase `name` of this round. Cheap enough for any loop."""
        time_now = self._clock()
        self._steps = (done, total)
        if name != self._phase:
            self._phase, self._phase_began_at = name, time_now
        elif time_now - self._last_refresh < REFRESH_SECONDS and done < total:
            return
        self._last_refresh = time_now
        if self._bar.disable:
            return
        self._bar.update(
            self._task,
            description=name,
            completed=done,
            total=total,
            left=self._forecast(time_now, done, total),
            round=f"{self._layout.round} {min(self._done + 1, self._total)}/{self._total}",
        )
        self._bar.refresh()

    def report_progress_(self) -> None:
        """Say how far a round has come that has said nothing for 10 seconds: a step may take longer than that."""
        # In the ticker's thread; the bar of rich has a lock of its own.
        time_now, (done_steps, total) = self._clock(), self._steps
        if not is_due(time_now, self._round_began_at, self._last_line_at):
            return
        self._last_line_at = time_now
        step_progress = self._progress_track.line() if self._progress_track is not None else ""
        if not self._bar.disable:
            self._bar.update(
                self._task, description=f"{self._phase} ({step_progress})" if step_progress else self._phase
            )
            self._bar.refresh()
            return
        round_text = f"{self._layout.round} {min(self._done + 1, self._total)}/{self._total}"
        parts = [f"{format_duration(time_now - self._round_began_at)} so far"]
        if self._phase:  # once a phase is done, what is at work is the next one, of which no step is done yet
            parts += [f"{self._phase} {done_steps}/{total}" if done_steps < total else f"{self._phase} done"]
        forecast = self._forecast(time_now, done_steps, total) if done_steps < total or self._round_times else ""
        parts += [step_progress, forecast]
        self._print(f"{'':>{FIRST}} {round_text}: {', '.join(filter(None, parts))}", "dim")

    def end_round(self) -> RoundTime:
        """End the round that runs, and return its time; its row is printed by `print_row`, now or later."""
        time_now = self._clock()
        self._round_times.append(time_now - self._round_began_at)
        self._round_began_at = self._last_line_at = time_now
        self._phase, self._steps = "", (0, 0)
        self._done += 1
        left_seconds = 0.0 if self._done >= self._total else self.seconds_left(time_now)
        return RoundTime(self._done, self._round_times[-1], left_seconds)

    def print_row(
        self, ended: RoundTime, metrics: Metrics, memory: str = "", logged: Metrics = MappingProxyType({})
    ) -> None:
        """Print the row of a round that has ended, and a line about its memory where that has changed.

        Args:
            ended: time of the round.
            metrics: numbers of the round.
            memory: text about memory in the round; empty for none.
            logged: those numbers of the round that the user has logged.
        """
        if self._console.quiet:  # a row that nobody sees takes as long to lay out
            return
        if self._rows_printed % ROWS_PER_HEADER == 0:
            columns = self._layout.fitting_columns(self._console.width)
            self._columns = [column for column in columns if not column.is_repetition(metrics)]
            self._print(group_line(self._columns), "bold")
            self._print(title_line(self._columns, self._layout.short), "bold")
        self._rows_printed += 1
        numbers = {**metrics, WHOLE.name: ended.seconds}
        self._print(row_line(f"{ended.number}/{self._total}", numbers, ended.left_seconds, self._columns))
        if logged:
            own = ", ".join(f"{name} {short_number(value)}" for name, value in logged.items())
            self._print(f"{'':>{FIRST}} {own}")
        if missing_transitions := metrics.get(MISSING_METRIC, 0.0):
            self._print(
                f"{'':>{FIRST}} the replay fills: learning begins after {missing_transitions:,.0f} more transitions",
                "dim",
            )
        resident = metrics.get(RESIDENT_COLUMN.name, 0.0)
        if memory and abs(resident - self._shown_resident) >= SHOWN_CHANGE_SHARE * self._shown_resident:
            self._shown_resident = resident
            self._console.print(Padding(Text(memory, style="dim"), (0, 0, 0, FIRST + 1), expand=False))

    def pace_text(self) -> str:
        """Return the time that the rounds of this process have taken, as text; empty if none has ended."""
        rounds, seconds = self._done - self._rounds_before, self._round_began_at - self._began_at
        if not rounds:
            return ""
        noun = self._layout.round if rounds == 1 else self._layout.rounds
        return f"{rounds} {noun} in {format_duration(seconds)}, {format_duration(seconds / rounds)} each on average"

    def seconds_left(self, now: float) -> float:
        """Return the seconds to the run's end at the median pace of the last rounds; NaN before the first has ended."""
        if not self._round_times:
            return float("nan")
        pace = median(self._round_times)
        # A round that takes longer than usual counts as about to end.
        return pace * max(0, self._total - self._done - 1) + max(0.0, pace - (now - self._round_began_at))

    def _forecast(self, now: float, done: int, total: int) -> str:
        """Return the time left of the run, or of the phase in the first round; empty while nothing tells."""
        if self._round_times:
            return f"run: {short_duration(self.seconds_left(now))} left"
        elapsed = now - self._phase_began_at
        return f"phase: {short_duration(elapsed / done * (total - done))} left" if done and elapsed else ""

    def _print(self, line: str, style: str = "") -> None:
        # rich would lay the line out all the same, which takes a quarter of a plain round's records.
        if self._console.quiet:
            return
        self._console.print(Text(line, style=style), soft_wrap=True)  # not wrapped: a log has the row in one line


def _bar(console: Console) -> tuple[Progress, TaskID]:
    """Return a bar that stands below the table and is redrawn by `phase` alone, and its one task."""
    # No refreshing thread: it would take time from the cores that compute; `phase` refreshes.
    bar = Progress(
        TextColumn("{task.fields[round]}"),
        TextColumn("{task.description}", style="bold"),
        BarColumn(bar_width=30),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TextColumn("{task.fields[left]}", style="cyan"),
        console=console,
        transient=True,
        auto_refresh=False,
        disable=not console.is_terminal,
    )
    return bar, bar.add_task("starting", total=1, left="", round="")


def group_line(columns: Sequence[Column]) -> str:
    """Return the header's upper line: each group's name above the first of its columns."""
    line = " " * FIRST
    for index, column in enumerate(columns):
        is_first = column.group and (index == 0 or columns[index - 1].group != column.group)
        if is_first:
            width = sum(same_group.width for same_group in columns if same_group.group == column.group)
            name = f" {column.group} "
            line += " " + (name.center(width - 1, "-") if len(name) + 1 < width - 1 else name.strip().rjust(width - 1))
        elif not column.group:
            line += " " * column.width
    return line.rstrip()


def title_line(columns: Sequence[Column], short: str) -> str:
    """Return the header's lower line: each column's title, right-aligned like its numbers."""
    titles = "".join(f"{column.title:>{column.width}}" for column in columns)
    return f"{short:>{FIRST}}{titles}{'left':>{LEFT}}{RESIDENT_COLUMN.title:>{RESIDENT_COLUMN.width}}"


def row_line(round_: str, metrics: Metrics, left: float, columns: Sequence[Column]) -> str:
    """Return the row of one round.

    Args:
        round_: text of the round, such as `12/100`.
        metrics: numbers of the round by name; a column without one shows `.`.
        left: seconds to the end of the run; NaN where that is unknown.
        columns: the columns between the round and the time left.
    """
    cells = "".join(_format_cell(column, metrics) for column in columns)
    return f"{round_:>{FIRST}}{cells}{short_duration(left):>{LEFT}}{_format_cell(RESIDENT_COLUMN, metrics)}"


def _format_cell(column: Column, metrics: Metrics) -> str:
    value = metrics.get(column.name)
    return f"{'.' if value is None else column.show(value):>{column.width}}"
