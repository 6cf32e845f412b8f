"""Readings and a finding of a program that was watched, made up."""

from typing import Any

from flatwater_watch.agent.growth import Sample
from flatwater_watch.diagnose.evidence import Evidence
from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.series.readings import Reading
from flatwater_watch.series.slope import Slope

MIB = 1 << 20
READING = Reading(step=0, resident=0, file_mapped=0, in_use=0, free=0, owned={}, planned={}, limit=None, rates={})
FLAT = Reading(
    step=0,
    resident=400 * MIB,
    file_mapped=100 * MIB,
    in_use=200 * MIB,
    free=10 * MIB,
    owned={},
    planned={},
    limit=2000 * MIB,
    rates={"learn": 100.0},
)
"""A program of 400 MiB that does not grow."""
LEAK = Finding(
    verdict="leak",
    owner="train.KEPT",
    holders=("train.py, global KEPT",),
    made_at=None,
    bytes_per_step=float(MIB),
    interval=(0.5 * MIB, 2.0 * MIB),
    share=1.0,
    count=1,
    what="",
    plateau_bytes=None,
    plateau_step=150,
    limit_bytes=None,
    limit_step=None,
    advice="",
)


GROWING = Evidence(
    verdict="leak",
    owner=LEAK.owner,
    holders=LEAK.holders,
    drift=Slope(float(MIB), 0.5 * MIB, 2.0 * MIB),
    count=1,
    plateau_step=150,
)
"""The evidence on it."""


def grown_reading(step: int, size: float, **changes: Any) -> Reading:
    """A reading with so many MiB more in use."""
    more = int(size * MIB)
    return FLAT._replace(step=step, resident=400 * MIB + more, in_use=200 * MIB + more, **changes)


def rate_of(per_step: float, low: float | None = None) -> Slope:
    """A rate in bytes per step; its bounds are half and twice as much, if no other is given."""
    return Slope(per_step, per_step / 2 if low is None else low, 2 * per_step)


def rows(residents: list[int], steps_each: int = 10, episodes_each: int = 1) -> list[Sample]:
    """One row for each resident size, with so many env steps and episodes between two."""
    return [
        Sample(
            seconds=float(i),
            counts={"step": i * (steps_each - episodes_each), "episode": i * episodes_each},
            reading=READING._replace(step=i * steps_each, resident=size, in_use=size),
        )
        for i, size in enumerate(residents)
    ]
