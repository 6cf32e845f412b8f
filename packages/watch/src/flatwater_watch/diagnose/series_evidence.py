"""Evidence from readings alone, without a census: memory kept, files mapped, state that grows, slower steps.

A drift is a lasting rise of a series. To save time a reading judges only some series: they are divided into groups,
which take turns (`ReadingHistory.judges_group`).
"""

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
    """Judge the series whose turn it is at this reading; return the evidence on those that drift (rise for good).

    The judgements in a row that found a drift are counted in `history.drift_counts`; `unexplained_growth` reads there
    whether native growth is certain.
    """
    causes = []
    ownerless: list[tuple[VerdictName, Series]] = [("retention", history.free), ("mapped", history.file_mapped)]
    # Group 0 and 1 are these two, group 2 the unaccounted bytes, and group 3 the declared state.
    for group, (verdict, series) in enumerate(ownerless):
        if history.judges_group(group):
            drift = _strict_drift(series.steps, series.values, reading.material_bytes)
            slope = _count_repeats_(history, verdict, drift)
            if slope is not None:
                causes.append(unowned_evidence(verdict, slope, history.growth(reading)))
    if history.judges_group(len(ownerless)):
        # Only to count: `native_growth_evidence` makes the evidence on this growth, once objects are ruled out.
        series = history.unaccounted
        _count_repeats_(history, "native", _strict_drift(series.steps, series.values, reading.material_bytes))
    if history.judges_group(len(ownerless) + 1):
        causes += _leaves_evidence(history, reading)
    return causes + _slow_phases_evidence_(history, reading)


def _strict_drift(steps: Sequence[float], values: Sequence[float], minimum: float) -> Slope | None:
    """Return the slope of a series if it drifts (rises for good) by at least `minimum` bytes, else None.

    It takes more points and more confidence than for a container, as no object proves this growth.
    """
    return drift_slope(
        steps, values, minimum=minimum, fewest=DRIFT.minimum_points_without_object, confidence=DRIFT.confidence
    )


def _count_repeats_(history: ReadingHistory, name: str, result: T | None) -> T | None:
    """Count the judgements in a row that had a result; return this result if they are enough by now, else None.

    Args:
        history: readings, which keep the count in `drift_counts`.
        name: name of the series that was judged.
        result: result of this judgement; None, which sets the count to 0, if it found nothing.
    """
    history.drift_counts[name] = 0 if result is None else history.drift_counts[name] + 1
    return result if history.drift_counts[name] >= DRIFT.judgements_in_row else None


def _leaves_evidence(history: ReadingHistory, reading: Reading) -> list[Evidence]:
    """Return the evidence on leaves of the declared state, such as a buffer, that are being filled or rise for good.

    A leaf is judged for drift only if all declared state together drifts. Its minimum rise is that of the process,
    divided by the number of leaves.
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
        # A leaf that is not full yet needs less proof, as its size when full is known.
        if slope is None and planned_bytes is not None and size < planned_bytes:
            slope = filling_slope(series.steps, series.values, latest_step=reading.step, minimum=material_bytes)
        if slope is not None:
            causes.append(leaf_evidence(path, size, planned_bytes, drift=slope, growth=history.growth(reading)))
    return causes


def _slow_phases_evidence_(history: ReadingHistory, reading: Reading) -> list[Evidence]:
    """Return the evidence on phases whose steps become slower, if several judgements in a row found it.

    The judgements are counted in `history.drift_counts`. To save time, a series of more than `POINTS_JUDGED_ALWAYS`
    readings is judged only at every fourth reading.
    """
    causes = []
    # Each phase is a group of its own (`ReadingHistory.judges_group`).
    for group, phase in enumerate(reading.rates):
        series = history.phase_costs.get(phase)
        # A phase that has taken no step yet has no series.
        if series is not None and (len(series.steps) <= POINTS_JUDGED_ALWAYS or history.judges_group(group)):
            slowdown = _count_repeats_(history, f"phase {phase}", find_slowdown(series))
            if slowdown is not None:
                causes.append(phase_evidence(phase, slowdown))
    return causes


def retention_evidence_at_end(history: ReadingHistory, reading: Reading) -> list[Evidence]:
    """Return the evidence, at the end, on freed memory that the allocator keeps; empty unless it is most of the growth.

    Its series must drift both with the last reading and without it.
    """
    free, resident, minimum_rise = history.free, history.resident, reading.material_bytes
    warm_up_end = len(free.steps) // ENDING.warm_up_divisor
    free_growth = free.values[-1] - free.values[warm_up_end]
    growth = resident.values[-1] - resident.values[warm_up_end]
    if growth < minimum_rise or free_growth < OWNING.explained_share * growth:
        return []
    slope = _line_or_jump_drift(free.steps, free.values, minimum_rise)
    earlier_slope = _line_or_jump_drift(free.steps[:-1], free.values[:-1], minimum_rise)
    if slope is None or earlier_slope is None:
        return []
    return [unowned_evidence("retention", slope, history.growth(reading))]


def _line_or_jump_drift(steps: Sequence[float], values: Sequence[float], minimum: float) -> Slope | None:
    """Return the slope of a series if it drifts (rises for good), or else if its jumps do; None if neither does.

    A series of jumps has one point for each.
    """
    # A heap whose holes are filled again grows in jumps: it grows only when a round needs more than any before.
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
