"""Taking one reading of this process, and what no reading can show."""

from collections.abc import Mapping, Sequence

from flatwater.memory.leaks.record import Reading
from flatwater.memory.probes.allocator import heap
from flatwater.memory.probes.mappings import footprint
from flatwater.memory.watch.books import Row, settled
from flatwater.memory.watch.pages import Pages, owned_, planned

FEWEST = 5
"""Readings after warm-up from which growth can be told."""


def read_now(clock: int, pages: Pages, *, limit: int | None, rates: Mapping[str, float]) -> Reading:
    """The process as it is.

    Args:
        clock: boundaries passed.
        pages: arrays that are being filled; their touched pages are counted anew.
        limit: bytes at which the process must stop.
        rates: boundaries per CPU second.
    """
    now, used = footprint(), heap()
    return Reading(
        step=clock,
        resident=now.resident,
        file_mapped=now.file_mapped,
        in_use=None if used is None else used.in_use,
        free=None if used is None else used.free,  # nobody trims a foreign program: all of it may be resident
        owned=owned_(pages),
        planned=planned(pages),
        limit=limit,
        rates=rates,
    )


def unseen_in(rows: Sequence[Row]) -> list[str]:
    """Sentences on what could not be seen."""
    unseen = []
    if not rows:
        unseen.append("the program ended before its first step: nothing was read")
    elif len(settled(rows)) < FEWEST:
        unseen.append(f"{len(rows)} readings are too few to tell growth from warm-up")
    if heap() is None:
        unseen.append("this C library does not tell what it has freed and kept")
    return unseen
