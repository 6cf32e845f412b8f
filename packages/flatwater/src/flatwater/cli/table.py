"""All commands by their words: those over recipes, and those that installed packages bring."""

from collections.abc import Mapping
from functools import cache

from flatwater.plugins import group_rows

OVER_RECIPES = {
    "train": ("flatwater.cli.train:Train", ""),
    "plan": (
        "flatwater.cli.plan:PlanCommand",
        "show the memory that a run of {} would hold, by owner, before it starts",
    ),
    "sweep": ("flatwater.cli.sweep:SweepCommand", "search for the settings with which {} trains best"),
}
"""Commands that a recipe belongs to, `flatwater train erl`: its settings are their options. What `train` does is
the recipe's to say."""


@cache
def commands() -> Mapping[tuple[str, ...], tuple[str, str]]:
    """Words of a command -> the class that is its interface, and one line of help.

    A module is imported when its command is used. Commands stand in the order of their packages' tables.

    Raises:
        ConfigError: two installed packages have a command of the same name.
    """
    over_recipes = {
        (verb, name): (where, line.format(f"`train {name}`") or does)
        for verb, (where, line) in OVER_RECIPES.items()
        for name, (_, does) in group_rows("recipes").items()
    }
    return over_recipes | {tuple(words.split()): row for words, row in group_rows("commands").items()}
