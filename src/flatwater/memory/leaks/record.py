"""Short series of everything that a monitor watches, and what the numbers alone tell: no census is needed for it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from flatwater.memory.leaks.drift import (
    JUDGED,
    SURE,
    Series,
    Slope,
    drifting,
    filling,
    robust_slope,
    thinned,
)
from flatwater.memory.leaks.finding import Finding, Verdict
from flatwater.memory.leaks.slowdown import slowdown
from flatwater.memory.leaks.verdict import Growth, judge_leaf, judge_phase, judge_rest

MIB = 1 << 20
MATERIAL = 0.002
"""Part of the resident bytes that a rise must reach, and 1 MiB at least."""
UNHELD_POINTS = 8
"""Points that must drift where no object is found: without one, a rise is also a slow warm-up."""
AGAIN = 3
"""Judgements in a row that must find it: free lists and clocks are noisy, and each series is judged many times."""
SOON = 20
"""Readings that are all judged; after that each series is judged at every fourth, in turn."""
TURNS = 4
COSTS_SOON = 60
"""The same for the costs of steps: they are noisy, and a program of seconds ends after a few dozen readings."""

T = TypeVar("T")


@dataclass(frozen=True)
class Reading:
    """Numbers of one moment, read once a step."""

    step: int
    resident: int
    file_mapped: int
    in_use: int | None
    """The C allocator's bytes handed out; None where it does not tell."""
    free: int | None
    """Its bytes freed and kept."""
    owned: Mapping[str, int]
    """Resident bytes by owner, of what the program declares."""
    planned: Mapping[str, int]
    """Bytes that each owner will have in the end."""
    limit: int | None
    """Resident bytes at which the process must stop."""
    rates: Mapping[str, float]
    """Steps per CPU second, by phase."""

    @property
    def owned_bytes(self) -> int:
        """Of all that the program declares."""
        return sum(self.owned.values())

    @property
    def unaccounted(self) -> int:
        """What neither files, nor the program's books, nor the allocator's free list explain."""
        return self.resident - self.file_mapped - self.owned_bytes - (self.free or 0)

    @property
    def material(self) -> float:
        """Bytes that a rise must reach to be told."""
        return max(MIB, MATERIAL * self.resident)


@dataclass
class Record:
    """The readings so far, each series thinned."""

    readings: int = 0
    resident: Series = field(default_factory=Series)
    unaccounted: Series = field(default_factory=Series)
    live: Series = field(default_factory=Series)
    """The C allocator's bytes in use, without what the program declares: less noisy than the pages."""
    free: Series = field(default_factory=Series)
    file_mapped: Series = field(default_factory=Series)
    declared: Series = field(default_factory=Series)
    """What the program declares, all together."""
    owned: dict[str, Series] = field(default_factory=dict)
    """The same, by owner; steps at which no owner changed are left out."""
    costs: dict[str, Series] = field(default_factory=dict)
    """CPU seconds per step, by phase: they rise in a straight line where a rate falls ever more slowly."""
    owned_before: Mapping[str, int] = field(default_factory=dict)
    drifted: Counter[str] = field(default_factory=Counter)
    """Judgements in a row that found a drift, by what was judged."""

    def add(self, reading: Reading) -> None:
        """Append a reading to each series."""
        step = reading.step
        self.readings += 1
        self.resident.add(step, reading.resident)
        self.unaccounted.add(step, reading.unaccounted)
        self.live.add(step, 0 if reading.in_use is None else reading.in_use - reading.owned_bytes)
        self.free.add(step, reading.free or 0)
        self.file_mapped.add(step, reading.file_mapped)
        self.declared.add(step, reading.owned_bytes)
        if reading.owned != self.owned_before:
            for path, size in reading.owned.items():
                self.owned.setdefault(path, Series()).add(step, size)
            self.owned_before = dict(reading.owned)
        for phase, rate in reading.rates.items():
            if rate > 0:
                self.costs.setdefault(phase, Series()).add(step, 1 / rate)

    def due(self, turn: int) -> bool:
        """Whether a series is to be judged now; long ones take turns, as nothing much changes from one reading on."""
        return self.readings <= SOON or self.readings % TURNS == turn % TURNS

    def growth(self, reading: Reading, unit: str) -> Growth:
        """How the whole process grows now."""
        return Growth(reading.step, reading.resident, reading.limit, recent_slope(self.resident), unit)


def recent_slope(series: Series) -> Slope:
    """Over the recent half of a long series, and all of a short one."""
    if len(series.steps) <= 1:
        return Slope(0.0, 0.0, 0.0)
    first = min(len(series.steps) // 2, max(0, len(series.steps) - UNHELD_POINTS))
    return robust_slope(thinned(series.steps[first:], JUDGED), thinned(series.values[first:], JUDGED))


def read_numbers(record: Record, reading: Reading, unit: str) -> list[Finding]:
    """What can be told without looking at an object: memory kept, files mapped, state that grows, slower steps.

    Args:
        record: with the reading in it.
        reading: the latest.
        unit: what a step is called.
    """
    found = []
    unheld: list[tuple[Verdict, Series]] = [("retention", record.free), ("mapped", record.file_mapped)]
    for turn, (verdict, series) in enumerate(unheld):
        if record.due(turn) and (slope := _sure_drift(record, verdict, series, least=reading.material)) is not None:
            found.append(judge_rest(verdict, slope, record.growth(reading, unit)))
    if record.due(len(unheld)):
        _sure_drift(record, "native", record.unaccounted, least=reading.material)
    if record.due(len(unheld) + 1):
        found += _grown_leaves(record, reading, unit)
    return found + _slower_phases(record, reading, unit)


def _sure_drift(record: Record, name: str, series: Series, *, least: float) -> Slope | None:
    slope = drifting(series.steps, series.values, least=least, fewest=UNHELD_POINTS, confidence=SURE)
    return _again(record, name, slope)


def _again(record: Record, name: str, found: T | None) -> T | None:
    """What a judgement found, where those before it found something as well."""
    record.drifted[name] = 0 if found is None else record.drifted[name] + 1
    return found if record.drifted[name] >= AGAIN else None


def _grown_leaves(record: Record, reading: Reading, unit: str) -> list[Finding]:
    """What the program declares and fills, or what drifts where all of it does."""
    whole, least = record.declared, reading.material
    drifts = drifting(whole.steps, whole.values, least=least) is not None
    found = []
    for path, size in reading.owned.items():
        series, planned, slope = record.owned[path], reading.planned.get(path), None
        if drifts:
            slope = drifting(series.steps, series.values, least=least / len(reading.owned))
        if slope is None and planned is not None and size < planned:
            slope = filling(series.steps, series.values, now=reading.step, least=least)
        if slope is not None:
            found.append(judge_leaf(path, size, planned, drift=slope, growth=record.growth(reading, unit)))
    return found


def _slower_phases(record: Record, reading: Reading, unit: str) -> list[Finding]:
    found = []
    for turn, phase in enumerate(reading.rates):
        series = record.costs.get(phase)
        if series is not None and (len(series.steps) <= COSTS_SOON or record.due(turn)):  # not every reading has rates
            slower = _again(record, f"phase {phase}", slowdown(series))
            if slower is not None:
                found.append(judge_phase(phase, slower, record.growth(reading, unit)))
    return found


def slower_at_the_end(record: Record, reading: Reading, unit: str) -> list[Finding]:
    """Phases whose steps take ever more time, when no reading will come: two judgements in a row do.

    Args:
        record: of the process.
        reading: the last.
        unit: what a step is called.
    """
    found = []
    for phase, series in record.costs.items():
        slower = slowdown(series)
        if slower is not None and slowdown(Series(series.steps[:-1], series.values[:-1])) is not None:
            found.append(judge_phase(phase, slower, record.growth(reading, unit)))
    return found
