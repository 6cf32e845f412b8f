"""Cyclic garbage as full collections show it: the bytes that a collection frees, and the time until the next one.

Memory that rises between two full collections and falls at each is a sawtooth.
No fork is needed, so it is known also with libraries that do not bear a fork; but the classes of the objects are not.
"""

from flatwater_watch.diagnose.evidence import COLLECTOR_OFF_ADVICE, GARBAGE_OWNER, RARE_COLLECTION_ADVICE, Evidence
from flatwater_watch.meters.collector import GcSawtooth
from flatwater_watch.phrases import unit_plural
from flatwater_watch.series.slope import Slope
from flatwater_watch.thresholds import COLLECTING, DRIFT
from flatwater_watch.units import short_bytes

NAMELESS_GARBAGE = "objects in cycles that nobody reaches, of which the class is not known"
BREAK_ADVICE = (
    "better, break the cycle: `gc.set_debug(gc.DEBUG_SAVEALL)` in a short run keeps what is collected in `gc.garbage`, "
    "to look at; then hold the way back by a `weakref.ref(...)`."
)


def gc_explains_growth(sawtooth: GcSawtooth | None) -> bool:
    """Return whether the growth is garbage: a full collection frees many bytes, and most of what came between two.

    Args:
        sawtooth: sawtooth of the process; None if no full collection was seen.
    """
    if sawtooth is None:
        return False
    # If much more has come since the last collection than between two, collections have stopped, or free too little.
    if sawtooth.bytes_since > COLLECTING.maximum_wait_ratio * sawtooth.rise:
        return False
    minimum_bytes = max(DRIFT.least_bytes, COLLECTING.least_share * sawtooth.bytes_before)
    return sawtooth.freed >= max(minimum_bytes, COLLECTING.minimum_freed_share * sawtooth.rise)


def is_negligible(sawtooth: GcSawtooth | None, waiting_bytes: int) -> bool:
    """Return whether the garbage of a process is no cause of growth, as collections free it while it is still small.

    Args:
        sawtooth: sawtooth of the process; None if no full collection was seen.
        waiting_bytes: bytes of garbage that wait for a collection; there may be more than the last one freed, as the
            time between two collections grows.
    """
    if sawtooth is None or sawtooth.freed < COLLECTING.minimum_freed_share * sawtooth.rise:
        return False
    is_small = sawtooth.freed < COLLECTING.reported_young_bytes
    return is_small and waiting_bytes <= COLLECTING.maximum_wait_ratio * sawtooth.freed


def gc_sawtooth_evidence(rate: Slope, *, collector_is_on: bool) -> Evidence:
    """Return the evidence on garbage that is known only by what collections free, so that its classes are unknown.

    Args:
        rate: bytes of garbage per step.
        collector_is_on: whether Python's collector runs by itself.
    """
    advice = (RARE_COLLECTION_ADVICE if collector_is_on else COLLECTOR_OFF_ADVICE) + BREAK_ADVICE
    return Evidence(verdict="leak", owner=GARBAGE_OWNER, drift=rate, what=NAMELESS_GARBAGE, advice=advice)


def gc_amounts_text(sawtooth: GcSawtooth, per_second: float, unit: str) -> str:
    """Return a clause on the bytes that collections free, with a semicolon before it; empty if they are not material.

    Args:
        sawtooth: sawtooth of the process.
        per_second: units per second.
        unit: name of the unit, such as `step`, by which the user counts.
    """
    return "" if sawtooth.freed < DRIFT.least_bytes else f"; {_collection_clause(sawtooth, per_second, unit)}"


def _collection_clause(sawtooth: GcSawtooth, per_second: float, unit: str) -> str:
    """Return a clause such as "each full collection frees about 130 MiB; the next comes about 40 steps later"."""
    opening = f"each full collection frees about {_two_digits(sawtooth.freed)}"
    units_apart = float(f"{sawtooth.seconds * per_second:.2g}")  # to two digits, as the time varies
    if units_apart < 1:
        return f"{opening}; several come in one {unit}"
    unit_words = unit if units_apart == 1 else unit_plural(unit)
    return f"{opening}; the next comes about {units_apart:.4g} {unit_words} later"


def _two_digits(size: float) -> str:
    """Return bytes in words, rounded to two digits: "130 MiB" for 136,000,000."""
    number, unit = short_bytes(size).split()
    rounded = float(f"{float(number):.2g}")
    return f"{rounded:.4g} {unit}"
