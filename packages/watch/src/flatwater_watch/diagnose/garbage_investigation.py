"""Cyclic garbage as a cause of growth: the searches of one investigation, and the wait for traced garbage."""

import gc
from contextlib import suppress

from flatwater_watch.diagnose.evidence import GARBAGE_OWNER, Evidence, garbage_evidence, growth_share
from flatwater_watch.diagnose.finding import AllocationSite
from flatwater_watch.diagnose.garbage import Garbage, GarbageSearch
from flatwater_watch.diagnose.investigation import Investigation
from flatwater_watch.diagnose.lines import Tracer
from flatwater_watch.heap.roots import Roots
from flatwater_watch.series.readings import Growth, ReadingHistory, recent_slope
from flatwater_watch.series.slope import Slope
from flatwater_watch.thresholds import SHIPPED

CASE = SHIPPED.investigating


def wants_garbage(case: Investigation) -> bool:
    """Whether the line of cyclic garbage is sought, without a census, which might set a collection off.

    It is sought once a search finds enough garbage for the growth: until growth is proven, a collection may free it.
    """
    if GARBAGE_OWNER in case.lines:
        return False
    if case.comparison_evidence:
        return case.comparison_evidence[0].owner == GARBAGE_OWNER
    return case.suspected_garbage is not None and case.suspected_garbage.may_be_felt


def update_garbage_wait_(case: Investigation, tracer: Tracer | None) -> bool:
    """Update the wait for traced garbage; return whether too few objects were made under the trace to contain any.

    The newest objects are held by the program as a rule. So the wait is until there are as many bytes as two pieces of
    the garbage have, and one more at each further try; but not for long, as the program is slow.
    """
    if not wants_garbage(case):
        return False
    case.garbage_line_readings += 1
    wanted_bytes = (1 + case.trace_tries) * case.bytes_per_garbage_object
    is_too_little = (
        tracer is not None
        and tracer.live_bytes < wanted_bytes
        and case.garbage_line_readings < CASE.maximum_idle_traced_readings
    )
    return case.garbage_line_readings < CASE.minimum_garbage_readings or is_too_little


def start_search_(case: Investigation, roots: Roots, tracer: Tracer | None, step: int) -> bool:
    """Begin a search for cyclic garbage at `step`, unless there was too little; return whether one is under way."""
    if case.garbage_search is None and not case.too_little_garbage:
        find_line = tracer.find_line if tracer is not None and tracer.running else None
        has_frozen = gc.get_freeze_count() > case.frozen_count
        with suppress(OSError):  # no memory for a fork
            case.garbage_search = GarbageSearch(roots, find_line, unfreezes=has_frozen)
            case.search_step = step
    return case.garbage_search is not None


def stop_search_(case: Investigation) -> None:
    """Stop the search that is under way."""
    if case.garbage_search is not None:
        case.garbage_search.stop()
        case.garbage_search = None


def search_evidence_(
    case: Investigation, history: ReadingHistory, slope: Slope, growth: Growth, minimum: float
) -> list[Evidence]:
    """The evidence of a search that has ended. Some garbage always waits: it must be much, and it must grow.

    Growth counts from the least garbage that was seen, as a collection may have come between two searches. The line is
    kept, proof or not, for the search that proves it, or for the end.

    Args:
        case: investigation of the search.
        history: readings. If memory was freed at once meanwhile, a collection may have left little to see.
        slope: slope of the memory that no container explains.
        growth: growth of the process.
        minimum: bytes that are material.
    """
    search, lowest = case.garbage_search, case.least_garbage
    garbage = None if search is None else search.garbage()
    case.garbage_search = None
    steps_seen = slope.span - (growth.step - case.search_step)  # the fork saw the memory of its beginning
    if garbage is not None and steps_seen <= 0:
        return []  # the search took longer than the stretch that is judged: wait for the next search
    if garbage is None or garbage.bytes < CASE.minimum_garbage_share * slope.per_step * steps_seen:
        case.too_little_garbage = case.suspected_garbage is None and not history.has_fallen(case.first_step, minimum)
        return []
    case.bytes_per_garbage_object, case.first_owner_grew, case.contains_tensors = garbage.bytes_per_object, True, False
    case.suspected_garbage = garbage if garbage.is_suspect else case.suspected_garbage
    if garbage.made_at is not None:
        case.lines[GARBAGE_OWNER] = garbage.made_at
    if lowest is None or garbage.bytes < lowest[1]:
        case.least_garbage = case.search_step, garbage.bytes
        return []
    lowest_step, lowest_bytes = lowest
    gain, backlog = (
        garbage.bytes - lowest_bytes,
        garbage.is_ordinary_gc_backlog(history.swing_bytes, history.largest_fall),
    )
    grows = gain >= CASE.minimum_garbage_share * slope.per_step * (case.search_step - lowest_step)
    if not (grows or backlog or history.has_fallen(case.first_step, minimum)):
        case.suspected_garbage = None  # it does not grow
    if backlog or not grows:
        return []  # a later comparison distinguishes it from a leak
    return [garbage_evidence(garbage, slope.per_step, slope, growth_share(slope.per_step, growth))]


def garbage_evidence_at_end(garbage: Garbage, history: ReadingHistory, open_bytes: float, steps: int) -> Evidence:
    """The evidence on garbage that is most of the bytes without a cause, and more than an ordinary backlog.

    Args:
        garbage: objects that a collection would free.
        history: readings.
        open_bytes: bytes without a cause.
        steps: steps in which they came.
    """
    rate = max(garbage.bytes / steps, recent_slope(history.unaccounted).per_step)  # the garbage may have come late
    return garbage_evidence(garbage, rate, Slope(rate, rate, rate), min(1.0, garbage.bytes / open_bytes))


def search_garbage_now_(
    lines: dict[str, AllocationSite], roots: Roots, tracer: Tracer | None, step: int
) -> Garbage | None:
    """The garbage at the end; None if there is none.

    Args:
        lines: allocating lines by owner; the line of the garbage is added, if it is known.
        roots: choice of roots.
        tracer: tracer of the monitor; None if it has none.
        step: latest step.
    """
    case = Investigation(lines, proven=True)
    start_search_(case, roots, tracer, step)
    garbage = (
        case.garbage_search.garbage()
        if case.garbage_search is not None and case.garbage_search.is_done(CASE.last_search_seconds)
        else None
    )
    stop_search_(case)
    if garbage is not None and garbage.made_at is not None:
        lines[GARBAGE_OWNER] = garbage.made_at
    return garbage
