"""The columns and lines of a run's table: a row for each round, 99 characters wide or 80."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flatwater.metrics.figures import short_duration, short_number, short_seconds, whole_megabytes, whole_share
from flatwater.metrics.sinks import Metrics

ROUND_WIDTH, TIME_LEFT_WIDTH = 9, 6
"""Characters of the first column, with the number of the round, and of the column with the time left."""


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


RESIDENT_COLUMN = Column("", "MB", 6, "memory/resident", whole_megabytes)
SECONDS_COLUMN = Column("seconds", "all", 4, "seconds", short_seconds)
"""Seconds of a whole round, saving and recording included; the table itself measures them."""
BUFFER_COLUMN = Column("", "buffer", 9, "buffer/fill", whole_share)


@dataclass(frozen=True)
class TableLayout:
    """Form of the table for a kind of run."""

    round: str
    """Name of a round: `generation`."""
    short_title: str
    """Name of a round as a title, in at most 8 characters."""
    columns: tuple[Column, ...]
    """Columns of at most 78 characters together, for a row of 99."""
    dispensable: frozenset[str]
    """Titles of the columns that are left out where the terminal has 80 characters."""
    live_columns: tuple[Column, ...] = ()
    """Numbers of the last round on the live screen, besides the recipe's curves: title and number of each."""

    @property
    def rounds(self) -> str:
        """The plural of `round`."""
        return f"{self.round}{'es' if self.round.endswith('ch') else 's'}"

    def fitting_columns(self, width: int) -> tuple[Column, ...]:
        """Return all columns where a row of them fits, else those that cannot be dispensed with."""
        if len(title_line(self.columns, self.short_title)) <= width:
            return self.columns
        return tuple(column for column in self.columns if column.title not in self.dispensable)


def group_line(columns: Sequence[Column]) -> str:
    """Return the header's upper line: each group's name above the first of its columns."""
    line = " " * ROUND_WIDTH
    for index, column in enumerate(columns):
        is_first = column.group and (index == 0 or columns[index - 1].group != column.group)
        if is_first:
            width = sum(same_group.width for same_group in columns if same_group.group == column.group)
            name = f" {column.group} "
            line += " " + (name.center(width - 1, "-") if len(name) + 1 < width - 1 else name.strip().rjust(width - 1))
        elif not column.group:
            line += " " * column.width
    return line.rstrip()


def title_line(columns: Sequence[Column], short_title: str) -> str:
    """Return the header's lower line: each column's title, right-aligned like its numbers."""
    titles = "".join(f"{column.title:>{column.width}}" for column in columns)
    resident = f"{RESIDENT_COLUMN.title:>{RESIDENT_COLUMN.width}}"
    return f"{short_title:>{ROUND_WIDTH}}{titles}{'left':>{TIME_LEFT_WIDTH}}{resident}"


def row_line(round_: str, metrics: Metrics, left: float, columns: Sequence[Column]) -> str:
    """Return the row of one round.

    Args:
        round_: text of the round, such as `12/100`.
        metrics: numbers of the round by name; a column without one shows `.`.
        left: seconds to the end of the run; NaN where that is unknown.
        columns: the columns between the round and the time left.
    """
    cells = "".join(_format_cell(column, metrics) for column in columns)
    resident = _format_cell(RESIDENT_COLUMN, metrics)
    return f"{round_:>{ROUND_WIDTH}}{cells}{short_duration(left):>{TIME_LEFT_WIDTH}}{resident}"


def _format_cell(column: Column, metrics: Metrics) -> str:
    value = metrics.get(column.name)
    return f"{'.' if value is None else column.show(value):>{column.width}}"
