"""The search for the line that makes the items of an owner: allocations are traced until items are added to it.

A case is one `Investigation` of rising memory, and an owner a container that grows. The search goes on over several
readings of the process. Its way, a root and the hops from there, may lead to several containers, such as the histories
of all agents.
"""

from collections.abc import Sequence
from typing import Any

from flatwater_watch.diagnose.evidence import Evidence
from flatwater_watch.diagnose.finding import AllocationSite
from flatwater_watch.diagnose.handles import nested_handles
from flatwater_watch.diagnose.hops import leads_to_several
from flatwater_watch.diagnose.investigation import Investigation, find_owner_line_
from flatwater_watch.diagnose.item_growth import ITEM_KINDS, NEWEST_ITEMS, added_leaves, container_lengths
from flatwater_watch.diagnose.lines import Tracer
from flatwater_watch.diagnose.newest_items import newest_items
from flatwater_watch.heap.arrays import array_figures
from flatwater_watch.heap.raw import is_a
from flatwater_watch.heap.roots import Roots
from flatwater_watch.thresholds import CASE


def may_find_line(case: Investigation) -> bool:
    """Return whether the container with most of the growth has no allocating line yet, and a trace may find it."""
    causes = case.comparison_evidence
    if not causes or causes[0].owner in case.lines:
        return False
    tries_are_left = case.trace_tries < CASE.maximum_fruitless_traces
    comparisons_are_left = case.comparisons < CASE.maximum_comparisons_with_trace
    # The contents of an owner are untraceable if they are callbacks of C code.
    return tries_are_left and comparisons_are_left and not case.contents_are_untraceable


def start_trace_(case: Investigation, tracer: Tracer, roots: Roots, *, in_watch_thread: bool) -> None:
    """Begin to trace allocations, for the line that makes the next items of growing containers; record their lengths.

    Args:
        case: investigation, with the containers in `sought_containers`.
        tracer: tracer to start.
        roots: roots from which the containers are found.
        in_watch_thread: whether this runs in a thread of the watch, where torch operations of the program are not seen.
    """
    case.garbage_line_readings = case.building_readings = 0
    case.most_traced_bytes, case.is_trace_suspended = None, False
    containers = [container for sought in case.sought_containers.values() for container in sought.resolve(roots)]
    case.lengths_at_trace = dict(zip(map(id, containers), container_lengths(containers), strict=True))
    # A first try traces tensors or other objects, by the contents. A further one traces both, as tensors may lie deep
    # in objects, and objects may be made of tensors.
    traces_both = case.trace_tries > 1
    traces_tensors = (case.contains_tensors or traces_both) and not in_watch_thread
    traces_objects = not case.contains_tensors or traces_both or in_watch_thread
    tracer.start(tensors=traces_tensors, objects=traces_objects)


def put_off_trace_(case: Investigation, tracer: Tracer) -> list[Evidence]:
    """End a trace that costs too much, or put off its begin; return the evidence so far, which has no line."""
    tracer.stop()
    case.is_trace_suspended = True
    # Each of these doubles the CPU time that must be free before the next trace begins.
    case.unaffordable_traces += 1
    return case.last_evidence


def search_owner_line_(case: Investigation, tracer: Tracer, roots: Roots) -> bool:
    """Look up the line that made the newest items of the first owner; return whether to go on tracing allocations.

    An owner is a container that grows; the first has most of the growth. The search ends when the line is final, when
    no item comes for several readings, or when the owner was emptied. If it ends with a line, the lines of the other
    owners are looked up as well, and `case.has_new_line` is set.
    """
    evidence_by_owner = {cause.owner: cause for cause in case.last_evidence}
    first_path = next(iter(case.sought_containers), "")
    if first_path not in evidence_by_owner:
        return False
    sought = case.sought_containers[first_path]
    containers = sought.resolve(roots)
    line, is_final = _find_line_of_added_items_(case, tracer, evidence_by_owner[first_path], containers)
    # If as many as the maximum are checked, there may be more, and the growing ones among these.
    checks_all = not leads_to_several(sought.way) or len(containers) < sought.maximum
    # Whether a slow program is at work on its next item. The call comes first, as it records the traced bytes.
    is_building = _is_still_building_(case, tracer) and checks_all and not is_final
    if is_final:
        case.idle_readings = 0
    elif not is_building:
        case.idle_readings += 1
    may_wait = case.idle_readings <= CASE.maximum_idle_traced_readings
    if not is_final and may_wait and not _was_emptied(case, first_path, containers):
        return True
    # The search ends here.
    if line is not None:
        case.has_new_line = True
        if sought.holding.kind in ITEM_KINDS and tracer.is_waiting_line(line):
            _find_line_within_call_(case, tracer, first_path, containers)
        elif sought.is_registry and sought.holding.kind in ITEM_KINDS:
            case.owner_to_watch = first_path, containers
        for path, other in case.sought_containers.items():
            if path in evidence_by_owner and path not in case.lines:
                _find_line_of_added_items_(case, tracer, evidence_by_owner[path], other.resolve(roots))
    case.idle_readings, case.sought_containers = 0, {}
    return False


def _find_line_within_call_(case: Investigation, tracer: Tracer, owner: str, containers: Sequence[Any]) -> None:
    """Find a line that made a part of an owner's newest items, where the line of most bytes is one call all the time.

    Such as that of an event loop. Without one, the line that adds items is to be found, after this search.
    """
    kind, newest = case.sought_containers[owner].holding.kind, list[Any]()
    for container, length in zip(containers, container_lengths(containers), strict=True):
        added = length - case.lengths_at_trace.get(id(container), 0)
        newest += newest_items(container, kind, min(added, NEWEST_ITEMS)) if added > 0 else []
    line = find_owner_line_(case, tracer, owner, newest[-NEWEST_ITEMS:])
    if line is None or tracer.is_waiting_line(line):
        case.owner_to_watch = owner, list(containers)


def _was_emptied(case: Investigation, owner: str, containers: Sequence[Any]) -> bool:
    """Return whether an owner has lost more than half of its items since tracing began, so that it is no leak.

    Args:
        case: investigation, with the lengths at the time when tracing began.
        owner: path of the owner.
        containers: the containers that lie on the owner's way now.
    """
    sought = case.sought_containers[owner]
    # One of several containers may be short without being emptied; arrays and texts have no items to lose.
    if leads_to_several(sought.way) or sought.holding.kind not in ITEM_KINDS:
        return False
    earlier_lengths = [case.lengths_at_trace.get(id(container), sought.holding.length) for container in containers]
    lengths_now = container_lengths(containers)
    return any(2 * now < earlier for now, earlier in zip(lengths_now, earlier_lengths, strict=True))


def _is_still_building_(case: Investigation, tracer: Tracer) -> bool:
    """Record the traced bytes in use; return whether they rose, as they do while a slow program builds its next item.

    It is True at `CASE.maximum_building_readings` readings at most, so that the search ends.
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
    if is_building:
        case.building_readings += 1
    return is_building


def _find_line_of_added_items_(
    case: Investigation, tracer: Tracer, cause: Evidence, containers: Sequence[Any]
) -> tuple[AllocationSite | None, bool]:
    """Return the line that made the items added to an owner since tracing began, and whether it is final.

    The line is None if no item was added, or if the trace does not know it. It is final once the item is complete: an
    item may still be filled by lines that have not run yet, until another one follows in any of the containers. Arrays,
    texts and handles (objects with memory of a C library) are complete at once.

    Args:
        case: investigation, with the lengths of the containers at the time when tracing began.
        tracer: tracer that runs.
        cause: evidence on the owner.
        containers: the containers that lie on the owner's way now.
    """
    way, holding, in_more_items, content_class, _ = case.sought_containers[cause.owner]
    # A container that was not there when tracing began: one of several is new and had no items; a single one may be a
    # copy that has replaced the old one.
    unknown_length = 0 if leads_to_several(way) else holding.length
    line: AllocationSite | None = None
    for container, length in zip(containers, container_lengths(containers), strict=True):
        earlier_length = case.lengths_at_trace.get(id(container), unknown_length)
        if line is not None:  # found in an earlier container: another new item here makes it final
            if length > earlier_length:
                return line, True
            continue
        # An owner `in_more_items` grows by new containers, each in an item that had none: old ones do not count.
        if in_more_items and id(container) in case.lengths_at_trace:
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
