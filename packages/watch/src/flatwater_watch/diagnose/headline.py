"""A finding in one sentence, and the verdicts that end badly if nobody acts."""

from flatwater_watch.diagnose.finding import Finding, Verdict
from flatwater_watch.units import format_bytes

HEADLINES: dict[Verdict, str] = {
    "leak": "{grows} by {rate}, and nothing ends it",
    "filling": "{owner} {is_} filling by {rate}",
    "retention": "The allocator keeps {rate} that the program has freed",
    "backlog": "{owner} {takes} in more than is taken out: {rate} stay",
    "cache": "The cache {owner} grows by {rate}",
    "mapped": "Pages of mapped files come in: {rate}",
    "native": "Native memory grows by {rate}, and no object of the program explains it",
    "slowdown": "{what}",
}

GRAVE: frozenset[Verdict] = frozenset({"leak", "backlog", "native", "slowdown"})
"""Verdicts that end badly if nobody acts; the others are reported so that nobody takes them for a leak."""


def headline(finding: Finding) -> str:
    """The owner and its rate in one sentence, without its full stop."""
    rate = f"{format_bytes(finding.bytes_per_step)} {'an' if finding.unit[0] in 'aeiou' else 'a'} {finding.unit}"
    return HEADLINES[finding.verdict].format(
        owner=finding.owner,
        grows=finding.grows,
        is_=finding.verb("is", "are"),
        takes=finding.verb("takes", "take"),
        rate=rate,
        what=finding.what,
    )
