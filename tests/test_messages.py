"""The words that each distribution says stand in `messages/`, a file each, so that a change of them shows in a diff.

`make api` writes the files anew. Tests elsewhere compare what a message is about (its setting, its value, the command
to type), never its prose: whoever mends a sentence mends it in one place, and reads it here beside its neighbours.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LISTINGS = Path(__file__).with_name("messages")
PACKAGES = {path.parent.name: path for path in ROOT.glob("packages/*/src")}
PROSE = re.compile(r"(?<![\w.<-])[A-Za-z][a-z]+,? [a-z]+\b")
"""Two words after each other: what a person reads, unlike names, patterns and formats."""
CODE = re.compile(r"^\s*(<|import |from |def |SELECT |@|\(function)|</|[{;]\n|\(\?")
"""Parts of pages, scripts and patterns that have words in them."""
HOUSE_WORDS = re.compile(
    r"\b([Ww]anted (is|are)|(is|are) wanted|expected (is|are)|Known here|[Ww]ho knows|stands? (in|there|here|behind)"
    r"|is told|that of|those of|(is|are) none|of yours|of one's own)\b|must (be|have) .*, not \{\}$"
)
"""Phrases that only this house says. A message reads `field = value: expected X, got Y`, and then what to type."""


def texts(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of each string below a node that is no docstring, what is filled in as `{}`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue  # a docstring, of a field or constant too
        if isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child.lineno, child.value
        elif isinstance(child, ast.JoinedStr):
            parts = (str(part.value) if isinstance(part, ast.Constant) else "{}" for part in child.values)
            yield child.lineno, "".join(parts)
            for filled in child.values:
                if isinstance(filled, ast.FormattedValue):
                    yield from texts(filled)
        else:
            yield from texts(child)


def messages(path: Path) -> Iterator[str]:
    """The sentences of a module in their order, each on a line of its own."""
    for _, text in sorted(texts(ast.parse(path.read_text())), key=lambda found: found[0]):
        if PROSE.search(text) and not CODE.search(text):
            yield re.sub(r"\s+", " ", text).strip()


def listing(source: Path) -> str:
    """The messages of a distribution, a module in a paragraph."""
    said = {path: list(messages(path)) for path in sorted(source.rglob("*.py"))}
    names = {path: ".".join(path.relative_to(source).with_suffix("").parts) for path in said}
    return "\n\n".join("\n  ".join([names[path], *lines]) for path, lines in said.items() if lines) + "\n"


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_messages_are_those_written_down(package: str) -> None:
    written = LISTINGS.joinpath(f"{package}.txt").read_text()
    assert listing(PACKAGES[package]).splitlines() == written.splitlines(), "run `make api` and read the diff"


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_messages_are_in_plain_english(package: str) -> None:
    assert [line for line in listing(PACKAGES[package]).splitlines() if HOUSE_WORDS.search(line)] == []


@pytest.mark.parametrize(
    "line",
    [
        "{}: {}. Wanted is {}",
        "{} gives a {}; wanted are Members",
        "{} is no tracker: wanted is a class with write(round, metrics)",
        "{} = {}: must be {}, not {}",
        "{} and {} cores are wanted, {} are there",
        "{} stands in {}.",
        "Who knows that it is gone can remove {}",
    ],
)
def test_a_phrase_of_the_house_is_found(line: str) -> None:
    assert HOUSE_WORDS.search(line)


if __name__ == "__main__":
    LISTINGS.mkdir(exist_ok=True)
    for name, source in PACKAGES.items():
        LISTINGS.joinpath(f"{name}.txt").write_text(listing(source))
