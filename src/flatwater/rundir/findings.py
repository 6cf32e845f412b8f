"""The findings of a run, read back from `findings.jsonl`, and in words for the page and the screen."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flatwater.errors import RunError
from flatwater.memory.diagnose.finding import Finding, Verdict
from flatwater.units import format_bytes

HEADLINES: dict[Verdict, str] = {
    "leak": "{owner} grows by {rate}, and nothing ends it",
    "filling": "{owner} is filling by {rate}",
    "retention": "The allocator keeps {rate} that the program has freed",
    "backlog": "{owner} takes in more than is taken out: {rate} stay",
    "cache": "The cache {owner} grows by {rate}",
    "mapped": "Pages of mapped files come in: {rate}",
    "native": "Native memory grows by {rate}, and no object of the program explains it",
    "slowdown": "{what}",
}

GRAVE: frozenset[Verdict] = frozenset({"leak", "backlog", "native", "slowdown"})
"""Verdicts that end badly if nobody acts; the others are told so that nobody takes them for a leak."""


def finding_of(record: dict[str, Any], path: Path) -> tuple[int, Finding]:
    """A line of `findings.jsonl`: the round in which it was found, and the finding.

    Raises:
        RunError: the line was written by a version whose findings look different.
    """
    try:
        return record["round"], Finding.from_json({name: record[name] for name in record if name != "round"})
    except (KeyError, TypeError, ValueError, OverflowError) as fault:
        raise RunError(
            f"{path}: the line of round {record.get('round')} cannot be read ({fault!r}). "
            "Show the run with the version of Flatwater that trained it."
        ) from fault


def newest(found: Iterable[tuple[int, Finding]]) -> list[tuple[int, Finding]]:
    """Each finding once, with the numbers told last: a later line may have the same fingerprint."""
    return list({finding.fingerprint: (round_, finding) for round_, finding in found}.values())


def headline(finding: Finding) -> str:
    """What grows and by how much, in one sentence without its full stop."""
    rate = f"{format_bytes(finding.bytes_per_step)} {'an' if finding.unit[0] in 'aeiou' else 'a'} {finding.unit}"
    return HEADLINES[finding.verdict].format(owner=finding.owner, rate=rate, what=finding.what)
