"""Readings and a finding of a program that was watched, made up."""

from flatwater_watch.agent.growth import Sample
from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.series.readings import Reading

MIB = 1 << 20
READING = Reading(step=0, resident=0, file_mapped=0, in_use=0, free=0, owned={}, planned={}, limit=None, rates={})
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
