"""What a phase takes on a device is what its events say, and not how long the work took to hand over."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from mmap import mmap

import pytest

from flatwater.memory.ledger import Effort
from flatwater.runs.phase_meter import PhaseMeter
from flatwater_watch.meters.mappings import reset_peak


@dataclass
class FakeEvent:
    """At so many milliseconds of the device."""

    at: float
    waited: bool = False

    def elapsed_time(self, end_event: "FakeEvent") -> float:
        return end_event.at - self.at

    def synchronize(self) -> None:
        self.waited = True


def test_the_seconds_of_a_phase_are_those_of_the_device() -> None:
    moments: Iterator[float] = accumulate((100.0, 5000.0, 500.0, 40.0, 7000.0))
    made: list[FakeEvent] = []

    def mark() -> FakeEvent:
        made.append(FakeEvent(next(moments)))
        return made[-1]

    efforts = PhaseMeter(mark)
    efforts.count_step_("learn", ends=False)
    efforts.count_step_("learn")
    efforts.count_step_("evaluate")
    taken = efforts.take_()
    assert {name: effort.seconds for name, effort in taken.items()} == {"learn": 5.0, "evaluate": 0.5}
    assert [effort.steps for effort in taken.values()] == [2, 1]
    assert [event.waited for event in made] == [False, False, True], "the last one is waited for, once"
    efforts.count_step_("save")
    efforts.count_step_("learn")
    assert {name: effort.seconds for name, effort in efforts.take_().items()} == {"save": 0.04, "learn": 7.0}


def test_without_a_device_they_are_those_of_this_process() -> None:
    efforts = PhaseMeter()
    efforts.count_step_("learn")
    assert 0 <= efforts.take_()["learn"].seconds < 60
    assert efforts.take_() == {}


def test_a_step_that_had_nothing_to_do_is_counted_and_takes_no_time() -> None:
    efforts = PhaseMeter()
    efforts.count_peaks_(enabled=False)
    efforts.count_step_("save", is_idle=True)
    efforts.count_step_("save")
    efforts.count_step_("save", is_idle=True)
    taken = efforts.take_()["save"]
    assert taken.steps == 3
    efforts.count_step_("save", is_idle=True)
    assert efforts.take_() == {"save": Effort(seconds=0.0, cpu_seconds=0.0, steps=1, peak=None)}


@pytest.mark.skipif(not reset_peak(), reason="the system does not let a process forget its peak")
def test_a_checkpoint_amid_a_phase_leaves_the_phase_its_peak() -> None:
    """After SIGUSR2, what learning had reached counted to `save`, and learning had a peak of next to nothing."""
    efforts, large = PhaseMeter(), 64 << 20
    efforts.count_step_("learn", ends=False)
    with mmap(-1, large) as pages:  # what malloc gave might be memory that was freed before, and resident all the time
        pages.write(b"1" * large)
    efforts.count_step_("learn", ends=False)
    efforts.end_phase_("learn")
    efforts.count_step_("save")
    efforts.count_step_("learn")
    efforts.end_phase_("evolve")  # of which no step was taken yet
    taken = efforts.take_()
    learned, saved = taken["learn"].peak, taken["save"].peak
    assert learned is not None
    assert saved is not None
    assert saved < large // 2 < learned
    assert taken.keys() == {"learn", "save"}
