"""Findings as cards: what grows, who holds it, where it was made, when memory ends, and what to do."""

from collections.abc import Iterable, Iterator, Sequence

from flatwater.memory.diagnose.finding import Finding
from flatwater.reports.markup import Html, tag, text
from flatwater.rundir.findings import GRAVE, headline
from flatwater.units import format_bytes


def finding_cards(found: Iterable[tuple[Finding, str]]) -> Html:
    """A card for each: those that end badly first, most bytes first among them.

    Args:
        found: findings, each with a remark on when it was found, which may be empty.
    """
    grave = sorted(found, key=lambda each: (each[0].verdict not in GRAVE, -each[0].bytes_per_step))
    return tag("div", [_card(finding, since) for finding, since in grave], class_="findings")


def _card(finding: Finding, since: str) -> Html:
    """One finding as sentences."""
    low, high = (format_bytes(bound) for bound in finding.interval)
    share = f"{finding.share:.0%} of all growth; between {low} and {high} per {finding.unit}"
    what = [finding.what, *([share] if finding.verdict != "slowdown" else [])]
    rows = (
        ("held by", text(_chain(finding.holders))),
        ("made at", tag("code", str(finding.made_at)) if finding.made_at is not None else Html()),
        ("what", text("; ".join(part for part in what if part and part != headline(finding)))),
        ("until", text(finding.until())),
        ("note", text(finding.redundancy or "")),
        ("what to do", tag("strong", _with_code(finding.advice)) if finding.advice else Html()),
    )
    kind = "grave" if finding.verdict in GRAVE else "mild"
    facts = [piece for name, value in rows if value for piece in (tag("dt", name), tag("dd", value))]
    head = [tag("span", finding.verdict, class_="verdict"), f"{headline(finding)}."]
    below = [tag("span", since, class_="since")] if since else []
    return tag("article", [tag("h3", head), tag("dl", facts), *below], class_=f"finding {kind}")


def _with_code(advice: str) -> Iterator[Html]:
    """What stands between two backticks is code."""
    for at, piece in enumerate(advice.split("`")):
        yield tag("code", piece) if at % 2 else text(piece)


def _chain(holders: Sequence[str]) -> Iterator[Html]:
    for at, holder in enumerate(holders):
        if at:
            yield Html(" → ")
        yield tag("code", holder)
