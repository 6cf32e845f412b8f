"""Cyclic garbage as a cause of growth: the searches of one investigation, and the wait for traced garbage.

A case is one `Investigation` of rising memory. A search runs in a fork of the process, and its result is taken at a
later reading. A trace records the lines at which memory is allocated, so that a later search can look up the line of
the garbage.
"""

import gc
from math import inf

from flatwater_watch.diagnose.evidence import GARBAGE_OWNER, Evidence, garbage_evidence, growth_share
from flatwater_watch.diagnose.finding import AllocationSite
from flatwater_watch.diagnose.garbage import Garbage, GarbageSearch
from flatwater_watch.diagnose.investigation import Investigation
from flatwater_watch.diagnose.lines import Tracer
from flatwater_watch.heap.roots import Roots
from flatwater_watch.series.readings import Growth, ReadingHistory, recent_slope
from flatwater_watch.series.slope import Slope
from flatwater_watch.thresholds import CASE


def wants_garbage(case: Investigation) -> bool:
    """Return whether a trace should look for the line that makes garbage: garbage is the main or suspected cause.

    Suspected garbage is enough, as a collection may free it before its growth is proven.
    """
    if GARBAGE_OWNER in case.lines:  # the line is known
        return False
    if case.comparison_evidence:
        return case.comparison_evidence[0].owner == GARBAGE_OWNER
    return case.suspected_garbage is not None and case.suspected_garbage.may_be_reported


def update_garbage_wait_(case: Investigation, tracer: Tracer) -> bool:
    """Count a reading that was traced; return whether the trace must go on, as its objects may not be garbage yet.

    The program usually still holds the objects that it made last. So the trace goes on until the traced objects have as
    many bytes as two objects of the garbage, and as one more at each further try. It lasts at least
    `CASE.minimum_garbage_readings`, and at most `CASE.maximum_idle_traced_readings`, as tracing is slow.
    """
    if not wants_garbage(case):
        return False
    case.garbage_line_readings += 1
    if case.garbage_line_readings < CASE.minimum_garbage_readings:
        return True
    wanted_bytes = (1 + case.trace_tries) * case.bytes_per_garbage_object
    may_wait = case.garbage_line_readings < CASE.maximum_idle_traced_readings
    return may_wait and tracer.live_bytes < wanted_bytes


def start_search_(case: Investigation, roots: Roots, tracer: Tracer, step: int) -> bool:
    """Begin a search for cyclic garbage in a fork, unless one is under way; return whether one is under way now.

    None begins if an earlier search of this case found too little garbage, or if there is no memory for a fork.

    Args:
        case: investigation of the search.
        roots: choice of roots, which decides whose classes are the user's.
        tracer: tracer, whose records are used if it runs.
        step: step of the latest reading.
    """
    if case.garbage_search is not None:
        return True
    if case.too_little_garbage:
        return False
    running_tracer = tracer if tracer.running else None
    # Objects that `gc.freeze` hid before the case began are no growth of it.
    has_frozen_more = gc.get_freeze_count() > case.frozen_count
    try:
        case.garbage_search = GarbageSearch(roots, running_tracer, unfreezes=has_frozen_more)
    except OSError:  # no memory for a fork
        return False
    case.search_step = step
    return True


def stop_search_(case: Investigation) -> None:
    """Stop the search for garbage that is under way, if there is one."""
    if case.garbage_search is not None:
        case.garbage_search.stop()
        case.garbage_search = None


def finish_search_(
    case: Investigation, history: ReadingHistory, slope: Slope, growth: Growth, minimum: float
) -> list[Evidence]:
    """Take the result of a search that has ended; return the evidence on garbage if it is the cause of the growth.

    Garbage is the cause if there is enough of it, and more than at an earlier search: some waits in any program. The
    list has one item, or none.

    Args:
        case: investigation of the search, in which the result is recorded.
        history: readings, which show whether a collection freed memory since the case began.
        slope: slope of the memory that no container explains, in bytes per step.
        growth: growth of the process.
        minimum: minimum bytes of a fall of memory that counts.
    """
    search, case.garbage_search = case.garbage_search, None
    garbage = None if search is None else search.garbage()
    # The fork keeps the objects as they were when it began, so it misses the garbage of the steps since then.
    steps_missed = growth.step - case.search_step
    steps_seen = slope.span - steps_missed
    if garbage is not None and steps_seen <= 0:
        return []  # the search took longer than the stretch that is judged: wait for the next search
    minimum_rate = CASE.minimum_garbage_share * slope.per_step
    memory_fell = history.has_fallen(case.first_step, minimum)
    if garbage is None or garbage.bytes < minimum_rate * steps_seen:
        # If memory fell, a collection may have left little to see.
        case.too_little_garbage = case.suspected_garbage is None and not memory_fell
        return []
    _record_garbage_(case, garbage)
    if not _grows_beyond_backlog_(case, garbage, history, minimum_rate, memory_fell=memory_fell):
        return []
    # Garbage is taken to be all of the growth that no container explains.
    return [garbage_evidence(garbage, rate=slope.per_step, drift=slope, share=growth_share(slope.per_step, growth))]


def _grows_beyond_backlog_(
    case: Investigation, garbage: Garbage, history: ReadingHistory, minimum_rate: float, *, memory_fell: bool
) -> bool:
    """Return whether garbage grew since the search that saw the least of it, and is not what the collector frees soon.

    The search with the least is the one to compare with, as a collection may come between two searches. So a first
    search, or one that sees less, is recorded, and the result is False. Garbage that does not grow is no longer
    suspected, unless it is such an ordinary backlog or memory fell: both may hide growth.

    Args:
        case: investigation of the search.
        garbage: garbage found by this search, enough to explain the growth.
        history: readings.
        minimum_rate: bytes per step by which garbage must grow.
        memory_fell: whether memory fell since the case began, as if a collection had freed garbage.
    """
    least_step, least_bytes = case.least_garbage or (0, inf)
    if garbage.bytes < least_bytes:
        case.least_garbage = case.search_step, garbage.bytes
        return False
    grows = garbage.bytes - least_bytes >= minimum_rate * (case.search_step - least_step)
    is_backlog = garbage.is_ordinary_gc_backlog(history.swing_bytes, history.largest_fall)
    if not (grows or is_backlog or memory_fell):
        case.suspected_garbage = None
    return grows and not is_backlog


def _record_garbage_(case: Investigation, garbage: Garbage) -> None:
    """Record garbage that is enough for the growth, with its line, and set what a trace for its line needs to know."""
    if garbage.is_suspect:
        case.suspected_garbage = garbage
    if garbage.made_at is not None:
        case.lines[GARBAGE_OWNER] = garbage.made_at
    case.bytes_per_garbage_object = garbage.bytes_per_object
    case.first_owner_grew = True  # else the trace would not count as a try
    case.contains_tensors = False  # so that the trace follows Python's allocations, not tensors


def garbage_evidence_at_end(garbage: Garbage, history: ReadingHistory, open_bytes: float, steps: int) -> Evidence:
    """Return the evidence that garbage is the cause of growth, as a program ends.

    Args:
        garbage: garbage that was found at the end.
        history: readings.
        open_bytes: bytes of growth without another cause.
        steps: steps in which these bytes came.
    """
    # The recent rate is higher than the mean over all steps if the garbage came late.
    rate = max(garbage.bytes / steps, recent_slope(history.unaccounted).per_step)
    drift = Slope(per_step=rate, low=rate, high=rate)  # at the end no bounds are known
    return garbage_evidence(garbage, rate, drift, share=min(1.0, garbage.bytes / open_bytes))


def search_garbage_at_end_(lines: dict[str, AllocationSite], roots: Roots, tracer: Tracer, step: int) -> Garbage | None:
    """Search for garbage at the end of the watch, and wait for it; None if there is none, or if it takes too long.

    Args:
        lines: allocating lines by owner; that of the garbage is added if the tracer knows it.
        roots: choice of roots, which decides whose classes are the user's.
        tracer: tracer, whose records are used if it runs.
        step: step of the latest reading.
    """
    # A case of its own, with nothing from earlier searches. Its count of frozen objects is 0, so that all objects that
    # the program has frozen are searched as well.
    search_case = Investigation(lines)
    start_search_(search_case, roots, tracer, step)  # sets `garbage_search`, if the process can be forked
    search = search_case.garbage_search
    garbage = search.garbage() if search is not None and search.is_done(CASE.last_search_seconds) else None
    stop_search_(search_case)
    if garbage is not None and garbage.made_at is not None:
        lines[GARBAGE_OWNER] = garbage.made_at
    return garbage
