"""Charts of a watched program: its resident memory with the way to the limit, and which kind of memory grows."""

from collections.abc import Sequence
from typing import Any

from flatwater.memory.thresholds import SHIPPED
from flatwater.reports.markup import Chart
from flatwater.reports.memory_charts import curve, unit_of
from flatwater.reports.watch_records import Series, WatchRecords
from flatwater.units import format_bytes, format_duration

AHEAD = 2.0
"""The limit is drawn where it is reached within so many times the seconds watched; else it is told in words, ..."""
GLIMPSE = 0.25
"""... and the forecast is drawn for this part of the seconds watched."""
LEAST_SPAN = 0.05
"""Part of the highest value that the axis covers at least: noise of a flat program must look flat."""
LEAST_CHANGE = 1 << 20
"""Bytes that the axis of changes covers at least, up and down."""
CLOCKS = (("h", 3600.0), ("min", 60.0))
LONG = 3.0
"""A clock's unit is taken where so many of it were watched; seconds below that."""


def resident_chart(watch: WatchRecords) -> Chart:
    """Resident memory over time, and the straight line to the limit where a finding tells when it is reached."""
    series = watch.series
    clock, tick = _clock(series.seconds[-1])
    unit, size = unit_of(series.resident)
    shown: list[float] = list(series.resident)
    told = [f"{watch.unit} {step}" for step in series.steps]
    hover = f"%{{y:,.2f}} {unit}" + ("" if watch.unit == "second" else " · %{text}")
    measured = curve(_in(tick, series.seconds), _in(size, shown), "resident", "--owner-1", hover=hover, width=2.2)
    data = [measured | {"text": told}]
    warm = format_duration(series.seconds[_warm(series)])
    start = f"The first {warm}, a fifth of the readings, are taken for warm-up: growth is measured from there."
    said = ["Bytes in RAM, without the watch's own.", start]
    end = forecast(watch)
    if end is not None:
        line, level, words = _way(series, end)
        said.append(words)
        shown += [bytes_ for _, bytes_ in line]
        x, y = zip(*line, strict=True)
        data.append(_dashed(_in(tick, x), _in(size, y), "forecast", "--quiet"))
        if level:
            ends = (series.seconds[0] / tick, x[-1] / tick)
            data.append(_dashed(ends, [end[1] / size] * 2, "limit", "--budget"))
    return Chart(
        title="Resident memory",
        reading=" ".join(said),
        data=data,
        layout={
            "xaxis": {"ticksuffix": f" {clock}"},
            "yaxis": {"ticksuffix": f" {unit}", "range": _in(size, _range(shown))},
        },
        height=360,
    )


def kinds_chart(series: Series) -> Chart:
    """Files, memory in use, and memory freed and kept: each against its bytes at the end of warm-up."""
    clock, tick = _clock(series.seconds[-1])
    freed = series.freed or (0,) * len(series.resident)
    used = [whole - files - free for whole, files, free in zip(series.resident, series.files, freed, strict=True)]
    kinds: list[tuple[str, Sequence[int], str]] = [("mapped files", series.files, "--owner-2")]
    if series.freed:
        kinds += [("freed, kept by the allocator", freed, "--owner-7"), ("in use", used, "--owner-1")]
    else:
        kinds.append(("in use, or freed and kept", used, "--owner-1"))
    start = _warm(series)
    changes = {name: [value - values[start] for value in values] for name, values, _ in kinds}
    every = [change for column in changes.values() for change in column]
    unit, size = unit_of([*every, LEAST_CHANGE])
    low, high = min(*every, -LEAST_CHANGE), max(*every, LEAST_CHANGE)
    return Chart(
        title="Which kind of memory grows",
        reading="Each line is a kind's bytes against those at the end of warm-up. In use: objects and native memory; "
        "freed: pages that the program gave back and the allocator keeps; files: pages that the system can take back.",
        data=[
            curve(_in(tick, series.seconds), _in(size, changes[name]), name, colour, hover=f"%{{y:+,.2f}} {unit}")
            for name, _, colour in kinds
        ],
        layout={
            "xaxis": {"ticksuffix": f" {clock}"},
            "yaxis": {"ticksuffix": f" {unit}", "range": [1.06 * low / size, 1.06 * high / size]},
        },
        height=260,
    )


def forecast(watch: WatchRecords) -> tuple[float, int, int] | None:
    """When memory ends: seconds since the start of the watch, bytes, and the step. None where no finding tells.

    Findings count in steps; their pace is that since warm-up.
    """
    ends = [
        (found.limit_step, found.limit_bytes)
        for found in watch.findings
        if found.has_date and found.limit_step is not None and found.limit_bytes is not None
    ]
    series = watch.series
    if not ends or not series.seconds:
        return None
    step, limit = min(ends)
    start = _warm(series)
    passed = series.steps[-1] - series.steps[start]
    pace = (series.seconds[-1] - series.seconds[start]) / passed if passed > 0 else 0.0
    if watch.unit == "second":
        pace = 1.0
    left = (step - series.steps[-1]) * pace
    return (series.seconds[-1] + left, limit, step) if left > 0 and limit > series.resident[-1] else None


def _way(series: Series, end: tuple[float, int, int]) -> tuple[list[tuple[float, float]], bool, str]:
    """The line from the last reading, whether it reaches the limit within the picture, and a sentence."""
    at, limit, _ = end
    now, bytes_ = series.seconds[-1], series.resident[-1]
    left = f"The dashed line goes on at this pace: the limit of {format_bytes(limit)} is reached"
    words = f"{left} {format_duration(at - now)} after the last reading"
    if at <= AHEAD * now:
        return [(now, bytes_), (at, limit)], True, f"{words}."
    part = GLIMPSE * now / (at - now)
    glimpse = now * (1 + GLIMPSE), bytes_ + part * (limit - bytes_)
    return [(now, bytes_), glimpse], False, f"{words}, beyond the picture."


def _warm(series: Series) -> int:
    return len(series.seconds) // SHIPPED.ending.warm_up


def _clock(seconds: float) -> tuple[str, float]:
    """The unit of the axis of time, and its seconds."""
    return next((found for found in CLOCKS if seconds >= LONG * found[1]), ("s", 1.0))


def _in(size: float, values: Sequence[float]) -> list[float]:
    return [value / size for value in values]


def _range(values: Sequence[float]) -> tuple[float, float]:
    """From below the lowest to above the highest, never narrower than a part of the highest."""
    low, high = min(values), max(values)
    margin = max(0.06 * (high - low), (LEAST_SPAN * high - (high - low)) / 2)
    return max(0.0, low - margin), high + margin


def _dashed(x: Sequence[float], y: Sequence[float], name: str, colour: str) -> dict[str, Any]:
    line = {"color": colour, "width": 1.6, "dash": "dash"}
    shape = {"type": "scatter", "mode": "lines", "line": line, "hoverinfo": "skip"}
    return {"x": list(x), "y": list(y), "name": name} | shape
