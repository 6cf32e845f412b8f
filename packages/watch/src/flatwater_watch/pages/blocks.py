"""The blocks of a page as data; `templates/blocks.j2` decides the looks of each by its `shape`.

Every text is escaped when it is put into the page. A section may also hold a text that `markupsafe.Markup` marks as
markup of the recipe's own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from flatwater_watch.pages.chart import Chart, Grid


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
    """Style of the list: as that of a paragraph."""


@dataclass(frozen=True)
class Table:
    """A table that scrolls sideways where the page is narrow."""

    shape: ClassVar = "table"
    titles: Sequence[str]
    rows: Sequence[Sequence[Text]]
    text_columns: int = 1
    """Number of columns on the left with text; the others have numbers and are aligned to the right."""


@dataclass(frozen=True)
class Lines:
    """Lines of a file, unchanged."""

    shape: ClassVar = "lines"
    lines: Sequence[Text]


@dataclass(frozen=True)
class FoldedBlock:
    """A block that opens at a click on its title."""

    shape: ClassVar = "folded"
    title: Text
    content: "Block"


@dataclass(frozen=True, kw_only=True)
class Card:
    """One finding, as sentences."""

    verdict: str
    grave: bool
    """Whether the finding ends badly if nobody acts; else its card has milder colours."""
    headline: str
    facts: Sequence[tuple[str, Text]]
    """Name and text of each line below the headline."""
    advice: Text
    since: str
    """Text on when it was found; empty for none."""


@dataclass(frozen=True)
class Cards:
    """Cards of findings, each with the owner, the holders, the line, the end of memory, and advice."""

    shape: ClassVar = "cards"
    cards: Sequence[Card]


Block = Paragraph | Heading | Listing | Table | Lines | FoldedBlock | Cards | Chart | Grid | str


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
    """Small text below the value."""
    kind: str = ""
    """Style of the tile: `good`, `bad` or empty."""
