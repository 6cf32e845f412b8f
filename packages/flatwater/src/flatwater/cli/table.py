"""All commands by their words: those over recipes, and those that installed packages bring."""

from collections.abc import Mapping, Sequence
from functools import cache

from flatwater.plugins import group_rows
from flatwater.tables import COMMANDS
from flatwater_watch.tables import COMMANDS as OF_THE_FINDER

OVER_RECIPES = {
    "train": ("flatwater.cli.train:Train", ""),
    "plan": (
        "flatwater.cli.plan:PlanCommand",
        "show the memory that a run of {} would use, by owner, before it starts",
    ),
    "sweep": ("flatwater.cli.sweep:SweepCommand", "search for the settings with which {} trains best"),
}
"""Commands that belong to a recipe, `flatwater train erl`: its settings are their options. The recipe itself says what
`train` does."""


Row = tuple[str, str]
"""The class that is a command's interface, and one line of help."""


@cache
def shipped_commands() -> Mapping[tuple[str, ...], Row]:
    """The commands of the platform and of the finder, which it depends on: they are there without a search."""
    return {tuple(words.split()): row for words, row in {**COMMANDS, **OF_THE_FINDER}.items()}


def match_command(words: Sequence[str]) -> tuple[str, ...] | None:
    """The longest command that the words begin with. Installed packages are searched where none that ships is one."""
    for table in (shipped_commands, commands):
        if named := [command for command in table() if tuple(words[: len(command)]) == command]:
            return max(named, key=len)
    return None


def command_row(command: tuple[str, ...]) -> Row:
    """The row of a command that was found."""
    return shipped_commands().get(command) or commands()[command]


@cache
def commands() -> Mapping[tuple[str, ...], Row]:
    """Return, by the words of a command, the class that is its interface, and one line of help.

    A module is imported when its command is used. Commands stand in the order of their packages' tables.

    Raises:
        ConfigError: two installed packages have a command of the same name.
    """
    over_recipes = {
        (verb, name): (import_path, line.format(f"`train {name}`") or does)
        for verb, (import_path, line) in OVER_RECIPES.items()
        for name, (_, does) in group_rows("recipes").items()
    }
    return over_recipes | {tuple(words.split()): row for words, row in group_rows("commands").items()}
