"""What changed from one watched run to another: bytes by kind of memory and by owner, and which findings are new."""

from collections.abc import Iterator, Mapping
from typing import Any

from flatwater_watch.diagnose.finding import WIDTH, Finding
from flatwater_watch.units import short_bytes

MOST = 12
"""Owners that are told."""
LEAST_SHARE = 0.02
"""Minimum size of a change that is shown, as a share of the largest change."""
LEAST_BYTES = 1 << 16
"""Minimum size of a change that is shown, in bytes."""
OF_ANOTHER = 0.8
"""Part of an owner's change that one container below it has, from which on that one alone is told."""
ITEMS = "[*]", "[*].<graph>"
"""At the end of the path of all items of a container, and of what these keep for their gradients."""
NAME, NUMBER = 56, 12


def comparison_lines(now: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[str]:
    """The lines for a person.

    Args:
        now: the JSON of `flatwater watch`.
        before: that of an earlier run.
    """
    yield f"{'against the run before':<{NAME}}{'then':>{NUMBER}}{'now':>{NUMBER}}{'change':>{NUMBER}}"
    for name, then, later in (*_kinds(now, before), *_owners(_owner_bytes(now), _owner_bytes(before))):
        sign = "+" if later >= then else "-"
        change = f"{sign}{short_bytes(abs(later - then))}" if later != then else "none"
        label = name if len(name) < NAME - 2 else f"…{name[len(name) - NAME + 4 :]}"
        yield f"  {label:<{NAME - 2}}{short_bytes(then):>{NUMBER}}{short_bytes(later):>{NUMBER}}{change:>{NUMBER}}"
    if not _owner_bytes(now) or not _owner_bytes(before):
        when = "one of them" if _owner_bytes(now) or _owner_bytes(before) else "both"
        yield f"  owners are not known in {when}: objects are counted where memory grows"
    yield from _findings(now, before)


def _owner_bytes(summary: Mapping[str, Any]) -> dict[str, int]:
    """Bytes by owner at the newest census; versions before wrote none."""
    return dict(summary.get("held", {}))


def _kinds(now: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
    """The last reading of each."""
    columns = {"resident_bytes": "resident", "file_bytes": "of it mapped files", "freed_bytes": "of it freed and kept"}
    for column, name in columns.items():
        ends = [(each.get("series", {}).get(column) or [None])[-1] for each in (before, now)]
        if None not in ends:
            yield name, ends[0], ends[1]


def _owners(now: Mapping[str, int], before: Mapping[str, int]) -> list[tuple[str, int, int]]:
    """Owners that hold more or less, the largest change first."""
    if not now or not before:
        return []
    changes = {owner: now.get(owner, 0) - before.get(owner, 0) for owner in {*now, *before}}
    least = max(LEAST_BYTES, LEAST_SHARE * max((abs(change) for change in changes.values()), default=0))
    told = [owner for owner, change in changes.items() if abs(change) >= least and not _is_below(owner, changes)]
    told.sort(key=lambda owner: (-abs(changes[owner]), owner))
    return [(owner, before.get(owner, 0), now.get(owner, 0)) for owner in told[:MOST]]


def _is_below(owner: str, changes: Mapping[str, int]) -> bool:
    """Whether another one has its change and is told: the bytes of an owner are those of all below it too."""
    if any(owner.endswith(items) and owner.removesuffix(items) in changes for items in ITEMS):
        return True  # the items of one that is told itself
    below = (other for other in changes if other.startswith((f"{owner}.", f"{owner}[")))
    below = (other for other in below if other.removeprefix(owner) not in ITEMS)
    return any(changes[other] / changes[owner] >= OF_ANOTHER for other in below if changes[owner])


def _findings(now: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[str]:
    """New, still there, gone: by fingerprint."""
    found, known = ([Finding.from_json(each) for each in summary["findings"]] for summary in (now, before))
    prints, current = {each.fingerprint for each in known}, {each.fingerprint for each in found}
    for word, each in (
        *(("still" if each.fingerprint in prints else "new", each) for each in found),
        *(("gone", each) for each in known if each.fingerprint not in current),
    ):
        yield f"  {word:<6}{each.fingerprint}  {each.verdict}: {each.owner}"[:WIDTH]
    if not found and not known:
        yield "  nothing grew then, and nothing grows now"
