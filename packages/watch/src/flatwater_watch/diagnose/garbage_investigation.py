"""Cyclic garbage as a cause of growth: the searches of one investigation, and the wait for traced garbage."""

import gc
from contextlib import suppress
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
    """Return whether the next trace is to find the line that makes garbage, as this is the main or suspected cause.

    A trace is wanted as soon as a search finds enough garbage for the growth, as a collection may free it before the
    growth is proven.
    """
    if GARBAGE_OWNER in case.lines:  # the line is known
        return False
    if case.comparison_evidence:
        return case.comparison_evidence[0].owner == GARBAGE_OWNER
    return case.suspected_garbage is not None and case.suspected_garbage.may_be_reported


def update_garbage_wait_(case: Investigation, tracer: Tracer) -> bool:
    """Count a traced reading; return whether the trace must go on, as the traced objects may contain no garbage yet.

    The program usually still holds the objects that it made last. So the wait lasts until the traced objects have the
    bytes of two pieces of the garbage, and of one more at each further try; but not for long, as tracing is slow.
    """
    if not wants_garbage(case):
        return False
    case.garbage_line_readings += 1
    wanted_bytes = (1 + case.trace_tries) * case.bytes_per_garbage_object
    may_wait = case.garbage_line_readings < CASE.maximum_idle_traced_readings
    return case.garbage_line_readings < CASE.minimum_garbage_readings or (tracer.live_bytes < wanted_bytes and may_wait)


def start_search_(case: Investigation, roots: Roots, tracer: Tracer, step: int) -> bool:
    """Begin a search for cyclic garbage in a fork, unless one is under way; return whether one is under way now.

    None begins if an earlier search of this case found too little garbage, or if there is no memory for a fork.
    """
    if case.garbage_search is None and not case.too_little_garbage:
        running_tracer = tracer if tracer.running else None
        # Objects that were frozen before the case are no growth of it.
        has_frozen_more = gc.get_freeze_count() > case.frozen_count
        with suppress(OSError):  # no memory for a fork
            case.garbage_search = GarbageSearch(roots, running_tracer, unfreezes=has_frozen_more)
            case.search_step = step
    return case.garbage_search is not None


def stop_search_(case: Investigation) -> None:
    """Stop the search that is under way."""
    if case.garbage_search is not None:
        case.garbage_search.stop()
        case.garbage_search = None


def finish_search_(
    case: Investigation, history: ReadingHistory, slope: Slope, growth: Growth, minimum: float
) -> list[Evidence]:
    """Take the result of a search that has ended; return evidence if garbage is enough for the growth, and grows.

    Some garbage waits in any program, so a single search proves nothing. Later searches compare with the least garbage
    that a search has seen, as a collection may come between two searches. The list has one item, or none.

    Args:
        case: investigation of the search, in which the result is recorded.
        history: readings, which show whether a collection freed memory since the case began.
        slope: slope of the memory that no container explains, in bytes per step.
        growth: growth of the process.
        minimum: bytes of a material fall.
    """
    search, case.garbage_search = case.garbage_search, None
    garbage = None if search is None else search.garbage()
    # The fork keeps the objects as they were when it began, so it sees no garbage of the steps since the search began.
    steps_seen = slope.span - (growth.step - case.search_step)
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
    """Return whether garbage grew since the search that saw the least, and is no ordinary backlog of the collector.

    False at the first search, and at one that sees less: it is recorded as the least. Garbage that does not grow is
    dropped as a suspect, unless it is an ordinary backlog or memory fell: both may hide growth.

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
    """Record garbage that is large enough to explain the growth, with its line, and set up the trace that seeks it."""
    if garbage.is_suspect:
        case.suspected_garbage = garbage
    if garbage.made_at is not None:
        case.lines[GARBAGE_OWNER] = garbage.made_at
    case.bytes_per_garbage_object = garbage.bytes_per_object
    case.first_owner_grew = True  # else the trace would not count as a try
    case.contains_tensors = False  # so that the trace follows Python's allocations, not tensors


def garbage_evidence_at_end(garbage: Garbage, history: ReadingHistory, open_bytes: float, steps: int) -> Evidence:
    """Return the evidence that garbage is the cause of growth, as a program ends."""
    # Garbage that came late only has a higher rate than its mean over all steps.
    rate = max(garbage.bytes / steps, recent_slope(history.unaccounted).per_step)
    drift = Slope(per_step=rate, low=rate, high=rate)  # at the end no bounds are known
    return garbage_evidence(garbage, rate, drift, share=min(1.0, garbage.bytes / open_bytes))


def search_garbage_at_end_(lines: dict[str, AllocationSite], roots: Roots, tracer: Tracer, step: int) -> Garbage | None:
    """Search for garbage at the end of the watch; return None if there is none, or if the search takes too long.

    The line of the garbage is added to `lines` if it is found.
    """
    # A case of its own, with nothing from earlier searches. Its count of frozen objects is 0, so that any objects that
    # the program has frozen may be garbage as well.
    search_case = Investigation(lines)
    start_search_(search_case, roots, tracer, step)  # sets `garbage_search`, if the process can be forked
    search = search_case.garbage_search
    garbage = search.garbage() if search is not None and search.is_done(CASE.last_search_seconds) else None
    stop_search_(search_case)
    if garbage is not None and garbage.made_at is not None:
        lines[GARBAGE_OWNER] = garbage.made_at
    return garbage
