"""A page that lists many runs: a row for each with a link to its report, and the number of runs in each state."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from shlex import quote as shell_quoted
from urllib.parse import quote

from flatwater.rundir.layout import RunFolder
from flatwater.rundir.listing import RunLine, shown_score
from flatwater_watch.pages.blocks import Block, Paragraph, Piece, Section, Table, Text, Tile
from flatwater_watch.pages.document import document
from flatwater_watch.units import format_bytes, short_bytes

STATE_ORDER = ("training", "stopped", "finished", "unreadable")


def index_page(runs: Sequence[RunLine], folder: Path, page_folder: Path, sort: str | None) -> str:
    """Return the whole page.

    Args:
        runs: lines of the runs, in the order in which they are shown.
        folder: folder of the runs.
        page_folder: the folder of the page, from which links lead.
        sort: name of the number by which they are sorted; None if they are not.
    """
    sections = [Section(title="Runs", blocks=[*_runs_table(runs, folder, page_folder, sort)])]
    problems = [f"{run.name}: {run.problem}" for run in runs if run.problem]
    if problems:
        sections.append(Section(title="Unreadable", blocks=[Paragraph(problem) for problem in problems]))
    subtitle = f"{folder.resolve()}{'' if sort is None else f' · sorted by {sort}, the highest first'}"
    return document(
        f"{len(runs)} runs",
        subtitle=subtitle,
        tiles=_state_tiles(runs),
        sections=sections,
        footer=f"Written by Flatwater from the runs' folders, {datetime.now().astimezone():%Y-%m-%d %H:%M %Z}.",
    )


def _state_tiles(runs: Sequence[RunLine]) -> Iterator[Tile]:
    """Yield the number of runs in each state, and the bytes of all."""
    count = Counter(run.state for run in runs)
    for state in STATE_ORDER:
        if count[state]:
            yield Tile(state, str(count[state]), kind="bad" if state == "unreadable" else "")
    yield Tile("together", short_bytes(sum(run.bytes for run in runs)), below="on the disk")


def _runs_table(runs: Sequence[RunLine], folder: Path, page_folder: Path, sort: str | None) -> Iterator[Block]:
    """Yield the table of the runs, and the command that writes a report for a run without one.

    Args:
        runs: lines of the runs, in the order in which they are shown.
        folder: folder of the runs.
        page_folder: folder of the page, from which links lead.
        sort: name of the number that they are sorted by; None shows the score.
    """
    tags = ["tags"] if any(run.tag for run in runs) else []
    titles = ("run", "recipe", "state", *tags, "rounds", sort or "score", "size", "last change")
    # Columns of text come first: run, recipe, state and, if there are any, tags.
    yield Table(
        titles,
        [_run_cells(run, folder, page_folder, sort, with_tags=bool(tags)) for run in runs],
        text_columns=3 + len(tags),
    )
    for run in runs:
        if run.result_note:
            yield Paragraph(f"{run.name}: {run.result_note}", "reading")
    unreported_names = [
        run.name for run in runs if not run.problem and not RunFolder(folder / run.name).report.is_file()
    ]
    if unreported_names:
        command = f"flatwater report {shell_quoted(str(folder / unreported_names[0]))}"
        noun_phrase = "1 run has" if len(unreported_names) == 1 else f"{len(unreported_names)} runs have"
        sentence = f"{noun_phrase} no report yet, and so no link. Write it with: "
        yield Paragraph((sentence, Piece(command)), "reading")


def _run_cells(run: RunLine, folder: Path, page_folder: Path, sort: str | None, *, with_tags: bool) -> tuple[Text, ...]:
    """Return a run's cells in the order of the titles in `_runs_table`; the name links to the report, if there is one.

    Args:
        run: the run.
        folder: folder of the runs.
        page_folder: folder of the page, from which links lead.
        sort: name of the number that is shown; None shows the score.
        with_tags: whether the table has a column of tags.
    """
    report = RunFolder(folder / run.name).report
    # Relative, so that links hold where both folders are moved together; quoted, as names may hold spaces and more.
    href = quote(os.path.relpath(report.resolve(), page_folder)) if report.is_file() else ""
    return (
        Piece(run.name, kind="", href=href),
        run.trainer,
        Piece(run.state, kind=f"state {run.state}"),
        *([", ".join(run.tag)] if with_tags else []),
        f"{run.done}/{run.rounds}",
        shown_score(run, sort),
        format_bytes(run.bytes),
        run.changed,
    )
