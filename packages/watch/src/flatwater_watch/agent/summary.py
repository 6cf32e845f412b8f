"""What is told of a watched program: the findings that hold now, and its state as the JSON of `flatwater watch`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flatwater_watch.agent.books import (
    Row,
    Scale,
    explained_share,
    goes_on,
    growth,
    growth_of,
    material,
    scale_of,
    without_doubt,
    without_records,
)
from flatwater_watch.agent.conclusion import outcome_of
from flatwater_watch.agent.measured import Marks, weighed
from flatwater_watch.agent.outcome import OWNER
from flatwater_watch.agent.parts import named
from flatwater_watch.agent.reading import unseen_in
from flatwater_watch.agent.workers import Workers, finding_of
from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.diagnose.garbage import Garbage
from flatwater_watch.diagnose.judge import dated, in_order, limit_step, together
from flatwater_watch.meters.mappings import footprint
from flatwater_watch.thresholds import SHIPPED

OWNING = SHIPPED.owning


def going_on(
    found: Sequence[Finding], rows: Sequence[Row], since: Mapping[str, int], marks: Marks, workers: Workers
) -> list[Finding]:
    """The findings of what still grows, most bytes first, at the rates that all censuses tell.

    Args:
        found: by the monitor, per boundary.
        rows: all readings.
        since: clock at which each owner was found.
        marks: censuses so far.
        workers: the children.
    """
    ended = over(found, rows, since, marks)
    kept = [named(each, rows) for each in _rated(found, marks, rows) if each.owner not in ended]
    kept = in_order(without_records(material(without_doubt(kept, rows), rows), rows))
    whole = growth_of(rows)
    at = limit_step(kept, whole)  # the monitor's forecast knows the rates of two looks only
    kept = in_order(together([dated(each, at) for each in kept]))
    of_workers = finding_of(workers, whole)
    return kept if of_workers is None else [*kept, of_workers]


def over(found: Sequence[Finding], rows: Sequence[Row], since: Mapping[str, int], marks: Marks) -> set[str]:
    """Owners that do not grow as they did any more; arguments as of `going_on`."""
    return {each.owner for each in _rated(found, marks, rows) if not goes_on(each, since.get(each.owner, 0), rows)}


def _rated(found: Sequence[Finding], marks: Marks, rows: Sequence[Row]) -> list[Finding]:
    owners = [each.owner for each in found]
    return [weighed(each, marks, owners, rows) for each in found]


def summary_of(
    rows: Sequence[Row],
    told: Sequence[Finding],
    *,
    unit: str | None,
    counts: Mapping[str, int],
    unread: Mapping[str, int],
    seconds: float,
    censuses: int = 0,
    leads: Sequence[tuple[str, int]] = (),
    waiting: Garbage | None = None,
    refilled: Iterable[str] = (),
    found: Sequence[Finding] = (),
) -> dict[str, Any]:
    """All but the program's command, and what the watch itself costs.

    Args:
        rows: all readings.
        told: findings, per unit.
        unit: the kind of boundary that was asked for.
        counts: of boundaries so far.
        unread: objects that the last census could not read, by class.
        seconds: since the first one.
        censuses: taken so far.
        leads: roots that hold more than at the beginning, and by how many bytes.
        waiting: cyclic garbage that is freed soon.
        refilled: paths of containers that are emptied again and again.
        found: by the monitor: of it, what libraries record while they run is told in a sentence.
    """
    scale = scale_of(rows, unit) if rows else Scale("second", 1.0, 0, 0)
    explained = explained_share(rows, [each for each in told if each.owner != OWNER])
    left = [each.owner for each in found if rows and each not in without_records(found, rows)]
    return {
        "unit": scale.unit,
        "steps": round(seconds) if scale.unit == "second" else counts[scale.unit],
        "seconds": round(seconds, 3),
        "readings": len(rows),
        "resident_bytes": footprint().resident,
        "resident_growth_bytes": growth(rows),
        "explained_share": round(explained, 4),
        "outcome": outcome_of(
            rows, told, explained, censuses=censuses, leads=leads, waiting=waiting, refilled=refilled, records=left
        ).to_json(),
        "findings": [finding.to_json() for finding in told],
        "unseen": unseen_in(rows, unread),
        "series": _series(rows, scale.unit),
    }


def _series(rows: Sequence[Row], unit: str) -> dict[str, list[int] | list[float] | list[int | None]]:
    """The readings as columns of one length, for drawing; `books.keep_` bounds how many there are."""
    return {
        "seconds": [round(row.seconds, 3) for row in rows],
        "steps": [round(row.seconds) if unit == "second" else row.counts.get(unit, 0) for row in rows],
        "resident_bytes": [row.resident for row in rows],
        "file_bytes": [row.reading.file_mapped for row in rows],
        "freed_bytes": [row.reading.free for row in rows],
    }
