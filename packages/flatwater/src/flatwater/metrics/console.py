"""The table of a run on the terminal: a row for each round, 99 or 80 characters wide, and a progress bar below.

If the output is not a terminal (a log file, a pipe), the rows are plain text, and in place of the bar a line is printed
every 10 seconds of a long round.
"""

import time
from collections import deque
from collections.abc import Callable, Collection
from contextlib import ExitStack
from statistics import median
from types import MappingProxyType, TracebackType
from typing import NamedTuple, Self

from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from flatwater.metrics.short_numbers import short_duration, short_number
from flatwater.metrics.sinks import Metrics
from flatwater.metrics.table_layout import (
    RESIDENT_COLUMN,
    ROUND_WIDTH,
    SECONDS_COLUMN,
    Column,
    TableLayout,
    group_line,
    row_line,
    title_line,
)
from flatwater_watch.progress import ProgressTrack, Ticker, is_due, track_progress
from flatwater_watch.units import format_duration

ROWS_PER_HEADER = 20
REFRESH_SECONDS = 0.1
ROUNDS_REMEMBERED = 8
"""Number of last rounds whose median time is the forecast: a single slow round does not change it."""
SHOWN_CHANGE_SHARE = 0.01
"""Relative change of resident memory from which the line about memory is printed again."""
MISSING_METRIC = "buffer/missing"
"""Metric with the number of transitions that the replay still needs before learning begins."""


class RoundTime(NamedTuple):
    """The time of a round that has just ended."""

    number: int
    seconds: float
    left_seconds: float
    """Forecast of the seconds to the end of the run."""


class ConsoleTable:
    """The table of a run. It is a context manager, so that the bar is removed when the run ends or fails."""

    def __init__(
        self,
        total_rounds: int,
        console: Console,
        layout: TableLayout,
        *,
        rounds_done: int = 0,
        early_phases: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare the table.

        Args:
            total_rounds: number of rounds in all.
            console: console on which the table is printed.
            layout: columns and words of the recipe's table.
            rounds_done: number of complete rounds of a resumed run.
            early_phases: names of phases that may end before their last step, as episodes do.
            clock: returns seconds; tests give their own.
        """
        self._total, self._console, self._rounds_done, self._clock = total_rounds, console, rounds_done, clock
        self._layout, self._early_phases = layout, early_phases
        self._columns = list[Column]()  # chosen anew with each header
        self._rows_printed = 0
        self._shown_resident = 0.0  # resident bytes in the last line about memory
        self._round_times: deque[float] = deque(maxlen=ROUNDS_REMEMBERED)
        time_now = clock()
        self._run_began_at = time_now
        self._round_began_at = time_now
        self._phase_began_at = time_now
        self._last_refresh = time_now  # of the bar
        self._last_line_at = time_now  # a row, or a line about the progress of a round
        self._rounds_at_start = rounds_done
        self._phase, self._phase_steps = "", (0, 0)  # complete steps of the phase, and all its steps
        self._progress_bar, self._task = _progress_bar(console)
        self._exit_stack = ExitStack()
        self._progress_track: ProgressTrack | None = None

    def __enter__(self) -> Self:
        """Show the bar, and the progress within the steps of long phases."""
        self._progress_bar.start()
        self._progress_track = self._exit_stack.enter_context(track_progress())
        if not self._console.quiet:
            # In a thread, as a step may take minutes, in which the loop calls nothing.
            ticker = Ticker(self.report_progress_)
            ticker.start()
            self._exit_stack.callback(ticker.stop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Remove the bar, and print the time that the rounds took."""
        self._exit_stack.close()  # ends the thread first, which must not draw a removed bar
        self._progress_bar.stop()
        if pace := self.pace_text():  # empty if no round has ended
            self._print_text(pace, "dim")

    def show_phase_(self, name: str, steps_done: int, total: int) -> None:
        """Show the complete steps of the phase `name` on the bar, every `REFRESH_SECONDS` at most: for any loop."""
        time_now = self._clock()
        self._phase_steps = (steps_done, total)
        if name != self._phase:  # a phase begins, and is drawn at once, as is its end
            self._phase, self._phase_began_at = name, time_now
        elif time_now - self._last_refresh < REFRESH_SECONDS and steps_done < total:
            return
        self._last_refresh = time_now
        if self._progress_bar.disable:  # the output is not a terminal
            return
        self._progress_bar.update(
            self._task,
            description=name,
            completed=steps_done,
            total=total,
            left=self._time_left_text(time_now, steps_done, total),
            round=f"{self._layout.round} {min(self._rounds_done + 1, self._total)}/{self._total}",
        )
        self._progress_bar.refresh()

    def report_progress_(self) -> None:
        """Print how far a long round has come, if nothing was printed for 10 seconds; on a terminal, update the bar."""
        # In the ticker's thread; rich's bar has its own lock.
        time_now = self._clock()
        if not is_due(time_now, self._round_began_at, self._last_line_at):
            return
        self._last_line_at = time_now
        step_progress = self._progress_track.line() if self._progress_track is not None else ""
        if self._progress_bar.disable:  # the output is not a terminal
            self._print_text(f"{'':>{ROUND_WIDTH}} {self._progress_line(time_now, step_progress)}", "dim")
            return
        self._progress_bar.update(
            self._task, description=f"{self._phase} ({step_progress})" if step_progress else self._phase
        )
        self._progress_bar.refresh()

    def _progress_line(self, now: float, step_progress: str) -> str:
        """Return a line such as `generation 3/100: 25.0 s so far, learn 12/40, phase: 42s left`.

        `step_progress` is a text on the progress within the present step; empty if the step counts none.
        """
        done_steps, total = self._phase_steps
        texts = [f"{format_duration(now - self._round_began_at)} so far"]
        if self._phase:  # once all its steps are done, the next phase is at work on its first step
            texts.append(f"{self._phase} {done_steps}/{total}" if done_steps < total else f"{self._phase} done")
        texts.append(step_progress)
        # In the first round the forecast is of the phase alone: there is none once its steps are done.
        if done_steps < total or self._round_times:
            texts.append(self._time_left_text(now, done_steps, total))
        shown_texts = ", ".join(text for text in texts if text)
        return f"{self._layout.round} {min(self._rounds_done + 1, self._total)}/{self._total}: {shown_texts}"

    def end_round_(self) -> RoundTime:
        """End the current round, and return its time, by which `print_row_` prints its row now or later."""
        time_now = self._clock()
        self._round_times.append(time_now - self._round_began_at)
        self._round_began_at = self._last_line_at = time_now
        self._phase, self._phase_steps = "", (0, 0)
        self._rounds_done += 1
        left_seconds = 0.0 if self._rounds_done >= self._total else self.seconds_left(time_now)
        return RoundTime(self._rounds_done, seconds=self._round_times[-1], left_seconds=left_seconds)

    def print_row_(
        self, round_time: RoundTime, metrics: Metrics, memory: str = "", logged_numbers: Metrics = MappingProxyType({})
    ) -> None:
        """Print the row of a round that has ended, and a line about its memory where that has changed.

        Args:
            round_time: number and time of the round.
            metrics: numbers of the round.
            memory: text about memory in the round; empty for none.
            logged_numbers: the numbers among them that the user has logged.
        """
        if self._console.quiet:  # the layout of a row that nobody sees would cost as much
            return
        if self._rows_printed % ROWS_PER_HEADER == 0:
            columns = self._layout.fitting_columns(self._console.width)
            self._columns = [column for column in columns if not column.is_repetition(metrics)]
            self._print_text(group_line(self._columns), "bold")
            self._print_text(title_line(self._columns, self._layout.short_title), "bold")
        self._rows_printed += 1
        numbers = {**metrics, SECONDS_COLUMN.name: round_time.seconds}
        self._print_text(
            row_line(f"{round_time.number}/{self._total}", numbers, round_time.left_seconds, self._columns)
        )
        if logged_numbers:
            logged_text = ", ".join(f"{name} {short_number(value)}" for name, value in logged_numbers.items())
            self._print_text(f"{'':>{ROUND_WIDTH}} {logged_text}")
        if missing_transitions := metrics.get(MISSING_METRIC, 0.0):
            self._print_text(
                f"{'':>{ROUND_WIDTH}} the replay fills: learning begins after {missing_transitions:,.0f} more "
                "transitions",
                "dim",
            )
        resident = metrics.get(RESIDENT_COLUMN.name, 0.0)
        # The line about memory is printed again only where resident memory has changed by a share.
        if memory and abs(resident - self._shown_resident) >= SHOWN_CHANGE_SHARE * self._shown_resident:
            self._shown_resident = resident
            self._console.print(Padding(Text(memory, style="dim"), (0, 0, 0, ROUND_WIDTH + 1), expand=False))

    def pace_text(self) -> str:
        """Return a text with the number and time of the rounds of this process; empty if none has ended."""
        rounds, seconds = self._rounds_done - self._rounds_at_start, self._round_began_at - self._run_began_at
        if not rounds:
            return ""
        noun = self._layout.round if rounds == 1 else self._layout.rounds
        return f"{rounds} {noun} in {format_duration(seconds)}, {format_duration(seconds / rounds)} each on average"

    def seconds_left(self, now: float) -> float:
        """Return the seconds to the run's end, by the median time of the last rounds; NaN if no round has ended."""
        if not self._round_times:
            return float("nan")
        pace = median(self._round_times)
        # A round that already takes longer than the median counts as about to end.
        present_round_left = max(0.0, pace - (now - self._round_began_at))
        return pace * max(0, self._total - self._rounds_done - 1) + present_round_left

    def _time_left_text(self, now: float, steps_done: int, total: int) -> str:
        """Return a text with the time left of the run, or of the phase in the first round; empty if unknown."""
        if self._round_times:
            return f"run: {short_duration(self.seconds_left(now))} left"
        elapsed_seconds = now - self._phase_began_at
        if not steps_done or not elapsed_seconds:  # no step was measured yet
            return ""
        seconds_left = elapsed_seconds / steps_done * (total - steps_done)
        at_most = "at most " if self._phase in self._early_phases else ""
        return f"phase: {at_most}{short_duration(seconds_left)} left"

    def _print_text(self, line: str, style: str = "") -> None:
        """Print a line in a style of rich, such as `dim`; nothing on a quiet console."""
        # A quiet console would still lay the line out, at a quarter of the cost of recording a plain round.
        if self._console.quiet:
            return
        self._console.print(Text(line, style=style), soft_wrap=True)  # not wrapped: a log has the row in one line


def _progress_bar(console: Console) -> tuple[Progress, TaskID]:
    """Return the progress bar below the table, and its only task."""
    # Without rich's refreshing thread, which would take time from the computing cores: `show_phase_` refreshes.
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
