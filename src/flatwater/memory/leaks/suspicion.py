"""Does memory rise by more than is known already? The series without the growth of what was found. Pure."""

from collections.abc import Mapping

from flatwater.memory.leaks.drift import Series, Slope, drifting, rising_lately, stairs
from flatwater.memory.leaks.finding import Finding
from flatwater.memory.leaks.record import AGAIN, UNHELD_POINTS, Reading, Record, recent_slope
from flatwater.memory.leaks.verdict import EXPLAINED, Growth, judge_rest

LOOKS = 3
"""Censuses after the first one, while those before do not explain the growth: it may come in bursts."""
MOST_LOOKS = 6
"""The same, while it is not sure either that no object holds what grows."""

Known = Mapping[str, Finding]
"""What was found so far, by owner."""


def suspicious(record: Record, known: Known, reading: Reading) -> bool:
    """Whether growth that is not known yet rises lately: no proof, but worth a census."""
    return any(rising_lately(_unknown(series, known), reading.material) for series in _held(record))


def drift_of(record: Record, known: Known, reading: Reading) -> tuple[bool, Slope]:
    """Whether growth that is not known yet drifts, and the slope of all growth in the series that shows it."""
    least = reading.material
    for series in _held(record):
        unknown = _unknown(series, known)
        by_stairs = stairs(series.steps, unknown, least)
        if any(drifting(*points, least=least) is not None for points in ((series.steps, unknown), by_stairs)):
            return True, recent_slope(series)
    return False, recent_slope(record.unaccounted)


def native(record: Record, reading: Reading, growth: Growth, known: float) -> list[Finding]:
    """The growth that no object holds, where it is sure that there is some.

    Args:
        record: of the process.
        reading: the latest.
        growth: of the process.
        known: bytes per step that have an owner.
    """
    if not _sure_of_native(record):
        return []
    series = record.unaccounted
    slope = drifting(series.steps, series.values, least=2 * reading.material, fewest=UNHELD_POINTS)
    if slope is None or slope.per_step - known <= (1 - EXPLAINED) * slope.per_step:
        return []
    rest = Slope(slope.per_step - known, max(0.0, slope.low - known), slope.high - known)
    return [judge_rest("native", rest, growth)]


def most_looks(record: Record) -> int:
    """Censuses after the first one that are worth it."""
    return LOOKS if _sure_of_native(record) else MOST_LOOKS


def _sure_of_native(record: Record) -> bool:
    """Whether what no book explains was found to drift often enough in a row."""
    return record.drifted["native"] >= AGAIN


def _held(record: Record) -> tuple[Series, Series]:
    """The series that rise when objects are kept."""
    return record.unaccounted, record.live


def _unknown(series: Series, known: Known) -> list[float]:
    """The series without the growth that is known already, and without a fifth more, as estimates err."""
    held = (found.bytes_per_step for found in known.values() if found.holders or found.verdict == "native")
    rate = sum(held) / EXPLAINED
    return [value - rate * step for step, value in zip(series.steps, series.values, strict=True)]
