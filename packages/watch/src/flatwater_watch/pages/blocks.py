"""What a page contains, as data: `templates/blocks.j2` says how each block looks.

A text is escaped where it is put into the page, whoever it comes from. A section may also hold a text that
`markupsafe.Markup` marks as markup of the recipe's own.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.diagnose.headline import GRAVE, headline
from flatwater_watch.pages.chart import Chart, Grid
from flatwater_watch.units import short_bytes


@dataclass(frozen=True)
class Piece:
    """Words within a text that look unlike it."""

    text: str
    kind: str = "code"
    """`code`, or a class of the style sheet."""
    href: str = ""
    """Where a click leads."""


Text = str | Piece | Sequence[str | Piece]


@dataclass(frozen=True)
class Paragraph:
    """One paragraph."""

    shape: ClassVar = "paragraph"
    text: Text
    kind: str = ""
    """`reading` explains, `calm` is good news, `missing` says what is not there."""


@dataclass(frozen=True)
class Heading:
    """Stands above blocks of a section."""

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
    """Columns on the left that hold words; the others hold numbers and are set to the right."""


@dataclass(frozen=True)
class Lines:
    """Lines of a file, as they stand there."""

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
    """Findings: what grows, who holds it, where it was made, when memory ends, and what to do."""

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
        """What a link to it names."""
        return self.title.lower().replace(" ", "-")


class Tile(NamedTuple):
    """What matters most, at the top of a page."""

    name: str
    value: str
    below: str = ""
    kind: str = ""
    """`good`, `bad` or empty."""


def finding_cards(found: Iterable[tuple[Finding, str]]) -> Cards:
    """A card for each: those that end badly first, most bytes first among them.

    Args:
        found: findings, each with a remark on when it was found, which may be empty.
    """
    grave = sorted(found, key=lambda each: (not is_grave(each[0]), -each[0].bytes_per_step))
    return Cards([_card(finding, since) for finding, since in grave])


def is_grave(finding: Finding) -> bool:
    """Whether it ends badly if nobody acts: a buffer does that fills, and does not fit."""
    return finding.verdict in GRAVE or finding.dies_first


def _card(finding: Finding, since: str) -> Card:
    low, high = (short_bytes(bound) for bound in finding.interval)
    share = f"{finding.share:.0%} of all growth; between {low} and {high} per {finding.unit}"
    what = [finding.what, *([share] if finding.verdict != "slowdown" else [])]
    facts: list[tuple[str, Text]] = [
        ("held by", [*_chain(finding.holders)]),
        ("made at", "" if finding.made_at is None else Piece(str(finding.made_at))),
        ("what", "; ".join(part for part in what if part and part != headline(finding))),
        ("until", finding.until()),
        ("note", finding.redundancy or ""),
    ]
    return Card(
        verdict=finding.verdict,
        grave=is_grave(finding),
        headline=headline(finding),
        facts=[(name, said) for name, said in facts if said],
        # What stands between two backticks of an advice is code.
        advice=[Piece(part) if at % 2 else part for at, part in enumerate((finding.advice or "").split("`")) if part],
        since=since,
    )


def _chain(holders: Sequence[str]) -> Iterator[str | Piece]:
    for at, holder in enumerate(holders):
        if at:
            yield " → "
        yield Piece(holder)
