"""One reading of this process, its rate of boundaries, and sentences on memory that no reading can show."""

import sys
import threading
from collections.abc import Mapping, Sequence
from types import FrameType

from flatwater_watch.agent.filling_arrays import FillingArrays, planned_by_path, touched_by_path_
from flatwater_watch.agent.growth import Sample, samples_after_warm_up
from flatwater_watch.agent.reading_schedule import REGULAR_COUNT
from flatwater_watch.meters.allocator_meter import AllocatorMeter
from flatwater_watch.meters.fork import fork_unsafe_library
from flatwater_watch.meters.mappings import file_pages, footprint
from flatwater_watch.meters.system_calls import process_seconds
from flatwater_watch.series.readings import Reading

MINIMUM_READINGS = 5
"""Minimum readings after warm-up for growth to be distinguished from noise."""
SHUTDOWN_CODE = threading._shutdown.__code__  # type: ignore[attr-defined]  # noqa: SLF001  (Python's own last wait)
MINIMUM_RATE_CPU_SECONDS = 0.1
"""Minimum CPU seconds over which the cost of a boundary is measured."""
MAXIMUM_CLASSES = 3
"""Maximum classes of unread objects that are named."""


class RateMeter:
    """A meter of the boundaries that the program passes per CPU second, without the watch's own CPU time.

    A step is the number of boundaries passed so far.
    """

    def __init__(self) -> None:
        self._start_step: int | None = None  # None until the first call: a program begins with imports
        self._start_cpu_seconds = 0.0

    def restart_(self, step: int) -> None:
        """Begin a measurement at this step."""
        self._start_step = step
        self._start_cpu_seconds = process_seconds()

    def exclude_cpu_(self, seconds: float) -> None:
        """Leave CPU seconds of the watch out of the measurement."""
        self._start_cpu_seconds += seconds

    def measure_rates_(self, step: int) -> dict[str, float]:
        """Return the boundaries per CPU second since the last restart, under the key `the program`.

        The dict is empty if too little CPU time or too few boundaries have passed since, and at the first call, which
        begins the measurement.
        """
        if self._start_step is None:
            self.restart_(step)
            return {}
        cpu_seconds = process_seconds() - self._start_cpu_seconds
        boundaries = step - self._start_step
        if cpu_seconds < MINIMUM_RATE_CPU_SECONDS or boundaries < REGULAR_COUNT:
            return {}
        return {"the program": boundaries / cpu_seconds}


def take_reading_(
    step: int,
    allocator: AllocatorMeter,
    filling_arrays: FillingArrays,
    children: int = 0,
    *,
    limit: int | None,
    rates: Mapping[str, float],
) -> Reading:
    """Return a reading of the process as it is now; the touched pages of the arrays are counted again.

    Args:
        step: number of boundaries that the program has passed.
        allocator: meter of the C allocator.
        filling_arrays: large arrays whose pages are counted.
        children: private bytes of the child processes.
        limit: resident bytes at which the process must stop; None if that is not known.
        rates: boundaries per CPU second.
    """
    memory, allocator_totals = footprint(), allocator.newest_totals_()
    return Reading(
        step=step,
        resident=memory.resident,
        file_mapped=file_pages(memory),
        in_use=None if allocator_totals is None else allocator_totals.in_use,
        free=None if allocator_totals is None else allocator_totals.kept_bytes(memory.anonymous),
        owned=touched_by_path_(filling_arrays),
        planned=planned_by_path(filling_arrays),
        limit=limit,
        rates=rates,
        children=children,
    )


def has_main_returned() -> bool:
    """Return whether the program's main code is over, and Python waits for its threads."""
    main = threading.main_thread().ident or 0
    frame: FrameType | None = sys._current_frames().get(main)  # noqa: SLF001  (the documented way to another thread)
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    # The outermost frame is that of the main code, or that of `threading._shutdown` while Python waits for threads.
    return frame is not None and frame.f_code is SHUTDOWN_CODE


def unseen_sentences(samples: Sequence[Sample], unread: Mapping[str, int]) -> list[str]:
    """Return a sentence on each thing that the readings cannot show, such as the growth of a short program.

    `unread` is the number of objects that could not be read, by class.
    """
    sentences = []
    if not samples:
        sentences.append("the program ended before its first step: nothing was read")
    elif len(samples_after_warm_up(samples)) < MINIMUM_READINGS:
        sentences.append(f"{len(samples)} readings are too few to tell growth from warm-up")
    if samples and samples[-1].reading.free is None:
        sentences.append("this C library does not tell what it has freed and kept")
    library = fork_unsafe_library()
    if library is not None:
        sentences.append(f"cyclic garbage: it is looked for in a fork of the program, which can hang with {library}")
    if unread:
        frequent = sorted(unread, key=lambda kind: -unread[kind])[:MAXIMUM_CLASSES]
        kinds = ", ".join(f"{unread[kind]} × {kind}" for kind in frequent)
        other_count = len(unread) - len(frequent)
        ending = f" and objects of {other_count} more classes" if other_count else ""
        sentences.append(f"objects that could not be read, with all that only they hold: {kinds}{ending}")
    return sentences
