"""The allocator is asked at each reading, unless its answers take long."""

import pytest

from flatwater.memory.probes.allocator import Totals
from flatwater.memory.probes.mappings import Footprint
from flatwater.memory.watch import reading
from flatwater.memory.watch.reading import ALLOCATOR, SLOW, Allocator, kept_of


@pytest.mark.parametrize(("takes", "pause"), [(SLOW / 2, 0.0), (2 * SLOW, 2 * SLOW / ALLOCATOR)])
def test_an_answer_that_takes_long_stands_for_a_while(
    monkeypatch: pytest.MonkeyPatch, takes: float, pause: float
) -> None:
    now, asked = [100.0], list[float]()

    def totals() -> Totals:
        asked.append(now[0])
        now[0] += takes
        return Totals(in_use=len(asked), free=0)

    monkeypatch.setattr(reading, "monotonic", lambda: now[0])
    monkeypatch.setattr(reading, "totals", totals)
    allocator, told = Allocator(), []
    for at in (100.0, 101.0, 100.0 + pause + 1.5):
        now[0] = max(now[0], at)
        known = allocator.now()
        told.append(None if known is None else known.in_use)
    assert told == ([1, 2, 3] if not pause else [1, 1, 2])
    assert len(asked) == told[-1]


@pytest.mark.parametrize(
    ("resident", "files", "in_use", "free", "kept"),
    [
        (400, 100, 150, 120, 120),  # all that was freed is resident
        (400, 100, 250, 900, 50),  # most of it was given back by a trim
        (400, 100, 700, 900, 0),  # handed out and never touched
    ],
)
def test_freed_bytes_count_as_far_as_they_are_resident(
    resident: int, files: int, in_use: int, free: int, kept: int
) -> None:
    assert kept_of(Totals(in_use=in_use, free=free), Footprint(resident, files)) == kept
