"""The options of every command are written down in `options.txt`, so that a change of them shows in a diff.

A recipe's are written once, at `flatwater plan NAME`; other commands that take them all say so in a line. `make api`
writes the file anew.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from flatwater.cli.completion import read_help
from flatwater.cli.table import commands

LISTING = Path(__file__).with_name("options.txt")

END = "that was the help of"
LIGHT = """
import sys
from flatwater.cli.main import main
from flatwater.cli.table import commands
for command in [(), ("train",), ("panel",), *commands()]:
    try:
        main([*command, "--help"])
    except SystemExit as ended:
        assert ended.code in (0, None), command
    heavy = {"torch", "numpy", "polars", "matplotlib", "tensorboard", "gymnasium"} & {*sys.modules}
    assert not heavy, (command, heavy)
    print("that was the help of", command)
"""


def help_lines(command: tuple[str, ...]) -> list[str]:
    """The help of a command, for the terminal that the environment tells of."""
    return _help_lines(command, os.environ.get("COLUMNS"))


@cache
def _help_lines(command: tuple[str, ...], columns: str | None) -> list[str]:
    assert columns == os.environ.get("COLUMNS")
    return read_help(command).splitlines()


def explain_options(command: tuple[str, ...]) -> dict[str, str]:
    """Each option and each positional argument -> what the help says about it."""
    found: dict[str, str] = {}
    name = ""
    for line in help_lines(command):
        text = line.strip("│").strip()
        if not line.startswith("│") or set(text) <= {"─"}:
            name = ""
        elif re.match(r"│ (-|\[?[A-Z]+\]?  )", line):
            name, _, beside = text.partition("  ")
            found[name] = beside.strip()
        elif name:
            found[name] += " " + text
    return found


def listing() -> str:
    options = {command: list(explain_options(command)) for command in commands()}
    return "\n\n".join("\n  ".join(block(command, options)) for command in commands()) + "\n"


def block(command: tuple[str, ...], options: dict[tuple[str, ...], list[str]]) -> Iterator[str]:
    """The command, and its options: those of a recipe by the recipe's name."""
    own = options[command]
    yield " ".join(("flatwater", *command))
    recipe = max(
        (c for c in options if c[0] == "plan" and {*options[c]} < {*own}), key=lambda c: len(options[c]), default=None
    )
    yield from (name for name in own if recipe is None or name not in options[recipe])
    if recipe is not None:
        yield " ".join(("and those of flatwater", *recipe))


def test_the_options_are_those_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert listing().splitlines() == LISTING.read_text().splitlines(), "run `make api` and read the diff"


@pytest.mark.parametrize("command", commands(), ids=" ".join)
@pytest.mark.parametrize("columns", [80, 100])
def test_help_fits_the_terminal_and_explains_every_option(
    command: tuple[str, ...], columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = help_lines(command)
    assert lines[0].startswith(f"usage: flatwater {' '.join(command)} ")
    assert max(map(len, lines)) <= columns
    found = explain_options(command)
    assert len(found) >= 2
    for name, sentences in found.items():
        assert len(sentences.split()) >= 3, f"{name} is not explained: {sentences!r}"
        assert "None" not in sentences, f"{name}: what leaving it out means is said in words"


@pytest.mark.parametrize("package", ["flatwater", "flatwater_watch"])
def test_a_package_is_its_command_where_no_script_is_on_the_path(package: str) -> None:
    ended = subprocess.run([sys.executable, "-m", package, "--help"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout[:16], ended.stderr) == (0, "usage: flatwater", "")


def test_help_imports_nothing_heavy() -> None:
    """Of all commands in one process, one after the other: each is asked what it has imported."""
    ended = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    helps = ended.stdout.split(END)[:-1]
    assert len(helps) == len(commands()) + 3
    assert helps[0].startswith("usage: flatwater")
    assert all(said.partition("\n")[2].startswith("usage: flatwater") for said in helps[1:])


if __name__ == "__main__":
    os.environ["COLUMNS"] = "100"
    LISTING.write_text(listing())
