"""The allocator is asked at each reading, unless its answers take long."""

import pytest

from flatwater.memory.probes import mappings
from flatwater.memory.probes.allocator import Totals
from flatwater.memory.watch.reading import ALLOCATOR, SLOW


@pytest.mark.parametrize(("takes", "pause"), [(SLOW / 2, 0.0), (2 * SLOW, 2 * SLOW / ALLOCATOR)])
def test_an_answer_that_takes_long_stands_for_a_while(
    monkeypatch: pytest.MonkeyPatch, takes: float, pause: float
) -> None:
    now, asked = [100.0], list[float]()

    def totals() -> Totals:
        asked.append(now[0])
        now[0] += takes
        return Totals(in_use=len(asked), free=0)

    monkeypatch.setattr(mappings, "monotonic", lambda: now[0])
    allocator, told = mappings.Seldom(totals, ALLOCATOR, cheap=SLOW), list[int]()
    for at in (100.0, 101.0, 100.0 + pause + 1.5):
        now[0] = max(now[0], at)
        told.append(allocator.now_().in_use)
    assert told == ([1, 2, 3] if not pause else [1, 1, 2])
    assert len(asked) == told[-1]
