"""All boundaries are counted; few of a hurried kind are looked at; a tick ends the hurry."""

import pytest

from flatwater.memory.watch import boundaries
from flatwater.memory.watch.boundaries import MOST, RESTING, TICK, Boundaries, ticks_until


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Its last item is the time."""
    now = [100.0]
    monkeypatch.setattr(boundaries, "monotonic", lambda: now[-1])
    return now


class Looks(list[tuple[str, float]]):
    """What a watch is told."""

    def __call__(self, kind: str, now: float) -> bool:
        self.append((kind, now))
        return False


def passed(found: Boundaries, clock: list[float], kinds: list[str], seconds: float) -> None:
    for kind in kinds:
        clock.append(clock[-1] + seconds)
        found.step(kind)


def test_hurried_boundaries_are_counted_and_seldom_looked_at(clock: list[float]) -> None:
    looks = Looks()
    found = Boundaries(looks, ticks=True)
    passed(found, clock, ["step"] * 1000, 10e-6)
    assert found.counts == {"step": 1000}
    assert len(looks) <= 2 + 1000 / 49
    passed(found, clock, ["episode"], 10e-6)
    assert found.counts == {"step": 1000, "episode": 1}
    assert found.seconds["step", "step"] == pytest.approx(0.00999, rel=1e-3)
    assert found.seconds["step", "episode"] == pytest.approx(10e-6, rel=1e-3)


def test_slow_boundaries_are_all_looked_at(clock: list[float]) -> None:
    looks = Looks()
    passed(Boundaries(looks, ticks=True), clock, ["update"] * 50, 0.001)
    assert len(looks) == 50


def test_a_tick_ends_the_hurry(clock: list[float]) -> None:
    """Quick steps, as of a warm-up, and slow ones: they are looked at from the first tick on."""
    looks = Looks()
    found = Boundaries(looks, ticks=True)
    passed(found, clock, ["step"] * 10, 1e-6)
    passed(found, clock, ["step", TICK, "step", "step", "step"], 1.0)
    assert [kind for kind, now in looks if now > 101] == [TICK, "step", "step", "step"]
    assert found.counts == {"step": 14, TICK: 1}


def test_ticks_are_all_looked_at_however_close_they_come(clock: list[float]) -> None:
    looks = Looks()
    passed(Boundaries(looks, ticks=True), clock, [TICK] * 3, 1e-6)
    assert len(looks) == 3


def test_without_ticks_every_boundary_is_looked_at(clock: list[float]) -> None:
    looks = Looks()
    passed(Boundaries(looks, ticks=False), clock, ["step"] * (2 * MOST), 1e-6)
    assert len(looks) == 2 * MOST


def test_ticks_that_were_not_needed_are_counted(clock: list[float]) -> None:
    found = Boundaries(Looks(), ticks=True)
    found.tick(1)
    found.tick(7)
    passed(found, clock, ["step", "step"], 1.0)
    assert found.clock(None, ticks=True) == 8
    assert found.clock(None, ticks=False) == found.clock("step", ticks=False) == 2


@pytest.mark.parametrize(
    ("seconds", "ticks"),
    [(-3.0, 1), (0.0, 1), (0.04, 1), (0.06, 2), (0.5, 10), (60.0, RESTING), (float("inf"), RESTING)],
)
def test_a_tick_is_needed_when_a_reading_is_due(clock: list[float], seconds: float, ticks: int) -> None:
    assert ticks_until(clock[-1] + seconds) == ticks
