"""The search for the line that makes the items of an owner: allocations are traced until items are added to it."""

from collections.abc import Sequence
from typing import Any

from flatwater_watch.diagnose.evidence import Evidence
from flatwater_watch.diagnose.finding import AllocationSite
from flatwater_watch.diagnose.handles import nested_handles
from flatwater_watch.diagnose.hops import leads_to_several
from flatwater_watch.diagnose.investigation import Investigation, find_owner_line_
from flatwater_watch.diagnose.item_growth import ITEM_KINDS, added_leaves, container_lengths
from flatwater_watch.diagnose.lines import Tracer
from flatwater_watch.heap.arrays import array_figures
from flatwater_watch.heap.raw import is_a
from flatwater_watch.heap.roots import Roots
from flatwater_watch.thresholds import CASE


def may_find_line(case: Investigation) -> bool:
    """Return whether the foremost owner of the comparison has no line, and a trace may find it."""
    causes = case.comparison_evidence
    return (
        bool(causes)
        and causes[0].owner not in case.lines
        and not case.contents_are_untraceable  # as those of callbacks of C are
        and case.trace_tries < CASE.maximum_fruitless_traces
        and case.comparisons < CASE.maximum_comparisons_with_trace
    )


def start_trace_(case: Investigation, tracer: Tracer, roots: Roots, *, in_watch_thread: bool) -> None:
    """Trace allocations for the line of the items that come from now on, and record the lengths of their containers."""
    case.garbage_line_readings = case.building_readings = 0
    case.most_traced_bytes, case.is_trace_suspended = None, False
    containers = [container for sought in case.sought_containers.values() for container in sought.resolve(roots)]
    case.lengths_at_trace = dict(zip(map(id, containers), container_lengths(containers), strict=True))
    # Tensors may lie deep in objects, and objects may be made of tensors: a further try traces both.
    traces_both = case.trace_tries > 1
    traces_tensors = case.contains_tensors or traces_both
    traces_objects = not case.contains_tensors or traces_both
    # Torch operations can be traced only in the thread that runs them, which is not the watch's: it traces objects.
    tracer.start(tensors=traces_tensors and not in_watch_thread, objects=traces_objects or in_watch_thread)


def put_off_trace_(case: Investigation, tracer: Tracer) -> list[Evidence]:
    """End a trace that is too expensive, or do not begin it; return the evidence so far, which has no line."""
    tracer.stop()
    # Each unpaid trace doubles the CPU time that must be free before the next one begins.
    case.is_trace_suspended, case.unaffordable_traces = True, case.unaffordable_traces + 1
    return case.last_evidence


def search_owner_line_(case: Investigation, tracer: Tracer, roots: Roots) -> bool:
    """Search the traced allocations for the line that makes the items of the first-ranked container that grows.

    When the search ends with a line, the lines of the other owners are looked up, and `case.has_new_line` is set.

    Returns:
        Whether the search goes on, so that allocations stay traced.
    """
    evidence_by_owner = {cause.owner: cause for cause in case.last_evidence}
    first_path = next(iter(case.sought_containers), "")
    if first_path not in evidence_by_owner:
        return False
    sought = case.sought_containers[first_path]
    containers = sought.resolve(roots)
    line, is_final = _find_line_of_added_items_(case, tracer, evidence_by_owner[first_path], containers)
    # At the maximum, more containers lie on the way than are checked, and the growing ones may not be among them.
    checks_all = not leads_to_several(sought.way) or len(containers) < sought.maximum
    # Called first of the three, as it records the traced bytes of each reading.
    is_building = _is_still_building_(case, tracer) and checks_all and not is_final
    if is_final:
        case.idle_readings = 0
    elif not is_building:
        case.idle_readings += 1
    is_patient = case.idle_readings <= CASE.maximum_idle_traced_readings
    if not is_final and is_patient and not _was_emptied(case, first_path, containers):
        return True
    if line is not None:
        case.has_new_line = True
        for path, other in case.sought_containers.items():
            if path in evidence_by_owner and path not in case.lines:
                _find_line_of_added_items_(case, tracer, evidence_by_owner[path], other.resolve(roots))
    case.idle_readings, case.sought_containers = 0, {}
    return False


def _was_emptied(case: Investigation, owner: str, containers: Sequence[Any]) -> bool:
    """Return whether an owner lost most of its items since tracing began, so that it is no leak."""
    sought = case.sought_containers[owner]
    # Of several containers any may be short; and a block has no items to lose.
    if leads_to_several(sought.way) or sought.holding.kind not in ITEM_KINDS:
        return False
    earlier_lengths = [case.lengths_at_trace.get(id(container), sought.holding.length) for container in containers]
    lengths_now = container_lengths(containers)
    return any(2 * now < earlier for now, earlier in zip(lengths_now, earlier_lengths, strict=True))


def _is_still_building_(case: Investigation, tracer: Tracer) -> bool:
    """Record the traced bytes in use; return whether they rose, as if a slow program were building its next item.

    It is True at `maximum_building_readings` readings at most, so that the search ends.
    """
    earlier_peak = case.most_traced_bytes  # None at the first reading
    live_bytes = tracer.live_bytes
    case.most_traced_bytes = max(earlier_peak or 0, live_bytes)
    minimum_rise = max(CASE.minimum_bytes_per_step, CASE.minimum_building_share * case.last_evidence[0].drift.per_step)
    is_building = (
        earlier_peak is not None
        and live_bytes >= earlier_peak + minimum_rise
        and case.building_readings < CASE.maximum_building_readings
    )
    case.building_readings += is_building
    return is_building


def _find_line_of_added_items_(
    case: Investigation, tracer: Tracer, cause: Evidence, containers: Sequence[Any]
) -> tuple[AllocationSite | None, bool]:
    """Find the line that made the items added to an owner since tracing began; return it, and whether it is final.

    The line is None if no item was added, or if no trace knows it. A new item may still be filled by lines that have
    not run yet. It is complete once another item follows, in any of the containers that lie on the owner's way now.
    Arrays, texts and handles are complete at once.
    """
    way, holding, in_more_items, content_class = case.sought_containers[cause.owner]
    # A container without a recorded length is new if the way leads to several; else it may be a copy of the old one.
    unknown_length = 0 if leads_to_several(way) else holding.length
    line: AllocationSite | None = None
    for container, length in zip(containers, container_lengths(containers), strict=True):
        earlier_length = case.lengths_at_trace.get(id(container), unknown_length)
        if line is not None:  # found in an earlier container: only another new item, which makes it final, is wanted
            if length > earlier_length:
                return line, True
            continue
        if in_more_items and id(container) in case.lengths_at_trace:  # its item had one before the trace
            continue
        earlier_holding = holding._replace(length=earlier_length)
        newest = added_leaves(container, length, earlier_holding, content_class)
        if not newest:
            continue
        if cause.owner == case.last_evidence[0].owner and not in_more_items:
            case.first_owner_length = length  # so that a later comparison sees only growth after this
        handles = nested_handles(newest) if cause.outside else ()
        line = find_owner_line_(case, tracer, cause.owner, handles or newest)
        has_fixed_size = bool(handles) or is_a(newest[-1], str, bytes) or array_figures(newest[-1]) is not None
        # Two new items or more: the older of them is complete.
        is_complete = has_fixed_size or holding.kind not in ITEM_KINDS or length > earlier_length + 1
        if line is not None and is_complete:
            return line, True
    return line, False
