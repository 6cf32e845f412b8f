"""Growth that no finding explains: whether it is worth an investigation, and when it is certainly native."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flatwater_watch.diagnose.evidence import Evidence, unowned_evidence
from flatwater_watch.series.readings import Growth, Reading, ReadingHistory, recent_slope
from flatwater_watch.series.slope import Series, Slope, drift_slope, has_recent_rise, jump_points
from flatwater_watch.thresholds import SHIPPED

CASE, DRIFT, OWNING = SHIPPED.investigating, SHIPPED.drift, SHIPPED.owning


class UnprovenGrowth(NamedTuple):
    """Evidence of an investigation that ended without a proof, as readings may scatter more than they rise."""

    causes: Sequence[Evidence]
    reading: Reading

    def confirmed_evidence(self, last: Reading, open_bytes: float) -> list[Evidence]:
        """The evidence, if it explains most bytes without a cause, and memory went on at its rate; else none.

        Args:
            last: latest reading.
            open_bytes: bytes without a cause.
        """
        rate = sum(cause.drift.per_step for cause in self.causes)
        actual_bytes = last.unaccounted - self.reading.unaccounted
        forecast_bytes = rate * (last.step - self.reading.step)
        went_on = (
            min(actual_bytes, forecast_bytes) >= CASE.minimum_garbage_share * max(actual_bytes, forecast_bytes) > 0
        )
        # The rate for all steps, as the open bytes came since the beginning.
        return list(self.causes) if went_on and rate * last.step >= CASE.minimum_garbage_share * open_bytes else []


Known = Mapping[str, Evidence]
"""Evidence on the causes so far, by owner."""


def is_suspicious(history: ReadingHistory, known_causes: Known, reading: Reading) -> bool:
    """Whether memory that no finding explains rises lately: no proof, but worth a census."""
    return any(
        has_recent_rise(_unexplained_values(series, known_causes), reading.material_bytes)
        for series in _object_series(history)
    )


def find_drift(history: ReadingHistory, known_causes: Known, reading: Reading) -> tuple[bool, Slope]:
    """Whether memory that no finding explains drifts, and the slope of all growth in the series that shows it."""
    floor = reading.material_bytes
    for series in _object_series(history):
        values = _unexplained_values(series, known_causes)
        by_jumps = jump_points(series.steps, values, floor)
        if any(drift_slope(*points, minimum=floor) is not None for points in ((series.steps, values), by_jumps)):
            return True, recent_slope(series)
    return False, recent_slope(history.unaccounted)


def native_growth_evidence(
    history: ReadingHistory, reading: Reading, growth: Growth, explained_rate: float, *, at_end: bool = False
) -> list[Evidence]:
    """The evidence on growth that no object holds, if it is certain.

    Args:
        history: readings.
        reading: latest reading.
        growth: growth of the process.
        explained_rate: bytes per step that have an owner.
        at_end: whether no further reading comes. A single judgement that found a drift is enough then, instead of
            several in a row, if memory never fell by much: cyclic garbage rises as well, and falls when it is freed.
    """
    series = history.unaccounted
    # Twice the material rise of an owner, as no object proves this growth.
    minimum_rise = 2 * reading.material_bytes
    one_judgement_suffices = at_end and not history.has_fallen(0, minimum_rise)
    if not (_sure_of_native(history) or (one_judgement_suffices and history.drift_counts["native"] > 0)):
        return []
    slope = drift_slope(series.steps, series.values, minimum=minimum_rise, fewest=DRIFT.minimum_points_without_object)
    if slope is None or slope.per_step - explained_rate <= (1 - OWNING.explained_share) * slope.per_step:
        return []
    open_slope = Slope(
        slope.per_step - explained_rate, max(0.0, slope.low - explained_rate), slope.high - explained_rate
    )
    return [unowned_evidence("native", open_slope, growth)]


def comparison_limit(history: ReadingHistory) -> int:
    """Maximum number of censuses after the first one."""
    return CASE.maximum_comparisons if _sure_of_native(history) else CASE.maximum_comparisons_unproven_native


def _sure_of_native(history: ReadingHistory) -> bool:
    """Whether unaccounted memory was found to drift often enough in a row."""
    return history.drift_counts["native"] >= DRIFT.judgements_in_row


def _object_series(history: ReadingHistory) -> tuple[Series, Series]:
    """The two series that rise when objects are kept: unaccounted bytes, and bytes that the C allocator handed out."""
    return history.unaccounted, history.allocated


def _unexplained_values(series: Series, known_causes: Known) -> list[float]:
    """Values of a series, in bytes, without the growth that findings explain, and a quarter more, as estimates err."""
    rates = (cause.drift.per_step for cause in known_causes.values() if cause.holders or cause.verdict == "native")
    rate = sum(rates) / OWNING.explained_share
    return [value - rate * step for step, value in zip(series.steps, series.values, strict=True)]
