"""The layout of results that all recipes on a panel share: a title, the numbers of an account, and the panel's name."""

from collections.abc import Mapping
from typing import Any

from flatwater.recipe import Number

DAYS_TITLE = "{split} days {first_day} to {last_day} ({days} {days:row})"
"""Title of a result on a panel."""


def account_numbers(*recipe_numbers: Number) -> tuple[Number, ...]:
    """Return the numbers that a result shows of an account; in the middle `recipe_numbers`, which only a recipe has."""
    # Title, name in result.json, and format.
    return (
        Number("return", "total_return", "{:+.1%}"),
        Number("Sharpe", "sharpe", "{:.2f}"),
        Number("drawdown", "drawdown", "{:.1%}"),
        Number("exposure", "exposure", "{:.0%}"),
        Number("trades", "trades", "{:.0f}"),
        *recipe_numbers,
        Number("Sortino", "sortino", "{:.2f}"),
        Number("Calmar", "calmar", "{:.2f}"),
        Number("alpha a year", "alpha", "{:+z.1%}"),
        Number("beta", "beta", "{:.2f}"),
    )


def panel_title(settings: Mapping[str, Any]) -> str:
    """Return the name of the panel that a run learned from."""
    return str(settings.get("panel") or "the panel that comes with Flatwater")
