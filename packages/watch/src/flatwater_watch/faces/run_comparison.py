"""The changes from one watched run to another: bytes by kind of memory and by owner, and new findings."""

from collections.abc import Iterator, Mapping
from typing import Any

from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.diagnose.finding_text import WIDTH
from flatwater_watch.units import short_bytes

MAXIMUM_OWNERS = 12
"""Maximum number of owners that are listed."""
MINIMUM_SHARE = 0.02
"""Minimum size of a change that is shown, as a share of the largest change."""
MINIMUM_BYTES = 1 << 16
"""Minimum size of a change that is shown, in bytes."""
SAME_CHANGE_SHARE = 0.8
"""Share of an owner's change from which on a container below it is listed instead of the owner."""
ITEM_SUFFIXES = "[*]", "[*].<graph>"
"""Endings of the paths of a container's items, and of their autograd graphs."""
NAME, NUMBER = 56, 12


def comparison_lines(now: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[str]:
    """The comparison as lines of text.

    Args:
        now: the JSON of `flatwater watch`.
        before: the JSON of an earlier run.
    """
    yield f"{'against the run before':<{NAME}}{'then':>{NUMBER}}{'now':>{NUMBER}}{'change':>{NUMBER}}"
    for name, earlier, later in (*_kind_lines(now, before), *_owner_lines(_owner_bytes(now), _owner_bytes(before))):
        sign = "+" if later >= earlier else "-"
        change = f"{sign}{short_bytes(abs(later - earlier))}" if later != earlier else "none"
        label = name if len(name) < NAME - 2 else f"…{name[len(name) - NAME + 4 :]}"
        yield f"  {label:<{NAME - 2}}{short_bytes(earlier):>{NUMBER}}{short_bytes(later):>{NUMBER}}{change:>{NUMBER}}"
    if not _owner_bytes(now) or not _owner_bytes(before):
        when = "one of them" if _owner_bytes(now) or _owner_bytes(before) else "both"
        yield f"  owners are not known in {when}: objects are counted where memory grows"
    yield from _finding_lines(now, before)


def _owner_bytes(summary: Mapping[str, Any]) -> dict[str, int]:
    """Bytes by owner at the newest census; empty for earlier versions, which wrote none."""
    return dict(summary.get("held", {}))


def _kind_lines(now: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
    """Kinds of memory with the last reading of both runs."""
    columns = {"resident_bytes": "resident", "file_bytes": "of it mapped files", "freed_bytes": "of it freed and kept"}
    for column, name in columns.items():
        earlier, later = ((each.get("series", {}).get(column) or [None])[-1] for each in (before, now))
        if earlier is not None and later is not None:
            yield name, earlier, later


def _owner_lines(now: Mapping[str, int], before: Mapping[str, int]) -> list[tuple[str, int, int]]:
    """Lines of owners whose bytes changed, with both sizes, the largest change first."""
    if not now or not before:
        return []
    changes = {owner: now.get(owner, 0) - before.get(owner, 0) for owner in {*now, *before}}
    threshold = max(MINIMUM_BYTES, MINIMUM_SHARE * max((abs(change) for change in changes.values()), default=0))
    listed = [
        owner for owner, change in changes.items() if abs(change) >= threshold and not _is_redundant(owner, changes)
    ]
    listed.sort(key=lambda owner: (-abs(changes[owner]), owner))
    return [(owner, before.get(owner, 0), now.get(owner, 0)) for owner in listed[:MAXIMUM_OWNERS]]


def _is_redundant(owner: str, changes: Mapping[str, int]) -> bool:
    """Whether the change of an owner is listed under another path, as an owner's bytes include those below it.

    That is the container whose items the owner is, or an owner below it with nearly the same change.
    """
    if any(owner.endswith(items) and owner.removesuffix(items) in changes for items in ITEM_SUFFIXES):
        return True  # items of a container that is listed itself
    below = (inner for inner in changes if inner.startswith((f"{owner}.", f"{owner}[")))
    below = (inner for inner in below if inner.removeprefix(owner) not in ITEM_SUFFIXES)
    return any(changes[inner] / changes[owner] >= SAME_CHANGE_SHARE for inner in below if changes[owner])


def _finding_lines(now: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[str]:
    """Lines of findings that are new, still there or gone, by their fingerprints."""
    latest, earlier = ([Finding.from_json(finding) for finding in summary["findings"]] for summary in (now, before))
    prints, current = {finding.fingerprint for finding in earlier}, {finding.fingerprint for finding in latest}
    for word, finding in (
        *(("still" if finding.fingerprint in prints else "new", finding) for finding in latest),
        *(("gone", finding) for finding in earlier if finding.fingerprint not in current),
    ):
        yield f"  {word:<6}{finding.fingerprint}  {finding.verdict}: {finding.owner}"[:WIDTH]
    if not latest and not earlier:
        yield "  nothing grew then, and nothing grows now"
