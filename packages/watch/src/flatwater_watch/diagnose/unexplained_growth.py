"""Growth that no finding explains: whether it is worth an investigation, and when it is certainly native."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flatwater_watch.diagnose.evidence import Evidence, unowned_evidence
from flatwater_watch.series.readings import Growth, Reading, ReadingHistory, recent_slope
from flatwater_watch.series.slope import Series, Slope, drift_slope, has_recent_rise, jump_points
from flatwater_watch.thresholds import CASE, DRIFT, OWNING


class UnprovenGrowth(NamedTuple):
    """Evidence of an investigation that ended without a proof, as readings may scatter more than they rise."""

    causes: Sequence[Evidence]
    reading: Reading
    """Reading at which the investigation ended."""

    def causes_if_growth_continues(self, latest: Reading, open_bytes: float) -> list[Evidence]:
        """Return the causes if memory grew at their rate after the investigation, and they explain most open bytes.

        Else the list is empty.

        Args:
            latest: latest reading.
            open_bytes: bytes without a cause that came since the beginning.
        """
        rate = sum(cause.drift.per_step for cause in self.causes)
        actual_bytes = latest.unaccounted - self.reading.unaccounted
        forecast_bytes = rate * (latest.step - self.reading.step)
        smaller, larger = sorted((actual_bytes, forecast_bytes))
        # The share of the growth that garbage must have serves for both comparisons here. `> 0`: both have grown.
        kept_growing = smaller >= CASE.minimum_garbage_share * larger > 0
        explained_bytes = rate * latest.step  # as if they grew from the beginning, like `open_bytes`
        explains_most = explained_bytes >= CASE.minimum_garbage_share * open_bytes
        return list(self.causes) if kept_growing and explains_most else []


def is_suspicious(history: ReadingHistory, known_causes: Mapping[str, Evidence], reading: Reading) -> bool:
    """Return whether memory that no finding explains has risen lately: no proof, but worth a census."""
    return any(
        has_recent_rise(_unexplained_values(series, known_causes), reading.material_bytes)
        for series in _object_series(history)
    )


def find_drift(history: ReadingHistory, known_causes: Mapping[str, Evidence], reading: Reading) -> tuple[bool, Slope]:
    """Return whether memory that no finding explains drifts, and the recent slope of all growth, explained or not.

    The slope is that of the series that drifts, or of the unaccounted bytes if none does. A series drifts if all its
    points do, or one point for each jump.
    """
    minimum_rise = reading.material_bytes
    for series in _object_series(history):
        values = _unexplained_values(series, known_causes)
        all_points, points_of_jumps = (series.steps, values), jump_points(series.steps, values, minimum_rise)
        if any(drift_slope(*points, minimum=minimum_rise) is not None for points in (all_points, points_of_jumps)):
            return True, recent_slope(series)
    return False, recent_slope(history.unaccounted)


def native_growth_evidence(
    history: ReadingHistory, reading: Reading, growth: Growth, explained_rate: float, *, at_end: bool = False
) -> list[Evidence]:
    """Return the evidence on growth that no object holds, if it is certain.

    Args:
        history: readings.
        reading: latest reading.
        growth: growth of the process.
        explained_rate: bytes per step that have an owner.
        at_end: whether no further reading comes.

    Returns:
        One piece of evidence, with the rate that has no owner; none if the growth is not certain, or mostly explained.
    """
    series = history.unaccounted
    # Twice the material rise of an owner, as no object proves this growth.
    minimum_rise = 2 * reading.material_bytes
    # At the end one judgement that found a drift suffices, instead of several in a row, unless memory fell by much:
    # cyclic garbage rises as well, and falls when it is freed.
    one_judgement_suffices = at_end and not history.has_fallen(0, minimum_rise)
    if not (_is_native_certain(history) or (one_judgement_suffices and history.drift_counts["native"] > 0)):
        return []
    slope = drift_slope(series.steps, series.values, minimum=minimum_rise, fewest=DRIFT.minimum_points_without_object)
    if slope is None or slope.per_step - explained_rate <= (1 - OWNING.explained_share) * slope.per_step:
        return []
    return [unowned_evidence("native", slope.unexplained_part(explained_rate), growth)]


def comparison_limit(history: ReadingHistory) -> int:
    """Maximum number of comparisons of a case, which is lower when native growth is certain otherwise."""
    return CASE.maximum_comparisons if _is_native_certain(history) else CASE.maximum_comparisons_unproven_native


def _is_native_certain(history: ReadingHistory) -> bool:
    """Return whether enough judgements in a row found that unaccounted memory drifts."""
    return history.drift_counts["native"] >= DRIFT.judgements_in_row


def _object_series(history: ReadingHistory) -> tuple[Series, ...]:
    """Return the series that rise when objects are kept: unaccounted bytes, those of the C allocator, and children.

    Pages of files come in with the code of libraries as well, so that they count once they drift.
    """
    mapped = (history.file_mapped,) if history.drift_counts["mapped"] >= DRIFT.judgements_in_row else ()
    return history.unaccounted, history.allocated, history.children, *mapped


def _unexplained_values(series: Series, known_causes: Mapping[str, Evidence]) -> list[float]:
    """Return the values of a series, in bytes, less the growth that findings explain."""
    rates = (cause.drift.per_step for cause in known_causes.values() if cause.holders or cause.verdict == "native")
    rate = sum(rates) / OWNING.explained_share  # more than their sum, as rates may err
    return [value - rate * step for step, value in zip(series.steps, series.values, strict=True)]
