"""Blocks about a run's result: its table, that of the holdout, and the reason where one is missing."""

from collections.abc import Iterator, Mapping
from typing import Any

from flatwater.description import Description, measured_numbers
from flatwater.reports.records import RunRecords
from flatwater.rundir.results import earlier_result_note
from flatwater_watch.pages.blocks import Block, Heading, Paragraph, Piece, Table


def missing_paragraph(noun: str, file: str, state: str, written_when: str = "at the end of a run") -> Paragraph:
    """Return a paragraph that says why a file of a run in this state is not there.

    Args:
        noun: noun for the missing thing, such as `ledger`.
        file: name of the missing file in the run folder.
        state: state of the run, which gives the reason; any but training and stopped: the file was never written, or is
            gone.
        written_when: when the file is written.
    """
    states = {"training": "This run is in training.", "stopped": "This run was stopped; it can be resumed."}
    reason = states.get(state, "The version that trained this run did not write the file, or the file was removed.")
    return Paragraph((f"There is no {noun} here: ", Piece(file), f" is written {written_when}. {reason}"), "missing")


def result_table(recipe: Description, result: Mapping[str, Any]) -> Table:
    """Return a table with a row for each player, a column for each number that a player has."""
    numbers = measured_numbers(recipe, result)
    rows = [
        (
            player,
            *(number.write(row[number.key]) if row.get(number.key) is not None else "" for number in numbers),
        )
        for player, row in result[recipe.players].items()
    ]
    row_title = recipe.players.removesuffix("s")  # `player` for `players`
    return Table((row_title, *(number.title for number in numbers)), rows)


def age_blocks(run: RunRecords, result: Mapping[str, Any] | None) -> Iterator[Block]:
    """Yield a paragraph that says of which round a result is, where the run has gone further."""
    if (round_ := run.round_if_earlier(result)) is not None:
        yield Paragraph(f"Not the newest: {earlier_result_note(round_, run.done)}.", "missing")


def holdout_blocks(run: RunRecords) -> Iterator[Block]:
    """Yield blocks of the last result on the holdout; nothing if the holdout was never used."""
    if run.holdout is not None:
        yield Heading(run.recipe.result_title(run.holdout))
        yield from age_blocks(run, run.holdout)
        yield result_table(run.recipe, run.holdout)
        yield Paragraph(f"{run.holdout.get('verdict') or ''} Note: {run.holdout.get('note', '')}.".strip(), "reading")
