"""The table of what was trained against what it is compared with."""

from collections.abc import Mapping
from typing import Any

from flatwater.reports.markup import Html, table
from flatwater.runs.kind import Kind


def result_table(kind: Kind, result: Mapping[str, Any]) -> Html:
    """A row for each that was compared; blank where it has no such number."""
    rows = [
        (
            who,
            *(
                number.form.format(row[number.key]) if row.get(number.key) is not None else ""
                for number in kind.numbers
            ),
        )
        for who, row in result[kind.players].items()
    ]
    return table((kind.players.removesuffix("s"), *(number.title for number in kind.numbers)), rows)
