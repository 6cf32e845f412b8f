"""Growth that no finding explains: whether it is worth an investigation, and when it is certainly native.

A drift is a lasting rise of a series of readings. Unaccounted are resident bytes that neither files, nor declared
state, nor the allocator's free memory explain. They are native if no Python object holds them.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flatwater_watch.diagnose.evidence import Evidence, unowned_evidence
from flatwater_watch.series.readings import Growth, Reading, ReadingHistory, recent_slope
from flatwater_watch.series.slope import Series, Slope, drift_slope, has_recent_rise, jump_points
from flatwater_watch.thresholds import CASE, DRIFT, OWNING


class UnprovenGrowth(NamedTuple):
    """The causes that an investigation found without a proof, as readings scattered more than they rose."""

    causes: Sequence[Evidence]
    reading: Reading
    """Reading at which the investigation ended."""

    def causes_if_growth_continues(self, latest: Reading, open_bytes: float) -> list[Evidence]:
        """Return the causes if memory went on to grow at their rate, and they explain most of the open bytes.

        Else the list is empty.

        Args:
            latest: latest reading.
            open_bytes: bytes without a cause that came since the beginning.
        """
        rate = sum(cause.drift.per_step for cause in self.causes)
        actual_bytes = latest.unaccounted - self.reading.unaccounted
        forecast_bytes = rate * (latest.step - self.reading.step)
        smaller, larger = sorted((actual_bytes, forecast_bytes))
        # The smaller of both is a large part of the other; the threshold for garbage serves here too.
        kept_growing = larger > 0 and smaller >= CASE.minimum_garbage_share * larger
        explained_bytes = rate * latest.step  # as if they grew from the beginning, like `open_bytes`
        explains_most = explained_bytes >= CASE.minimum_garbage_share * open_bytes
        return list(self.causes) if kept_growing and explains_most else []


def is_suspicious(history: ReadingHistory, known_causes: Mapping[str, Evidence], reading: Reading) -> bool:
    """Return whether memory that no known cause explains has risen lately: no proof, but worth an investigation."""
    return any(
        has_recent_rise(_unexplained_values(series, known_causes), reading.material_bytes)
        for series in _object_series(history)
    )


def find_drift(history: ReadingHistory, known_causes: Mapping[str, Evidence], reading: Reading) -> tuple[bool, Slope]:
    """Return whether memory that no known cause explains drifts (rises for good), and a recent slope of memory.

    The slope is in bytes per step, without regard to known causes: that of the first series that drifts, or of the
    unaccounted bytes if none does. A series drifts if all its points do, or its jumps (one point for each).
    """
    minimum_rise = reading.material_bytes
    for series in _object_series(history):
        values = _unexplained_values(series, known_causes)
        slope = drift_slope(series.steps, values, minimum=minimum_rise)
        if slope is None:
            slope = drift_slope(*jump_points(series.steps, values, minimum_rise), minimum=minimum_rise)
        if slope is not None:
            return True, recent_slope(series)
    return False, recent_slope(history.unaccounted)


def native_growth_evidence(
    history: ReadingHistory, reading: Reading, growth: Growth, explained_rate: float, *, at_end: bool = False
) -> list[Evidence]:
    """Return the evidence on growth that no Python object holds, if it is certain.

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
    is_certain = _is_native_certain(history)
    if not is_certain and at_end and history.drift_counts["native"] > 0:
        # At the end the last judgement suffices, unless memory fell by much: that is what cyclic garbage does.
        is_certain = not history.has_fallen(0, minimum_rise)
    if not is_certain:
        return []
    slope = drift_slope(series.steps, series.values, minimum=minimum_rise, fewest=DRIFT.minimum_points_without_object)
    if slope is None:
        return []
    is_mostly_explained = slope.per_step - explained_rate <= (1 - OWNING.explained_share) * slope.per_step
    if is_mostly_explained:
        return []
    return [unowned_evidence("native", slope.unexplained_part(explained_rate), growth)]


def comparison_limit(history: ReadingHistory) -> int:
    """Return the maximum number of comparisons of censuses in an investigation.

    It is lower if the readings have already proven native growth, so that the case may end without an owner.
    """
    return CASE.maximum_comparisons if _is_native_certain(history) else CASE.maximum_comparisons_unproven_native


def _is_native_certain(history: ReadingHistory) -> bool:
    """Return whether native growth is certain: enough judgements in a row found that unaccounted memory drifts."""
    return history.drift_counts["native"] >= DRIFT.judgements_in_row


def _object_series(history: ReadingHistory) -> tuple[Series, ...]:
    """Return the series that rise when objects are kept alive: unaccounted and allocated bytes, and child processes.

    Pages of mapped files are added once they drift, as the code of libraries also comes in such pages.
    """
    series = (history.unaccounted, history.allocated, history.children)
    mapped_pages_drift = history.drift_counts["mapped"] >= DRIFT.judgements_in_row
    return (*series, history.file_mapped) if mapped_pages_drift else series


def _unexplained_values(series: Series, known_causes: Mapping[str, Evidence]) -> list[float]:
    """Return the values of a series, in bytes, from which the growth that known causes explain is subtracted."""
    rates = (cause.drift.per_step for cause in known_causes.values() if cause.holders or cause.verdict == "native")
    # More than their sum, as rates may be too low by a fifth.
    rate = sum(rates) / OWNING.explained_share
    return [value - rate * step for step, value in zip(series.steps, series.values, strict=True)]
