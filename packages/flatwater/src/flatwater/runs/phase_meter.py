"""Efforts of the phases of a round: seconds here or on the device, CPU seconds, and the memory at their highest."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Protocol

import torch

from flatwater.memory.ledger import Effort
from flatwater_watch.meters.mappings import footprint, peak_bytes, reset_peak


class DeviceEvent(Protocol):
    """A moment on a device, with the methods of `torch.cuda.Event`."""

    def elapsed_time(self, end_event: Any) -> float:  # noqa: ANN401  (another of its class)
        """Return the milliseconds from this event to another."""

    def synchronize(self) -> None:
        """Wait until the device has come to this event."""


def cuda_event() -> DeviceEvent:
    """Return an event that is recorded now, behind all that the device was given."""
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


@dataclass
class PhaseMeter:
    """Counts time and memory between two moments to the phase that was at work; one for each training process.

    Where a CUDA device computes, the clock of this process says how long it took to hand work over. There events mark
    each phase's end, and are read when the round is taken.
    """

    mark: Callable[[], DeviceEvent] | None = None
    """Makes an event on the device; None if time is that of this process."""
    marked: list[tuple[str, DeviceEvent]] = field(default_factory=list)
    """Phases and their ends since `take_`; the first entry is where it began."""
    spent: dict[str, Effort] = field(default_factory=dict)
    """Effort by phase since `take_`."""
    steps: int = 0
    """Steps of the phase that is at work, since it began or was interrupted."""
    wall: float = field(default_factory=time.monotonic)
    cpu: float = field(default_factory=time.process_time)
    resident: int = field(default_factory=lambda: footprint().resident)
    highest: int = field(default_factory=lambda: peak_bytes() or 0)
    """The most that was ever resident, from before the first phase on; 0 if the system does not count it."""
    has_peaks: bool = field(default_factory=reset_peak)
    """Whether the system counts them."""
    counts_peaks: bool = True
    """Whether the peaks of phases are counted now."""

    def __post_init__(self) -> None:
        if self.mark is not None:
            self.marked.append(("", self.mark()))

    def count_(self, phase: str, *, ends: bool = True) -> None:
        """Count a step to the phase, and at its last one the time and memory since the phase before.

        Args:
            phase: name of the phase that was at work.
            ends: whether this was its last step of the round.
        """
        self.steps += 1
        # At a phase's end alone: the clock of the CPU is a call of the system, and resetting a peak a write to /proc.
        if ends:
            self.end_part_(phase)

    def end_part_(self, phase: str) -> None:
        """Add the effort since the last call to a phase that ends here, or is interrupted."""
        wall = time.monotonic()
        cpu = time.process_time()
        rise = self._peak_() if self.counts_peaks else None
        if self.steps:
            effort = Effort(wall - self.wall, cpu - self.cpu, self.steps, rise)
            self.spent[phase] = self.spent[phase] + effort if phase in self.spent else effort
        self.wall, self.cpu, self.steps = wall, cpu, 0
        if self.mark is not None:
            self.marked.append((phase, self.mark()))

    def take_(self) -> dict[str, Effort]:
        """Return the efforts of phases since the last call, and reset them."""
        efforts, self.spent = self.spent, {}
        return efforts | {name: replace(efforts[name], seconds=seconds) for name, seconds in self._on_device_().items()}

    def _on_device_(self) -> dict[str, float]:
        """Return the seconds from mark to mark, by the phase of the later mark."""
        seconds: dict[str, float] = {}
        # The only wait for the device in a round, at its end: a wait in each step would leave the device idle.
        if self.marked:
            self.marked[-1][1].synchronize()
        for (_, began), (phase, end) in pairwise(self.marked):
            seconds[phase] = seconds.get(phase, 0.0) + began.elapsed_time(end) / 1000
        self.marked = self.marked[-1:]  # the last end is where the next round begins
        return seconds

    def count_peaks_(self, *, enabled: bool) -> None:
        """Count the peaks of phases from here on, or do not: each takes three calls of the system."""
        if enabled and not self.counts_peaks:
            self._peak_()  # of the phases without a count
        self.counts_peaks = enabled

    def _peak_(self) -> int | None:
        """Return the bytes by which resident memory rose since the last call; None if the system does not count."""
        peak = peak_bytes() if self.has_peaks else None
        rise = None if peak is None else max(0, peak - self.resident)
        self.resident = footprint().resident
        self.highest = max(self.highest, peak or 0)
        reset_peak()
        return rise


def added_efforts(one: Mapping[str, Effort], other: Mapping[str, Effort]) -> dict[str, Effort]:
    """Return the efforts of some rounds and of later rounds together, by phase."""
    both = {name: one[name] + other[name] for name in one.keys() & other.keys()}
    return {**one, **other, **both}
