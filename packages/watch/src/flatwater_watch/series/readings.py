"""A reading of a process, and the history of all figures that a monitor watches."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, inf
from typing import NamedTuple

from flatwater_watch.series.slope import Series, Slope, robust_slope, thin_evenly
from flatwater_watch.thresholds import CASE, DRIFT

POINTS_JUDGED_ALWAYS = 20
"""Number of readings at which all series are judged."""
TURN_COUNT = 4
"""Number of groups of series that take turns at later readings: one group is judged at each."""


class Reading(NamedTuple):
    """Figures of a process at one moment, read once a step."""

    step: int
    """Steps so far; for a watched program, the boundaries that it has passed."""
    resident: int
    """Resident bytes."""
    file_mapped: int
    """Resident bytes that are pages of mapped files."""
    in_use: int | None
    """Bytes that the C allocator has handed out; None if it does not say."""
    free: int | None
    """Bytes that the C allocator has freed and kept; None if it does not say."""
    owned: Mapping[str, int]
    """Resident bytes of the state that the program declares, by owner."""
    planned: Mapping[str, int]
    """Bytes of each owner when it is full."""
    limit: int | None
    """Resident bytes at which the process must stop."""
    rates: Mapping[str, float]
    """Steps per CPU second, by phase."""
    children: int = 0
    """Private bytes of the child processes, each as it was at its beginning; not in `resident`."""

    @property
    def owned_bytes(self) -> int:
        """Resident bytes of all state that the program declares."""
        return sum(self.owned.values())

    @property
    def unaccounted(self) -> int:
        """Resident bytes that neither files, nor declared state, nor the allocator's free memory explain."""
        return self.resident - self.file_mapped - self.owned_bytes - (self.free or 0)

    @property
    def unaccounted_with_children(self) -> int:
        """Unaccounted bytes, and those of the child processes."""
        return self.unaccounted + self.children

    @property
    def material_bytes(self) -> float:
        """Minimum bytes of a rise that counts, by the size of the process."""
        return max(DRIFT.least_bytes, DRIFT.least_share * self.resident)

    @property
    def has_headroom(self) -> bool:
        """Whether the limit is far enough away for an investigation, which takes memory itself."""
        return self.limit is None or self.limit - self.resident >= CASE.minimum_headroom_share * self.limit


class Growth(NamedTuple):
    """Growth of the whole process."""

    step: int
    """Steps so far, each one `unit`."""
    resident: int
    """Resident bytes at the last reading."""
    limit: int | None
    """Resident bytes at which the process must stop; None if that is not known."""
    whole: Slope
    """Slope of the resident bytes."""
    unit: str = "round"
    """Unit of a step, such as `boundary`, `round` or `second`."""


class Scale(NamedTuple):
    """The conversion from steps to the unit in which growth is reported."""

    unit: str
    """Name of the unit, such as `episode`."""
    per_unit: float
    """Steps per unit."""
    step: int
    """Steps so far."""
    units: int
    """Units so far."""
    steps_per_second: float = inf
    now: float = 0.0
    """Seconds since 1970."""

    def unit_at_step(self, step: int | None) -> int | None:
        """Return the number of the unit, such as the episode, in which a step falls; None if the step is None.

        Steps before the present one are taken for the present one, so that the number is at least `units`.
        """
        return None if step is None else self.units + max(0, ceil((step - self.step) / self.per_unit))

    def time_at_step(self, step: int | None) -> float | None:
        """Return the time of a step in seconds since 1970, at the present pace; None if step or pace is not known."""
        if step is None or self.steps_per_second <= 0:
            return None
        return self.now + max(0, step - self.step) / self.steps_per_second


@dataclass(eq=False, repr=False)
class ReadingHistory:
    """The readings so far, as thinned series."""

    readings: int = 0
    """Number of readings so far."""
    resident: Series = field(default_factory=Series)
    """Resident bytes, with those of the child processes."""
    unaccounted: Series = field(default_factory=Series)
    """Resident bytes that neither files, nor declared state, nor the allocator's free memory explain."""
    allocated: Series = field(default_factory=Series)
    """Bytes that the C allocator has handed out, without declared state: less noisy than resident pages."""
    free: Series = field(default_factory=Series)
    file_mapped: Series = field(default_factory=Series)
    children: Series = field(default_factory=Series)
    """Bytes of the child processes, which rise with their number."""
    declared: Series = field(default_factory=Series)
    """Bytes of all state that the program declares."""
    owned: dict[str, Series] = field(default_factory=dict)
    """Bytes of declared state by owner; steps at which no owner changed are left out."""
    phase_costs: dict[str, Series] = field(default_factory=dict)
    """CPU seconds per step, by phase: they rise in a straight line if a rate falls ever more slowly."""
    owned_before: Mapping[str, int] = field(default_factory=dict)
    """Bytes of declared state by owner at the last change, which `owned` has."""
    drift_counts: Counter[str] = field(default_factory=Counter)
    """Number of judgements in a row that found a drift, by the name of the series."""

    def add(self, reading: Reading) -> None:
        """Append the figures of a reading to their series."""
        step = reading.step
        self.readings += 1
        self.resident.add(step, reading.resident + reading.children)
        self.unaccounted.add(step, reading.unaccounted)
        self.allocated.add(step, 0 if reading.in_use is None else reading.in_use - reading.owned_bytes)
        self.free.add(step, reading.free or 0)
        self.file_mapped.add(step, reading.file_mapped)
        self.children.add(step, reading.children)
        self.declared.add(step, reading.owned_bytes)
        if reading.owned != self.owned_before:  # most programs change their declared state seldom
            for path, size in reading.owned.items():
                self.owned.setdefault(path, Series()).add(step, size)
            self.owned_before = dict(reading.owned)
        for phase, rate in reading.rates.items():
            if rate > 0:  # a phase without a step has no cost
                self.phase_costs.setdefault(phase, Series()).add(step, 1 / rate)

    def judges_group(self, group: int) -> bool:
        """Return whether the series of this group are to be judged at the newest reading.

        At the first `POINTS_JUDGED_ALWAYS` readings all groups are; later the groups take turns, to save time: each is
        judged at every `TURN_COUNT`-th reading.
        """
        return self.readings <= POINTS_JUDGED_ALWAYS or self.readings % TURN_COUNT == group % TURN_COUNT

    @property
    def swing_bytes(self) -> float:
        """Difference of the most and the least unaccounted bytes."""
        return max(self.unaccounted.values) - min(self.unaccounted.values)

    @property
    def largest_fall(self) -> float:
        """The largest fall of the unaccounted bytes from one reading to the next."""
        return max((earlier - later for earlier, later in pairwise(self.unaccounted.values)), default=0.0)

    def has_fallen(self, first_step: int, minimum: float) -> bool:
        """Return whether, from a step on, the unaccounted bytes fell by `minimum` or more between two readings."""
        series = self.unaccounted
        begin = bisect_left(series.steps, first_step)
        return any(earlier - later >= minimum for earlier, later in pairwise(series.values[begin:]))

    def growth(self, reading: Reading) -> Growth:
        """Return the growth of the whole process up to a reading."""
        slope = recent_slope(self.resident)
        return Growth(step=reading.step, resident=reading.resident, limit=reading.limit, whole=slope)


def recent_slope(series: Series) -> Slope:
    """Return the robust slope of the recent half of a series, or of more of it if the half has too few points."""
    if len(series.steps) <= 1:
        return Slope(per_step=0.0, low=0.0, high=0.0)  # one point has no slope
    # At least as many points as prove a drift that no object explains.
    begin = min(len(series.steps) // 2, max(0, len(series.steps) - DRIFT.minimum_points_without_object))
    return robust_slope(
        thin_evenly(series.steps[begin:], DRIFT.judged_points), thin_evenly(series.values[begin:], DRIFT.judged_points)
    )
