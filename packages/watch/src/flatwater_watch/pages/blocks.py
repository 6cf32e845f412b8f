"""The blocks of a page as data; `templates/blocks.j2` decides the looks of each.

Every text is escaped when it is put into the page. A section may also hold a text that `markupsafe.Markup` marks as
markup of the recipe's own.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.diagnose.finding_text import growth_end, headline
from flatwater_watch.diagnose.verdicts import VERDICTS
from flatwater_watch.pages.chart import Chart, Grid
from flatwater_watch.units import short_bytes


@dataclass(frozen=True)
class Piece:
    """Words within a text with a style of their own."""

    text: str
    kind: str = "code"
    """Style of the words: `code`, or a class of the style sheet."""
    href: str = ""
    """Address of a link; empty for none."""


Text = str | Piece | Sequence[str | Piece]


@dataclass(frozen=True)
class Paragraph:
    """One paragraph."""

    shape: ClassVar = "paragraph"
    text: Text
    kind: str = ""
    """Style of the paragraph: `reading` for explanations, `calm` for good news, `missing` for absent data."""


@dataclass(frozen=True)
class Heading:
    """A heading above blocks of a section."""

    shape: ClassVar = "heading"
    text: str


@dataclass(frozen=True)
class Listing:
    """Sentences below each other."""

    shape: ClassVar = "listing"
    sentences: Sequence[Text]
    kind: str = ""


@dataclass(frozen=True)
class Table:
    """A table that scrolls sideways where the page is narrow."""

    shape: ClassVar = "table"
    titles: Sequence[str]
    rows: Sequence[Sequence[Text]]
    words: int = 1
    """Number of columns on the left with words; the others have numbers and are aligned to the right."""


@dataclass(frozen=True)
class Lines:
    """Lines of a file, unchanged."""

    shape: ClassVar = "lines"
    lines: Sequence[Text]


@dataclass(frozen=True)
class Folded:
    """A block that opens at a click on its title."""

    shape: ClassVar = "folded"
    title: Text
    content: "Block"


@dataclass(frozen=True, kw_only=True)
class Card:
    """One finding, as sentences."""

    verdict: str
    grave: bool
    headline: str
    facts: Sequence[tuple[str, Text]]
    advice: Text
    since: str


@dataclass(frozen=True)
class Cards:
    """Cards of findings, each with the owner, the holders, the line, the end of memory, and advice."""

    shape: ClassVar = "cards"
    cards: Sequence[Card]


Block = Paragraph | Heading | Listing | Table | Lines | Folded | Cards | Chart | Grid | str


@dataclass(frozen=True, kw_only=True)
class Section:
    """One part of the page, with a heading that the list at the top links to."""

    title: str
    blocks: Sequence[Block]

    @property
    def anchor(self) -> str:
        """Name of the section in links."""
        return self.title.lower().replace(" ", "-")


class Tile(NamedTuple):
    """An important figure at the top of a page."""

    name: str
    value: str
    below: str = ""
    kind: str = ""
    """Style of the tile: `good`, `bad` or empty."""


def finding_cards(dated_findings: Iterable[tuple[Finding, str]]) -> Cards:
    """Make a card for each finding: first the grave findings, and among them most bytes first.

    Args:
        dated_findings: findings, each with a remark on when it was found, which may be empty.
    """
    largest_first = sorted(dated_findings, key=lambda dated: -dated[0].bytes_per_step)
    grave_first = sorted(largest_first, key=lambda dated: not is_grave(dated[0]))
    return Cards([_finding_card(finding, remark) for finding, remark in grave_first])


def is_grave(finding: Finding) -> bool:
    """Return whether a finding ends badly if nobody acts, such as a leak, or a buffer that does not fit."""
    return VERDICTS[finding.verdict].is_grave or finding.dies_first


def _finding_card(finding: Finding, remark: str) -> Card:
    """Make the card of a finding, without facts that have no text; the remark on when it was found may be empty."""
    low, high = (short_bytes(bound) for bound in finding.interval)
    share = f"{finding.share:.0%} of all growth; between {low} and {high} per {finding.unit}"
    remarks = [finding.what, *([share] if VERDICTS[finding.verdict].is_of_bytes else [])]
    facts: list[tuple[str, Text]] = [
        ("held by", [*_holder_chain(finding.holders)]),
        ("made at", "" if finding.made_at is None else Piece(str(finding.made_at))),
        ("what", "; ".join(part for part in remarks if part and part != headline(finding))),
        ("until", growth_end(finding)),
        ("note", finding.redundancy or ""),
    ]
    return Card(
        verdict=finding.verdict,
        grave=is_grave(finding),
        headline=headline(finding),
        facts=[(name, text) for name, text in facts if text],
        advice=[*_split_code(finding.advice or "")],
        since=remark,
    )


def _split_code(text: str) -> Iterator[str | Piece]:
    """Yield a text in parts, with those between two backticks as code; none for an empty text."""
    for number, part in enumerate(text.split("`")):
        if part:
            yield Piece(part) if number % 2 else part  # parts of odd number lie between two backticks


def _holder_chain(holders: Sequence[str]) -> Iterator[str | Piece]:
    """Yield the holders as code, with an arrow between two."""
    for number, holder in enumerate(holders):
        if number:
            yield " → "
        yield Piece(holder)
