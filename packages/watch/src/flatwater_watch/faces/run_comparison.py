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
NAME_WIDTH, NUMBER_WIDTH = 56, 12
"""Columns of the terminal."""


def comparison_lines(summary: Mapping[str, Any], earlier_summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield the comparison of two results as lines of text.

    Args:
        summary: the JSON of `flatwater watch`.
        earlier_summary: the same of an earlier run.
    """
    # The bytes of each owner, by its path, at the newest count of objects; results of earlier versions have none.
    owners_now, earlier_owners = summary.get("held", {}), earlier_summary.get("held", {})
    yield _table_row("against the run before", "then", "now", "change")
    rows = *_memory_kinds(summary, earlier_summary), *_changed_owners(owners_now, earlier_owners)
    for name, earlier, later in rows:
        change = "none"
        if later != earlier:
            sign = "+" if later >= earlier else "-"
            change = f"{sign}{short_bytes(abs(later - earlier))}"
        # Two blanks stand before a name, and one behind it. A long name is cut to its end, as paths differ there: with
        # the blanks and the `…`, 4 columns are no part of it.
        label = name if len(name) < NAME_WIDTH - 2 else f"…{name[len(name) - NAME_WIDTH + 4 :]}"
        yield _table_row(f"  {label}", short_bytes(earlier), short_bytes(later), change)
    if not owners_now or not earlier_owners:
        which_runs = "one of them" if owners_now or earlier_owners else "both"
        yield f"  owners are not known in {which_runs}: objects are counted where memory grows"
    yield from _finding_lines(summary, earlier_summary)


def _table_row(name: str, *numbers: str) -> str:
    return f"{name:<{NAME_WIDTH}}{''.join(f'{number:>{NUMBER_WIDTH}}' for number in numbers)}"


def _memory_kinds(summary: Mapping[str, Any], earlier_summary: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
    """Yield the kinds of memory, each with its bytes at the last readings of the earlier and the later run."""
    columns = {"resident_bytes": "resident", "file_bytes": "of it mapped files", "freed_bytes": "of it freed and kept"}
    for column, name in columns.items():
        earlier, later = _last_value(earlier_summary, column), _last_value(summary, column)
        if earlier is not None and later is not None:
            yield name, earlier, later


def _last_value(summary: Mapping[str, Any], column: str) -> Any:  # noqa: ANN401  (a number of JSON)
    """Return the last value of a column of readings; None if it is unknown, or the result has no such column."""
    values = summary.get("series", {}).get(column)
    return values[-1] if values else None


def _changed_owners(bytes_now: Mapping[str, int], earlier_bytes: Mapping[str, int]) -> list[tuple[str, int, int]]:
    """Return the owners whose bytes changed, each with its earlier and later bytes, the largest change first.

    The list is empty if one of the runs knows no owners.
    """
    if not bytes_now or not earlier_bytes:
        return []
    owners = {*bytes_now, *earlier_bytes}
    changes = {owner: bytes_now.get(owner, 0) - earlier_bytes.get(owner, 0) for owner in owners}
    largest_change = max(abs(change) for change in changes.values())
    threshold = max(MINIMUM_BYTES, MINIMUM_SHARE * largest_change)
    shown_owners = [
        owner for owner, change in changes.items() if abs(change) >= threshold and not _is_redundant(owner, changes)
    ]
    shown_owners.sort(key=lambda owner: (-abs(changes[owner]), owner))
    return [(owner, earlier_bytes.get(owner, 0), bytes_now.get(owner, 0)) for owner in shown_owners[:MAXIMUM_OWNERS]]


def _is_redundant(owner: str, changes: Mapping[str, int]) -> bool:
    """Return whether another owner shows the change of an owner, so that this owner need not be listed.

    Either this owner is the items of a container in the list, as `a.rows[*]` of `a.rows`; or an owner below it has
    nearly the same change, as its own bytes include those of all owners below it.
    """
    if any(owner.endswith(suffix) and owner.removesuffix(suffix) in changes for suffix in ITEM_SUFFIXES):
        return True
    if not changes[owner]:
        return False
    for inner_owner, inner_change in changes.items():
        is_below = inner_owner.startswith((f"{owner}.", f"{owner}["))
        is_items = inner_owner.removeprefix(owner) in ITEM_SUFFIXES  # these are redundant themselves
        if is_below and not is_items and inner_change / changes[owner] >= SAME_CHANGE_SHARE:
            return True
    return False


def _finding_lines(summary: Mapping[str, Any], earlier_summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each finding, which is new, still there or gone, by its fingerprint."""
    latest = [Finding.from_json(record) for record in summary["findings"]]
    earlier = [Finding.from_json(record) for record in earlier_summary["findings"]]
    latest_fingerprints = {finding.fingerprint for finding in latest}
    earlier_fingerprints = {finding.fingerprint for finding in earlier}
    for finding in latest:
        yield _finding_row("still" if finding.fingerprint in earlier_fingerprints else "new", finding)
    for finding in earlier:
        if finding.fingerprint not in latest_fingerprints:
            yield _finding_row("gone", finding)
    if not latest and not earlier:
        yield "  nothing grew then, and nothing grows now"


def _finding_row(word: str, finding: Finding) -> str:
    return f"  {word:<6}{finding.fingerprint}  {finding.verdict}: {finding.owner}"[:WIDTH]
