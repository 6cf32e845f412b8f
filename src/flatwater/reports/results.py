"""The table of what was trained against what it is compared with."""

from collections.abc import Mapping
from typing import Any

from flatwater.recipe import Recipe
from flatwater.reports.markup import Html, table


def result_table(recipe: Recipe, result: Mapping[str, Any]) -> Html:
    """A row for each that was compared, a column for each number that one of them has; blank where it has not."""
    measured = recipe.measured(result)
    rows = [
        (
            who,
            *(number.form.format(row[number.key]) if row.get(number.key) is not None else "" for number in measured),
        )
        for who, row in result[recipe.players].items()
    ]
    return table((recipe.players.removesuffix("s"), *(number.title for number in measured)), rows)
