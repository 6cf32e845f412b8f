"""The end of training on the terminal: the table, the picture and the folder."""

import faulthandler
import json
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from flatwater.cli.settings import WithDisplay
from flatwater.description import Description, measured_numbers
from flatwater.recipe import Recipe, ShownTable, lazy_function
from flatwater.reports.records import read_course
from flatwater.rundir.events import JsonLines
from flatwater.rundir.layout import RunFolder
from flatwater.runs.profiling import profiled_rounds
from flatwater.runs.seeds import group_runs
from flatwater.runs.session import RunOutcome
from flatwater_watch.files.regular_files import RESULT_BYTES, read_regular
from flatwater_watch.format_strings import fill_format, write_value
from flatwater_watch.phrases import stack_lines
from flatwater_watch.terminal import WIDTH, lasting_terminal, silent_terminal

STDERR = 2  # the number, as `sys.stderr` may be replaced
draw_run = lazy_function("flatwater.reports.picture:draw_run")
"""Draws the picture of a run; imports matplotlib, when a run has finished."""


def show_outcome(train: Callable[..., RunOutcome], options: WithDisplay) -> int:
    """Train, and show the result if the run has finished. Returns the exit code; see `train_and_show`."""
    return train_and_show(train, options).exit_code


def show_group(folder: RunFolder, options: WithDisplay, changes: Mapping[str, Any]) -> int:
    """Train the runs of a group one after the other, show each result, then statistics. Returns the exit code.

    Args:
        folder: folder of the group.
        options: options of the output.
        changes: settings that change from here on.
    """
    from flatwater.comparisons.side_by_side import read_group

    console = silent_terminal() if options.quiet or options.json else lasting_terminal()
    with closing(group_runs(folder, changes)) as runs:
        for seed, train in runs:  # `train` trains the run of this seed
            console.print(f"seed {seed}", style="bold")
            outcome = train_and_show(train, options)
            if not outcome.finished:
                console.print(f"stopped. Go on with all seeds: flatwater resume {folder.path}", soft_wrap=True)
                return outcome.exit_code
    console.print(f"\n{read_group(folder.path).sentence}\ngroup folder {folder.path}", soft_wrap=True)
    console.print(f"next         flatwater compare {folder.path} OTHER", highlight=False, soft_wrap=True)
    return 0


def train_and_show(train: Callable[..., RunOutcome], options: WithDisplay) -> RunOutcome:
    """Train, show the result if the run has finished, and return the outcome.

    Args:
        train: trains a run; takes a console, `listeners` of its events, and the rounds to `profile`.
        options: options of the output.
    """
    # A fault in C, such as a write into a read-only mapping, ends the process: its Python line is printed before. A
    # program's own handler stays.
    if not faulthandler.is_enabled():
        faulthandler.enable(STDERR)
    console = silent_terminal() if options.quiet or options.json else lasting_terminal()
    profile = None if options.profile is None else profiled_rounds(options.profile)
    # With --json the console is silent, so that every line of stdout is an event.
    outcome = train(console, listeners=[JsonLines(sys.stdout)] if options.json else [], profile=profile)
    folder = outcome.folder
    if outcome.finished:
        draw_run(folder.path, outcome.recipe)
        # Read from the file, so that the screen and the file cannot differ.
        result = json.loads(read_regular(folder.result, RESULT_BYTES, follow_links=False))
        show_result(result, console, outcome.recipe)
        for table in outcome.recipe.tables(read_course(folder)):
            show_table(table, console)
        console.print(f"\npicture     {folder.picture}\nrun folder  {folder.path}", soft_wrap=True)
        commands = [
            f"flatwater evaluate {folder.path}",
            *(f"flatwater {command} {folder.path}" for command in outcome.recipe.following_commands),
            f"flatwater resume {folder.path} --rounds N",
        ]
        console.print(stack_lines("next        ", commands), highlight=False, soft_wrap=True)
    return outcome


def show_result(result: dict[str, Any], console: Console, recipe: Recipe | Description) -> None:
    """Print the title of a result, a table of its players' numbers, its verdict and its note."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(recipe.players.removesuffix("s"), no_wrap=True)  # `player` above the players' names
    all_numbers = measured_numbers(recipe, result)
    column_count = WIDE_COLUMNS if console.width >= WIDTH else NARROW_COLUMNS
    numbers = all_numbers[:column_count]
    omitted_titles = [number.title for number in all_numbers[column_count:]]
    for number in numbers:
        table.add_column(number.title, justify="right", no_wrap=True)
    for player, row in result[recipe.players].items():
        cells = [_cell(row.get(number.key, ""), number.form) for number in numbers]
        table.add_row(player, *cells, style="bold" if player == recipe.trained else "")
    # Without markup: a run's words may hold brackets.
    console.print(
        f"\n{fill_format(recipe.title, result)}", markup=False, highlight=False, style="italic", soft_wrap=True
    )
    console.print(table)
    if omitted_titles:
        console.print(f"Also in the report and in result.json: {', '.join(omitted_titles)}.", style="dim")
    if verdict := result.get("verdict"):
        console.print(verdict)
    console.print(f"Note: {result['note']}.", style="dim")


def show_table(view: ShownTable, console: Console) -> None:
    """Print a table of a recipe; its first column is aligned to the left, the others to the right."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    first_title, *other_titles = view.titles
    table.add_column(first_title, no_wrap=True)
    for title in other_titles:
        table.add_column(title, justify="right", no_wrap=True)
    for row in view.rows:
        table.add_row(*row)
    console.print()
    console.print(table)


def _cell(value: float | str | None, form: str) -> str:
    """Return a number as its format string `form` writes it, a dash for None, and a text unchanged."""
    if isinstance(value, str):
        return value
    return "-" if value is None else write_value(form, value)


WIDE_COLUMNS, NARROW_COLUMNS = 8, 6
"""Counts of numbers that are shown where the terminal has `WIDTH` characters, and where it has fewer, such as 80."""
