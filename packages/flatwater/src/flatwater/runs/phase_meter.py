"""Measures the effort of each phase of a round: seconds, here or on the device, CPU seconds, and peak memory."""

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
    """Adds up time and memory by phase of the loop; one for each training process.

    Where a CUDA device computes, the clock of this process only tells how long it took to hand work over. There a CUDA
    event marks each phase's end, and the events are read at the round's end, in `take_`.
    """

    make_event: Callable[[], DeviceEvent] | None = None
    """Records an event on the device; None if time is taken by this process's clock."""
    phase_ends: list[tuple[str, DeviceEvent]] = field(default_factory=list)
    """Name and end of each phase since `take_`; the first entry, without a name, is the beginning of the round."""
    phase_efforts: dict[str, Effort] = field(default_factory=dict)
    """Effort by phase since `take_`."""
    steps: int = 0
    """Steps of the phase at work, since it began or was interrupted."""
    last_wall_time: float = field(default_factory=time.monotonic)
    """Time, CPU time and resident bytes at the end of the phase before."""
    last_cpu_time: float = field(default_factory=time.process_time)
    last_resident: int = field(default_factory=lambda: footprint().resident)
    highest: int = field(default_factory=lambda: peak_bytes() or 0)
    """Most bytes that were ever resident, from before the first phase on; 0 if the system does not count them."""
    has_peaks: bool = field(default_factory=reset_peak)
    """Whether the system counts peaks of resident memory."""
    counts_peaks: bool = True
    """Whether the peaks of phases are counted now."""

    def __post_init__(self) -> None:
        if self.make_event is not None:
            self.phase_ends.append(("", self.make_event()))

    def count_step_(self, phase: str, *, ends: bool = True, is_idle: bool = False) -> None:
        """Count a finished step to its phase; after the phase's last step, add the phase's time and memory as well.

        Args:
            phase: name of the phase that was at work.
            ends: whether this was the phase's last step of the round.
            is_idle: whether the step, the only one of its phase, had nothing to do; then no clock is read.
        """
        if is_idle and not self.counts_peaks:
            self._add_effort_(phase, Effort(seconds=0.0, cpu_seconds=0.0, steps=1, peak=None))
            return
        self.steps += 1
        # Not after every step: to read the CPU clock is a system call, and to reset the peak a write to /proc.
        if ends:
            self.end_phase_(phase)

    def _add_effort_(self, phase: str, effort: Effort) -> None:
        """Add an effort to that of the phase so far."""
        self.phase_efforts[phase] = self.phase_efforts[phase] + effort if phase in self.phase_efforts else effort

    def end_phase_(self, phase: str) -> None:
        """Add the time and memory since the last call to a phase that ends or is interrupted now."""
        wall_time = time.monotonic()
        cpu_time = time.process_time()
        peak_rise = self._take_peak_rise_() if self.counts_peaks else None
        # Without a step since the last call, as between two phases, the time belongs to no phase.
        if self.steps:
            wall_seconds, cpu_seconds = wall_time - self.last_wall_time, cpu_time - self.last_cpu_time
            self._add_effort_(
                phase, Effort(seconds=wall_seconds, cpu_seconds=cpu_seconds, steps=self.steps, peak=peak_rise)
            )
        self.last_wall_time, self.last_cpu_time = wall_time, cpu_time
        self.steps = 0
        if self.make_event is not None:
            self.phase_ends.append((phase, self.make_event()))

    def take_(self) -> dict[str, Effort]:
        """Return the effort of each phase since the last call, and begin a new round."""
        efforts, self.phase_efforts = self.phase_efforts, {}
        for name, seconds in self._take_device_seconds_().items():
            efforts[name] = replace(efforts[name], seconds=seconds)  # in place of the seconds of this process's clock
        return efforts

    def _take_device_seconds_(self) -> dict[str, float]:
        """Return the device's seconds in each phase since the last call; empty without a device."""
        seconds: dict[str, float] = {}
        # The only wait for the device in a round: a wait in each step would leave the device idle.
        if self.phase_ends:
            _, last_end = self.phase_ends[-1]
            last_end.synchronize()
        for (_, begin), (phase, end) in pairwise(self.phase_ends):
            milliseconds = begin.elapsed_time(end)
            seconds[phase] = seconds.get(phase, 0.0) + milliseconds / 1000
        self.phase_ends = self.phase_ends[-1:]  # the last phase's end is where the next round begins
        return seconds

    def count_peaks_(self, *, enabled: bool) -> None:
        """Switch the counting of peaks on or off for the next phases: each peak costs three system calls."""
        if enabled and not self.counts_peaks:
            self._take_peak_rise_()  # drops the peak of the phases that were not counted
        self.counts_peaks = enabled

    def _take_peak_rise_(self) -> int | None:
        """Return how far resident memory peaked above its bytes at the last call; None if the system does not count."""
        peak = peak_bytes() if self.has_peaks else None
        rise = None if peak is None else max(0, peak - self.last_resident)
        self.last_resident = footprint().resident
        self.highest = max(self.highest, peak or 0)
        reset_peak()  # the system counts the next peak from here
        return rise


def sum_efforts(earlier: Mapping[str, Effort], later: Mapping[str, Effort]) -> dict[str, Effort]:
    """Return each phase's effort in both mappings together; a phase may be missing in one of them."""
    sums = {name: earlier[name] + later[name] for name in earlier.keys() & later.keys()}
    return {**earlier, **later, **sums}
