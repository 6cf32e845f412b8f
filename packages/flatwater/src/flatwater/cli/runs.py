"""Runs as they are now: `flatwater runs` lists them, `flatwater top` shows one."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from flatwater.rundir.listing import RunLine


USUAL_COLUMNS = 80
"""Width of a terminal for which the table is made; names get the columns that a wider terminal has."""
WIDE_NAME = 22
"""Maximum width of a run's name."""
NARROW_NAME = 16
"""Maximum width of names that leave a score room on one line."""
NARROW_SCORE = 8
"""Width of a score on two lines, where a name is longer."""


@dataclass(frozen=True, kw_only=True)
class Runs:
    """List the runs in a folder: recipe, state, rounds, score, size, last change."""

    folder: Annotated[str, tyro.conf.Positional] = "runs"
    """Folder that holds run folders, or the URL at which runs are mirrored."""
    tag: Annotated[str | None, tyro.conf.arg(metavar="T")] = None  # short, so that the usage fits 80 columns
    """Only runs with this tag (`train --tag`)."""
    sort: Annotated[str | None, tyro.conf.arg(metavar="BY")] = None
    """Metric or number of the result by which runs are sorted, the highest first: score, total_return, fitness/mean.
    Left out: the latest change last."""
    page: Path | None = None
    """Also write a web page with all of them and links to their reports: FILE.html."""
    json: bool = False
    """Print JSON instead of a table."""

    def __call__(self) -> int:
        """List the runs, and print or write them as a table, JSON or page.

        Raises:
            FlatwaterError: there is no such folder or number, or the page cannot be written.
        """
        import json
        import sys
        from dataclasses import asdict

        from flatwater.mirror.remote_listing import list_mirrored_runs
        from flatwater.rundir.listing import filter_by_tag, list_runs, rank_runs
        from flatwater.storage.objects import is_url
        from flatwater_watch.errors import ConfigError
        from flatwater_watch.files.output import PAGE_OUTPUT, check_output, write_output
        from flatwater_watch.terminal import terminal

        remote = is_url(self.folder)
        if self.page is not None:
            check_output("--page", self.page, PAGE_OUTPUT)
            if remote:
                raise ConfigError(
                    f"--page {self.page}: expected a folder of runs, got a URL, where there are no reports to link to."
                )
        runs = list_mirrored_runs(self.folder) if remote else list_runs(Path(self.folder))
        if self.tag is not None:
            runs = filter_by_tag(runs, self.tag)
        if self.sort is not None:
            runs = rank_runs(runs, self.sort)
        if self.json:
            sys.stdout.write(json.dumps({"runs": [asdict(run) for run in runs]}, indent=1) + "\n")
        else:
            self.show_runs(runs)
        if self.page is not None:
            from flatwater.reports.index_page import index_page

            content = index_page(runs, Path(self.folder), self.page.resolve().parent, self.sort)
            page_file = write_output(self.page, content.encode(errors="replace"), PAGE_OUTPUT)
            terminal(to_stderr=True).print(f"page  {page_file}", soft_wrap=True)
        return 0

    def show_runs(self, runs: "Sequence[RunLine]") -> None:
        """Print a table of the runs; below it the reasons why some are unreadable or not exact, and forks' parents."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        from flatwater.rundir.listing import shown_score
        from flatwater_watch.terminal import say, terminal
        from flatwater_watch.units import short_bytes

        if not runs:
            option = "" if self.tag is None else f" --tag {self.tag}"
            tag_phrase = "" if self.tag is None else f" with the tag {self.tag}"
            say(f"no runs{tag_phrase} in {self.folder}. Start one with: flatwater train ppo{option}")
            return
        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
        console = terminal()
        spare_columns = max(0, console.width - USUAL_COLUMNS)
        table.add_column("run", overflow="fold", max_width=WIDE_NAME + spare_columns)
        # Long names leave a score so little room that it takes two lines.
        is_crowded = max(len(run.name) for run in runs) > NARROW_NAME + spare_columns
        for title in ("recipe", "state"):
            table.add_column(title, no_wrap=True)
        table.add_column("rounds", justify="right", no_wrap=True)
        score_title = "score" if self.sort is None else self.sort
        table.add_column(
            score_title, justify="right", no_wrap=not is_crowded, max_width=NARROW_SCORE if is_crowded else None
        )
        for title in ("size", "last change"):
            table.add_column(title, justify="right", no_wrap=True)
        for run in runs:
            progress, score = f"{run.done}/{run.rounds}", shown_score(run, self.sort)
            state = f"{run.state}*" if run.doubt else run.state  # the star is explained below the table
            table.add_row(
                run.name, run.trainer, state, progress, score, short_bytes(run.bytes), _short_date(run.changed)
            )
        console.print(table)
        for run in runs:
            if run.result_note:
                console.print(Text.assemble((run.name, "yellow"), ": ", run.result_note), soft_wrap=True)
            if run.problem:
                console.print(Text.assemble((run.name, "red"), ": ", run.problem), soft_wrap=True)
            if run.origin:
                console.print(Text.assemble((run.name, "dim"), ": ", run.origin), soft_wrap=True)
            if run.doubt:
                console.print(Text.assemble("* ", (run.name, "yellow"), ": not exact: ", run.doubt), soft_wrap=True)


def _short_date(changed_at: str) -> str:
    """Return a date and time without the year if it is of this year, else the date alone."""
    from datetime import datetime

    this_year = f"{datetime.now().astimezone():%Y}-"
    return changed_at.removeprefix(this_year) if changed_at.startswith(this_year) else changed_at[:10]


@dataclass(frozen=True, kw_only=True)
class TopCommand:
    """Watch a run: memory by owner against the budget, phases, fitness, and what grows.

    The screen reads the run's folder once a second and does not touch the run. For a finished or stopped run it shows
    the end. If the output is not a terminal it is printed once.
    """

    run: Annotated[Path | None, tyro.conf.Positional] = None
    """The run's folder. Left out: the newest run in ./runs, a run in training first."""
    once: bool = False
    """Print the screen once as text, and end."""
    json: bool = False
    """Print the state of the run as one JSON object, and end."""

    def __call__(self) -> int:
        """Show the run until the user quits, or print it once.

        Raises:
            RunError: there is no run, or one of its files is damaged.
        """
        import time

        from flatwater.rundir.listing import newest_run
        from flatwater.tui.followed_run import follow_run
        from flatwater_watch.terminal import terminal

        # Read before the terminal is taken over: without a run the command ends here.
        followed_run = follow_run(self.run or newest_run(Path("runs"), "training", "stopped", "finished"))
        if self.json:
            import json
            import sys

            from flatwater.tui.printed_screen import as_json

            sys.stdout.write(json.dumps(as_json(followed_run, time.time()), indent=1) + "\n")
            return 0
        console = terminal()
        if self.once or not console.is_terminal:
            from flatwater.tui.printed_screen import print_once

            print_once(followed_run, console, time.time())
            return 0
        from flatwater.tui.app import Top as Screen

        screen = Screen(followed_run)
        fault = screen.run()
        if fault is not None:
            raise fault  # after the screen is closed, so that the message is seen
        return screen.return_code or 0
