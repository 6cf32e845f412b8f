"""What the numbers alone tell: memory kept, files mapped, state that grows, slower steps. No census is needed."""

from collections.abc import Sequence
from typing import TypeVar

from flatwater_watch.diagnose.finding import Finding, Verdict
from flatwater_watch.diagnose.judge import judge_leaf, judge_phase, judge_rest
from flatwater_watch.series.readings import Reading, Record
from flatwater_watch.series.slope import Series, Slope, drifting, filling, stairs
from flatwater_watch.series.slowdown import slowdown
from flatwater_watch.thresholds import SHIPPED

DRIFT, ENDING, OWNING = SHIPPED.drift, SHIPPED.ending, SHIPPED.owning


COSTS_SOON = 60
"""The same for the costs of steps: they are noisy, and a program of seconds ends after a few dozen readings."""

T = TypeVar("T")


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
    return _again(record, name, _unheld_drift(series.steps, series.values, least))


def _unheld_drift(steps: Sequence[float], values: Sequence[float], least: float) -> Slope | None:
    return drifting(steps, values, least=least, fewest=DRIFT.unheld, confidence=DRIFT.sure)


def _again(record: Record, name: str, found: T | None) -> T | None:
    """What a judgement found, where those before it found something as well."""
    record.drifted[name] = 0 if found is None else record.drifted[name] + 1
    return found if record.drifted[name] >= DRIFT.again else None


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


def kept_at_the_end(record: Record, reading: Reading, unit: str) -> list[Finding]:
    """Freed memory that is kept, when no reading will come: two judgements in a row do, where it is the growth.

    A heap whose holes are filled again grows in stairs, as each round needs a little more than the one before.

    Args:
        record: of the process.
        reading: the last.
        unit: what a step is called.
    """
    free, resident = record.free, record.resident
    first = len(free.steps) // ENDING.warm_up
    freed, grown = (series.values[-1] - series.values[first] for series in (free, resident))
    if grown < reading.material or freed < OWNING.explained * grown:
        return []
    least, rows = reading.material, ((free.steps, free.values), (free.steps[:-1], free.values[:-1]))
    slope, before = (_unheld_drift(*row, least) or _unheld_drift(*stairs(*row, least), least) for row in rows)
    return [] if slope is None or before is None else [judge_rest("retention", slope, record.growth(reading, unit))]


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
