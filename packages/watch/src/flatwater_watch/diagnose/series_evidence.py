"""Evidence from readings alone, without a census: memory kept, files mapped, state that grows, slower steps."""

from collections.abc import Sequence
from typing import TypeVar

from flatwater_watch.diagnose.evidence import Evidence, leaf_evidence, phase_evidence, unowned_evidence
from flatwater_watch.diagnose.verdicts import VerdictName
from flatwater_watch.series.readings import Reading, ReadingHistory
from flatwater_watch.series.slope import Series, Slope, drift_slope, filling_slope, jump_points
from flatwater_watch.series.slowdown import find_slowdown
from flatwater_watch.thresholds import DRIFT, ENDING, OWNING

POINTS_JUDGED_ALWAYS = 60
"""Number of first readings at which each series of costs is judged: a program of seconds has only a few dozen."""

T = TypeVar("T")


def collect_series_evidence_(history: ReadingHistory, reading: Reading) -> list[Evidence]:
    """Judge the series that are due at this reading; return the evidence on those that drift.

    Updates `history.drift_counts`, by which `unexplained_growth` decides on native growth.
    """
    causes = []
    ownerless: list[tuple[VerdictName, Series]] = [("retention", history.free), ("mapped", history.file_mapped)]
    # Each kind of series is a group: after the first readings, only one group is judged at each, to save time.
    for group, (verdict, series) in enumerate(ownerless):
        if history.judges_group(group):
            drift = _strict_drift(series.steps, series.values, reading.material_bytes)
            if (slope := _count_repeats_(history, verdict, drift)) is not None:
                causes.append(unowned_evidence(verdict, slope, history.growth(reading)))
    if history.judges_group(len(ownerless)):
        # Only to count: `native_growth_evidence` makes the evidence on this growth, once objects are ruled out.
        series = history.unaccounted
        _count_repeats_(history, "native", _strict_drift(series.steps, series.values, reading.material_bytes))
    if history.judges_group(len(ownerless) + 1):
        causes += _leaves_evidence(history, reading)
    return causes + _slow_phases_evidence_(history, reading)


def _strict_drift(steps: Sequence[float], values: Sequence[float], minimum: float) -> Slope | None:
    """Return the slope of a drift of at least `minimum` bytes, else None; more points and confidence must prove it.

    Stricter than for owners, as no object holds this growth.
    """
    return drift_slope(
        steps, values, minimum=minimum, fewest=DRIFT.minimum_points_without_object, confidence=DRIFT.confidence
    )


def _count_repeats_(history: ReadingHistory, name: str, result: T | None) -> T | None:
    """Count the judgements in a row that had a result; return the latest result once they are enough, else None."""
    history.drift_counts[name] = 0 if result is None else history.drift_counts[name] + 1
    return result if history.drift_counts[name] >= DRIFT.judgements_in_row else None


def _leaves_evidence(history: ReadingHistory, reading: Reading) -> list[Evidence]:
    """Return the evidence on leaves of the declared state, such as a buffer, that are being filled, or that drift.

    A leaf is judged for drift only if all declared state together drifts; its minimum rise is an equal part of the
    bytes that are material for the process.
    """
    all_state, material_bytes = history.declared, reading.material_bytes
    state_drifts = drift_slope(all_state.steps, all_state.values, minimum=material_bytes) is not None
    causes = []
    for path, size in reading.owned.items():
        series = history.owned[path]
        planned_bytes = reading.planned.get(path)
        slope = None
        if state_drifts:
            slope = drift_slope(series.steps, series.values, minimum=material_bytes / len(reading.owned))
        # A leaf of a known size needs less proof, as it only rises while it is being filled.
        if slope is None and planned_bytes is not None and size < planned_bytes:
            slope = filling_slope(series.steps, series.values, latest_step=reading.step, minimum=material_bytes)
        if slope is not None:
            causes.append(leaf_evidence(path, size, planned_bytes, drift=slope, growth=history.growth(reading)))
    return causes


def _slow_phases_evidence_(history: ReadingHistory, reading: Reading) -> list[Evidence]:
    """Return the evidence on phases that the last few judgements all found to become slower.

    Updates `history.drift_counts`. A series of more than `POINTS_JUDGED_ALWAYS` readings is judged only at every fourth
    reading, to save time.
    """
    causes = []
    # Each phase is a group of its own, so that only some phases are judged at a reading: see `judges_group`.
    for group, phase in enumerate(reading.rates):
        series = history.phase_costs.get(phase)
        # A phase that has taken no step yet has no series.
        if series is not None and (len(series.steps) <= POINTS_JUDGED_ALWAYS or history.judges_group(group)):
            slowdown = _count_repeats_(history, f"phase {phase}", find_slowdown(series))
            if slowdown is not None:
                causes.append(phase_evidence(phase, slowdown))
    return causes


def retention_evidence_at_end(history: ReadingHistory, reading: Reading) -> list[Evidence]:
    """Return the evidence, at the end, on freed memory that the allocator keeps; empty if it is not most growth.

    Two judgements in a row are enough: with the last reading and without it.
    """
    free, resident, minimum_rise = history.free, history.resident, reading.material_bytes
    warm_up_end = len(free.steps) // ENDING.warm_up_divisor
    kept_growth = free.values[-1] - free.values[warm_up_end]
    growth = resident.values[-1] - resident.values[warm_up_end]
    if growth < minimum_rise or kept_growth < OWNING.explained_share * growth:
        return []
    slope = _line_or_jump_drift(free.steps, free.values, minimum_rise)
    earlier_slope = _line_or_jump_drift(free.steps[:-1], free.values[:-1], minimum_rise)
    if slope is None or earlier_slope is None:
        return []
    return [unowned_evidence("retention", slope, history.growth(reading))]


def _line_or_jump_drift(steps: Sequence[float], values: Sequence[float], minimum: float) -> Slope | None:
    """Return the slope of a drift of all points, or else of one point for each jump; None if neither drifts."""
    # A heap whose holes are filled again grows in jumps, as each round needs a little more than the round before.
    return _strict_drift(steps, values, minimum) or _strict_drift(*jump_points(steps, values, minimum), minimum)


def slowdown_evidence_at_end(history: ReadingHistory) -> list[Evidence]:
    """Return the evidence, at the end, on phases that become slower both with the last reading and without it."""
    causes = []
    for phase, series in history.phase_costs.items():
        slowdown = find_slowdown(series)
        earlier_series = Series(series.steps[:-1], series.values[:-1])
        if slowdown is not None and find_slowdown(earlier_series) is not None:
            causes.append(phase_evidence(phase, slowdown))
    return causes
