"""All commands by their words: those that take a recipe, and those of installed packages."""

from collections.abc import Mapping, Sequence
from functools import cache

from flatwater.plugins import group_rows
from flatwater.tables import COMMANDS
from flatwater_watch.tables import COMMANDS as OF_THE_FINDER

RECIPE_COMMANDS = {
    "train": ("flatwater.cli.train:Train", ""),
    "plan": (
        "flatwater.cli.plan:PlanCommand",
        "show the memory that a run of {} would use, by owner, before it starts",
    ),
    "sweep": ("flatwater.cli.sweep:SweepCommand", "search for the settings with which {} trains best"),
}
"""Commands that take a recipe, as `flatwater train erl`, and have its settings as options: the class, and a line of
help with `{}` for the recipe. The line of `train` is that of the recipe."""


Row = tuple[str, str]
"""The class that is a command's interface, and one line of help."""


@cache
def shipped_commands() -> Mapping[tuple[str, ...], Row]:
    """Return the commands of Flatwater and its finder, which are known without a search of installed packages."""
    return {tuple(words.split()): row for words, row in {**COMMANDS, **OF_THE_FINDER}.items()}


def match_command(words: Sequence[str]) -> tuple[str, ...] | None:
    """Return the longest command that the words begin with; None if there is none."""
    # Installed packages are searched only if no command that ships fits.
    for table in (shipped_commands, commands):
        if fitting := [command for command in table() if tuple(words[: len(command)]) == command]:
            return max(fitting, key=len)
    return None


def command_row(command: tuple[str, ...]) -> Row:
    """Return the class and the line of help of a known command."""
    return shipped_commands().get(command) or commands()[command]


@cache
def commands() -> Mapping[tuple[str, ...], Row]:
    """Return the class and the line of help of every command, in the order of the packages' tables.

    A command's module is imported when the command is used.

    Raises:
        ConfigError: two installed packages have a command of the same name.
    """
    # Each command that takes a recipe, with each recipe. The form of `train` is empty: its line is the recipe's own.
    recipe_commands = {
        (verb, name): (import_path, form.format(f"`train {name}`") or recipe_line)
        for verb, (import_path, form) in RECIPE_COMMANDS.items()
        for name, (_, recipe_line) in group_rows("recipes").items()
    }
    return recipe_commands | {tuple(words.split()): row for words, row in group_rows("commands").items()}
