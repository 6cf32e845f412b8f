"""Options that are read without the parser are read as the parser reads them, and mistakes are left to it."""

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest

from flatwater_watch.errors import ConfigError
from flatwater_watch.faces.command import WatchCommand
from flatwater_watch.options.bounds import Bounds
from flatwater_watch.options.parsing import read_options
from flatwater_watch.options.plain import HIDDEN_FIELD, read_plain


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command."""

    word: str = "a"
    """A word."""
    maybe: str | None = None
    """A word, or none."""
    place: Path | None = None
    """A file."""
    count: Annotated[int, Bounds(0, 9)] = 1
    """A number."""
    share: float = 0.5
    """A share."""
    number: int | None = None
    """A number, or none."""
    which: Literal["one", "two"] = "one"
    """One of two."""
    to_do: bool = False
    """Whether."""
    rest: tuple[str, ...] = field(default=(), metadata=HIDDEN_FIELD)


PLAIN = [
    [],
    ["--word", "b"],
    ["--word=b"],
    ["--word="],
    ["--word=b=c"],
    ["--word", "-"],
    ["--word", "a b\n"],
    ["--word=--x"],
    ["--maybe", "None"],
    ["--maybe", "x", "--to-do"],
    ["--to_do"],
    ["--place", "a/b.json", "--number", "7"],
    ["--number", "None", "--place", "None"],
    ["--count", "3", "--share", "1e-3", "--which", "two"],
    ["--share=-2", "--number=-4"],
]
LEFT = [
    ["--help"],
    ["-h"],
    ["--nothing", "1"],
    ["--rest", "x"],
    ["word"],
    ["--word"],
    ["--word", "--to-do"],
    ["--to-do=yes"],
    ["--no-to-do"],
    ["--count", "1.5"],
    ["--share", "x"],
    ["--which", "three"],
    ["--place", "s3://bucket/x"],
    ["--word", "a", "--word", "b"],
    ["--wor", "a"],
    ["--"],
    ["-"],
    [""],
]


@pytest.mark.parametrize("words", PLAIN, ids=" ".join)
def test_plain_options_are_read_as_the_parser_reads_them(words: list[str]) -> None:
    assert read_plain(Command, words) == read_options(Command, "flatwater command", words)


@pytest.mark.parametrize("words", LEFT, ids=" ".join)
def test_what_is_not_plain_is_left_to_the_parser(words: list[str]) -> None:
    assert read_plain(Command, words) is None


def test_bounds_are_told_alike() -> None:
    with pytest.raises(ConfigError) as plain:
        read_plain(Command, ["--count", "10"])
    with pytest.raises(ConfigError) as parsed:
        read_options(Command, "flatwater command", ["--count", "10"])
    assert str(plain.value) == str(parsed.value)


@pytest.mark.parametrize(
    "words", [["train.py"], ["--json", "--every", "10m", "--", "train.py"], ["--fail", "train.py"]]
)
def test_a_watch_is_read_without_the_parser(words: list[str]) -> None:
    source = "import sys\nfrom flatwater_watch.faces.command import WatchCommand\n"
    source += f"WatchCommand.read('flatwater watch', {words!r})\n"
    source += "print([name for name in ('tyro', 'typeguard', 'asyncio') if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
    assert WatchCommand.read("flatwater watch", words).command == ("train.py",)
