"""Makes the cards of a page, one for each finding of the watch: grave findings first, then most bytes first."""

from collections.abc import Iterable, Iterator, Sequence

from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.diagnose.finding_text import growth_end, headline
from flatwater_watch.diagnose.verdicts import VERDICTS
from flatwater_watch.pages.blocks import Card, Cards, Piece, Text
from flatwater_watch.units import short_bytes


def finding_cards(dated_findings: Iterable[tuple[Finding, str]]) -> Cards:
    """Make a card for each finding: first the grave findings, and among them most bytes first.

    Args:
        dated_findings: findings, each with a remark on when it was found, which may be empty.
    """
    # Two sorts: the second keeps the order of the first among equals.
    largest_first = sorted(dated_findings, key=lambda dated: -dated[0].bytes_per_step)
    grave_first = sorted(largest_first, key=lambda dated: not is_grave(dated[0]))
    return Cards([_finding_card(finding, remark) for finding, remark in grave_first])


def is_grave(finding: Finding) -> bool:
    """Return whether a finding ends badly if nobody acts, such as a leak, or a buffer that does not fit into memory."""
    return VERDICTS[finding.verdict].is_grave or finding.dies_first


def _finding_card(finding: Finding, remark: str) -> Card:
    """Make the card of a finding, without facts that have no text."""
    low, high = (short_bytes(bound) for bound in finding.interval)
    descriptions = [finding.what]
    if VERDICTS[finding.verdict].is_of_bytes:  # else it is on time, such as a slowdown
        descriptions.append(f"{finding.share:.0%} of all growth; between {low} and {high} per {finding.unit}")
    # Of some verdicts `finding.what` is the headline already.
    shown_descriptions = [text for text in descriptions if text and text != headline(finding)]
    facts: list[tuple[str, Text]] = [
        ("held by", [*_join_holders(finding.holders)]),
        ("made at", "" if finding.made_at is None else Piece(str(finding.made_at))),
        ("what", "; ".join(shown_descriptions)),
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
    """Yield the parts of a text, those between two backticks as code; nothing for an empty text."""
    for number, part in enumerate(text.split("`")):
        if part:
            yield Piece(part) if number % 2 else part  # parts of odd number lie between two backticks


def _join_holders(holders: Sequence[str]) -> Iterator[str | Piece]:
    """Yield the names of holders as code, with an arrow between two: `model → cache → dict`."""
    for number, holder in enumerate(holders):
        if number:
            yield " → "
        yield Piece(holder)
