"""`flatwater compare RUN RUN ...`: settings and numbers of runs side by side, and how sure a difference is."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from flatwater_watch.files.output import PAGE_OUTPUT, WrittenResult, check_output, write_output

if TYPE_CHECKING:
    from flatwater.comparisons.named import NamedComparison
    from flatwater.comparisons.side_by_side import Rows

FIRST_COLUMN = 30
"""Width in characters: the longest names of settings just fit."""


@dataclass(frozen=True, kw_only=True)
class Compare:
    """Compare runs or studies: settings that differ, numbers, and whether a difference is more than chance.

    Groups of runs with several seeds (`train --seeds`) are compared by their returns: mean, interquartile mean, and the
    interval of the difference, from a bootstrap over seeds. Single traders on the same days are compared by their daily
    returns, and studies by those of their champions. If an interval contains 0, the two cannot be told apart. Each is
    compared with the first.
    """

    runs: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Two to eight folders of runs, groups or studies, or URLs at which runs are mirrored; or the folder of a group."""
    page: Path | None = None
    """Also write a web page with the curves of all runs over each other: FILE.html."""
    json: bool = False
    """Print JSON instead of tables."""

    def __call__(self) -> int:
        """Read the runs, print tables or JSON, and write the page if `--page` names one. Returns exit code 0."""
        import json
        import sys

        from flatwater.comparisons.named import compare_named
        from flatwater_watch.terminal import terminal

        if self.page is not None:
            check_output("--page", self.page, PAGE_OUTPUT)  # before runs are read, which may take minutes at a URL
        errors = terminal(to_stderr=True)
        comparison = compare_named(self.runs, errors.print)
        # The page first: where it cannot be written, no table suggests that all went well.
        page_file = None if self.page is None else write_page(comparison, self.page)
        if self.json:
            sys.stdout.write(json.dumps(comparison.values, indent=1) + "\n")
        else:
            show_comparison(self.runs, comparison, terminal())
        if page_file is not None:
            errors.print(f"page  {page_file}", soft_wrap=True)
        return 0


def write_page(comparison: "NamedComparison", page: Path) -> WrittenResult:
    """Write the page of a comparison."""
    from datetime import datetime

    html = comparison.draw_page(datetime.now().astimezone())
    return write_output(page, html.encode(errors="replace"), PAGE_OUTPUT)


def show_comparison(names: Sequence[str], comparison: "NamedComparison", console: Any) -> None:  # noqa: ANN401  (rich's console)
    """Print the letters, the settings that differ, the numbers, and a sentence for each difference."""
    from string import ascii_uppercase

    letters = ascii_uppercase[: len(names)]
    for letter, name in zip(letters, names, strict=True):
        console.print(f"{letter}  {name}", soft_wrap=True)
    if comparison.settings:
        show_rows("settings that differ", letters, comparison.settings, console)
    elif len(names) > 1:
        console.print("\nAll settings are the same.")
    show_rows("numbers", letters, comparison.numbers, console)
    for sentence in comparison.sentences:
        console.print(sentence)


def show_rows(title: str, letters: str, rows: "Rows", console: Any) -> None:  # noqa: ANN401  (rich's console)
    """Print a table with a column for each run; a long value is broken.

    Args:
        title: title of the first column.
        letters: titles of the other columns, one letter each.
        rows: name of each row, and a cell for each run.
        console: rich's, whose width the columns share.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(title, max_width=FIRST_COLUMN, overflow="fold")
    width = max(6, (console.width - FIRST_COLUMN) // len(letters) - 2)  # 2: the space between columns
    for letter in letters:
        table.add_column(letter, justify="right", max_width=width, overflow="fold")
    for name, cells in rows:
        table.add_row(name, *cells)
    console.print(table)
