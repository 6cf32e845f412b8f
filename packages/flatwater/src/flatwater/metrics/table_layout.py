"""The columns and lines of a run's table: a row for each round, 99 characters wide or 80."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flatwater.metrics.short_numbers import short_duration, short_number, short_seconds, whole_mebibytes, whole_share
from flatwater.metrics.sinks import Metrics

ROUND_WIDTH, TIME_LEFT_WIDTH = 9, 6
"""Widths in characters: of the first column, with the number of the round, and of the column with the time left."""


@dataclass(frozen=True)
class Column:
    """One column of the table: its titles, its metric, and how the metric is written."""

    group: str
    """Title above neighbouring columns of the same group; empty for none."""
    title: str
    width: int
    """Number of characters, with the space on the left."""
    name: str
    """Name of the metric; a round without the metric shows a dot."""
    show: Callable[[float], str] = short_number
    repeats: str = ""
    """Name of a metric whose number the column may repeat; if it does in the first row, the column is left out."""

    def is_repetition(self, metrics: Metrics) -> bool:
        """Return whether the column's metric has the same number as the metric `repeats`."""
        return self.name in metrics and metrics[self.name] == metrics.get(self.repeats)


RESIDENT_COLUMN = Column("", "MiB", 6, "memory/resident", whole_mebibytes)
SECONDS_COLUMN = Column("seconds", "all", 4, "seconds", short_seconds)
"""Seconds of a whole round, saving and recording included; the table itself measures them."""
BUFFER_COLUMN = Column("", "buffer", 9, "buffer/fill", whole_share)


@dataclass(frozen=True)
class TableLayout:
    """The columns and words of the table of a recipe's runs."""

    round: str
    """Word for a round, such as `generation`."""
    short_title: str
    """Title of the first column, a word for a round of at most 8 characters."""
    columns: tuple[Column, ...]
    """Columns of at most 78 characters together, for a row of 99."""
    dispensable: frozenset[str]
    """Titles of the columns that a terminal of 80 characters does not show."""
    live_columns: tuple[Column, ...] = ()
    """Numbers of the last round on the live screen, besides the recipe's curves: title and number of each."""

    @property
    def rounds(self) -> str:
        """Plural of `round`."""
        return f"{self.round}{'es' if self.round.endswith('ch') else 's'}"

    def fitting_columns(self, width: int) -> tuple[Column, ...]:
        """Return all columns if they fit into `width` characters, else those that are not dispensable."""
        # The line of titles is as wide as the table.
        if len(title_line(self.columns, self.short_title)) <= width:
            return self.columns
        return tuple(column for column in self.columns if column.title not in self.dispensable)


def group_line(columns: Sequence[Column]) -> str:
    """Return the header's upper line: each group's name above the first of its columns."""
    line = " " * ROUND_WIDTH
    for index, column in enumerate(columns):
        if not column.group:
            line += " " * column.width
        elif index == 0 or columns[index - 1].group != column.group:  # the first column of a group
            width = sum(other.width for other in columns if other.group == column.group)
            line += _group_title(column.group, width)
        # A later column of a group adds nothing: the title spans the whole group.
    return line.rstrip()


def _group_title(group: str, width: int) -> str:
    """Return the title of neighbouring columns of this width together: ` ---- name ----`, or the name if it is long."""
    name = f" {group} "
    # The first character is a space before the group. Dashes need a place on each side of the name.
    has_room = len(name) + 2 <= width - 1
    return " " + (name.center(width - 1, "-") if has_room else group.rjust(width - 1))


def title_line(columns: Sequence[Column], short_title: str) -> str:
    """Return the header's lower line: each column's title, right-aligned like its numbers."""
    titles = "".join(f"{column.title:>{column.width}}" for column in columns)
    resident = f"{RESIDENT_COLUMN.title:>{RESIDENT_COLUMN.width}}"
    return f"{short_title:>{ROUND_WIDTH}}{titles}{'left':>{TIME_LEFT_WIDTH}}{resident}"


def row_line(round_text: str, metrics: Metrics, left_seconds: float, columns: Sequence[Column]) -> str:
    """Return the row of one round.

    Args:
        round_text: number of the round and of all rounds, such as `12/100`.
        metrics: metrics of the round by name; a column without its metric shows `.`.
        left_seconds: seconds to the end of the run; NaN if unknown.
        columns: the columns between the round and the time left.
    """
    cells = "".join(_format_cell(column, metrics) for column in columns)
    resident = _format_cell(RESIDENT_COLUMN, metrics)
    return f"{round_text:>{ROUND_WIDTH}}{cells}{short_duration(left_seconds):>{TIME_LEFT_WIDTH}}{resident}"


def _format_cell(column: Column, metrics: Metrics) -> str:
    value = metrics.get(column.name)
    return f"{'.' if value is None else column.show(value):>{column.width}}"
