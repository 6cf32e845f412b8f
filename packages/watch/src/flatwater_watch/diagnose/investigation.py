"""One investigation: a census, a second one, and the knowledge between them; and whether memory is worth one."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from weakref import WeakSet, WeakValueDictionary

from flatwater_watch.diagnose.finding import AllocationSite, Finding
from flatwater_watch.diagnose.garbage import Garbage, GarbageSearch
from flatwater_watch.diagnose.handles import find_handles, handles_below
from flatwater_watch.diagnose.judge import CYCLIC, judge_garbage, judge_owner, judge_unowned
from flatwater_watch.diagnose.lines import Tracer
from flatwater_watch.diagnose.owners import (
    ASKED,
    FOLLOWED,
    ITEMISED,
    Owner,
    added_leaves,
    container_lengths,
    current_contents,
    find_owners,
    leads_to_several,
    resolve_all_ways,
)
from flatwater_watch.heap.arrays import array_figures
from flatwater_watch.heap.census import Census, Holding
from flatwater_watch.heap.libraries import grown_globals
from flatwater_watch.heap.raw import full_name, is_a
from flatwater_watch.heap.roots import Callback, Roots, is_of_library_call
from flatwater_watch.meters.system_calls import thread_seconds
from flatwater_watch.series.readings import Growth, Reading, ReadingHistory, recent_slope
from flatwater_watch.series.slope import Series, Slope, drift_slope, rising_lately, stair_points
from flatwater_watch.thresholds import SHIPPED

CASE, DRIFT, OWNING = SHIPPED.investigating, SHIPPED.drift, SHIPPED.owning


@dataclass(eq=False, repr=False)
class Investigation:
    """The state of an investigation: a census that waits for the next one, and all that is known by now."""

    lines: dict[str, AllocationSite]
    """Allocating lines by owner, from traces of this investigation or an earlier one."""
    before: Census | None = None
    """The first census; None until it is taken."""
    since: int = 0
    """Step at which the first census began."""
    modules: int = 0
    """Number of modules that were loaded then."""
    libraries: Mapping[str, int] | None = None
    """Lengths of the globals of libraries then; None once they were compared."""
    waited: int = 0
    """Number of readings at which no drift was proven yet."""
    looks: int = 0
    """Number of comparisons with the first census so far."""
    traced: int = 0
    """Number of tries to trace so far; one after a look at which nothing had grown (`grew`) does not count."""
    tensors: bool = True
    """Whether the owner's contents are tensors."""
    hidden: bool = False
    """Whether the contents are out of sight, so that no trace finds their line."""
    proven: bool = False
    """Whether the growth was a drift at one of the looks."""
    length: int = 0
    """Number of items of the first-ranked owner when it was last read."""
    sought: Mapping[str, tuple[tuple[str, ...], Holding]] = field(default_factory=dict)
    """Ways to the containers whose line is sought, with their holdings at the last look, by owner in rank order."""
    lengths: Mapping[int, int] = field(default_factory=dict)
    """Lengths of these containers when tracing began, by id: those of a census in slices would be older. If a way leads
    to several containers, any of them may grow."""
    still: int = 0
    """Number of traced readings at which the line was not final and no item was under construction."""
    made: int | None = None
    """Maximum live bytes at a traced reading so far; None before the first."""
    built: int = 0
    """Number of traced readings at which the live bytes had risen, so that an item may still be under construction."""
    asked: float = 0.0
    """CPU seconds of the search for the line at the traced readings; 0 when it has ended."""
    retold: list[Finding] | None = None
    """The findings of the last look with the line, for the next look; None until the search ends with a line."""
    garbage: tuple[int, int] | None = None
    """Step and bytes of the search that saw the least garbage; None before the first that saw enough."""
    search: GarbageSearch | None = None
    """The search for cyclic garbage that is under way in a fork."""
    searched: int = 0
    """Step at which the search began."""
    seen: list[Finding] = field(default_factory=list)
    """Findings of the look at containers, which wait for the search."""
    clean: bool = False
    """Whether there was too little garbage for the growth."""
    suspect: Garbage | None = None
    """Garbage that came lately and is enough for the growth, as the last search says: no proof that it grows."""
    each: int = 0
    """Bytes of all garbage per object of its most frequent class, as the last search found it."""
    held: int = 0
    """Number of readings under this trace at which the line of garbage was sought."""
    handles: bool = False
    """Whether containers are searched for handles, as nothing else explains the rest."""
    found: list[Finding] = field(default_factory=list)
    """Findings of the last look, which wait for a line or for the rest."""
    grew: bool = False
    """Whether the length of the first owner had changed at the last look."""


def take_grown_libraries_(case: Investigation, roots: Roots) -> dict[str, Any]:
    """Globals of libraries that became longer since the investigation began; empty at the second call."""
    lengths, case.libraries = case.libraries, None
    return {} if lengths is None else grown_globals(roots, lengths)


def find_grown_owners(before: Census, now: Census, rate: float, steps: int, *, handles: bool) -> list[Owner]:
    """The containers that grew between two censuses, without those too small to be reported.

    Sampled items may reach others of their container, as nodes of a tree do; their sizes then count many times. So if
    containers grow much faster than the process, the growth of the process is divided among them.

    Args:
        before: the earlier census.
        now: the later one.
        rate: bytes that come with each step of the process.
        steps: steps from the beginning of one census to that of the other.
        handles: whether containers are searched for handles, to explain the rest.
    """
    growth_bytes = rate * steps
    strong_owners = _without_weak(find_owners(before, now))
    owners = [owner for owner in strong_owners if owner.bytes_grown >= _least_share(owner) * growth_bytes]
    missing_bytes = growth_bytes - sum(owner.bytes_grown for owner in owners)
    summed_rate = sum(owner.bytes_grown / owner.steps for owner in owners)
    if 0 < CASE.too_large * rate < summed_rate:
        owners = [replace(owner, bytes_grown=round(owner.bytes_grown * rate / summed_rate)) for owner in owners]
    if handles and missing_bytes > (1 - OWNING.explained) * growth_bytes:
        return [*find_handles(before, now, missing_bytes), *owners]
    return owners


def _without_weak(owners: list[Owner]) -> list[Owner]:
    """The owners without tables of weak references, unless all are such; the first one gets the tables' bytes."""
    strong = [owner for owner in owners if not is_a(owner.container, WeakSet, WeakValueDictionary)]
    if not strong:
        return owners
    weak_bytes = sum(owner.bytes_grown for owner in owners) - sum(owner.bytes_grown for owner in strong)
    return [replace(strong[0], bytes_grown=strong[0].bytes_grown + weak_bytes), *strong[1:]]


def _least_share(owner: Owner) -> float:
    """Minimum share of the process's growth for an owner, 0 to 1; more for a local variable of a library's call."""
    return OWNING.passing_share if is_of_library_call(owner.way[0]) else OWNING.told_share


def gained_by_roots(before: Census, now: Census) -> list[tuple[str, int]]:
    """Roots with the bytes that each has gained, most bytes first."""
    root_bytes = {path: holding.bytes for path, holding in now.holdings.items() if holding.parent is None}
    earlier = before.holdings
    gains = ((path, size - (earlier[path].bytes if path in earlier else 0)) for path, size in root_bytes.items())
    return sorted(gains, key=lambda each: -each[1])


def note_first_owner_(case: Investigation, owners: Sequence[Owner]) -> None:
    """Record the first-ranked owner of this look, and the ways to the first few owners whose lines can be sought."""
    first = owners[0]
    case.grew, case.length = first.length != case.length, first.length
    case.tensors = any(full_name(type(item))[0].startswith("torch") for item in first.newest)
    case.hidden = any(type(item) is Callback for item in first.newest)
    followed = [owner for owner in owners[: OWNING.told] if owner.kind in FOLLOWED]
    case.sought = {owner.path: (owner.way, owner.holding) for owner in followed} if first.kind in FOLLOWED else {}


def find_owner_line_(
    case: Investigation, tracer: Tracer | None, owner: str, newest: Sequence[Any]
) -> AllocationSite | None:
    """The line that made the `newest` items of an owner: from this look, else from an earlier one, else None."""
    line = None if tracer is None else tracer.find_line(newest)
    if line is not None:
        case.lines[owner] = line
    return case.lines.get(owner)


def judge_owners_(case: Investigation, tracer: Tracer | None, owners: Sequence[Owner], **told: Any) -> list[Finding]:  # noqa: ANN401
    """Findings of containers that grew, each with its line if it is known; `told` goes to `judge_owner`."""
    return [
        judge_owner(owner, find_owner_line_(case, tracer, owner.path, owner.newest), steps=owner.steps, **told)
        for owner in owners
    ]


def with_current_content(found: Finding, census: Census) -> Finding:
    """The finding with its owner's contents at this census, if these are more than when it was found."""
    current = current_contents(census, found.owner) if found.holders else None
    is_single = found.count == 1 and census.holdings[found.owner].kind not in ITEMISED if current is not None else True
    if current is None or is_single or current[1].count <= found.count:
        return found
    holders, content = current
    if found.outside:
        count = census.holdings[found.owner].length * census.holdings[found.owner].instances
        return replace(found, holders=holders, count=count, what=f"{count} ×{found.what.partition('×')[2]}")
    bound_text = found.what.rpartition(", ")[1:] if found.verdict == "cache" else ()
    return replace(found, holders=holders, count=content.count, what="".join((content.what, *bound_text)))


def record_lengths_(case: Investigation, roots: Roots) -> None:
    """Record the lengths of the containers whose lines are sought, when tracing begins."""
    containers = [container for way, _ in case.sought.values() for container in resolve_all_ways(roots, way, ASKED)]
    case.lengths = dict(zip(map(id, containers), container_lengths(containers), strict=True))


def update_trace_wait_(case: Investigation, tracer: Tracer | None, roots: Roots) -> bool:
    """Search the traced allocations for the line that makes the items of the first-ranked container that grows.

    When the search ends with a line, `case.retold` has the findings with it, without another census. Its CPU seconds
    add up in `case.asked`, which limits it.

    Returns:
        Whether the search goes on, so that allocations stay traced.
    """
    start_seconds = thread_seconds()
    waits = _continue_trace_(case, tracer, roots)
    case.asked = case.asked + thread_seconds() - start_seconds if waits else 0.0
    return waits


def _continue_trace_(case: Investigation, tracer: Tracer | None, roots: Roots) -> bool:
    """Look for the line of the first-ranked owner; return whether to go on. If not, look for other owners' lines."""
    causes, first = {finding.owner: finding for finding in case.found}, next(iter(case.sought), "")
    if first not in causes:
        return False
    way = case.sought[first][0]
    containers = resolve_all_ways(roots, way, ASKED)
    line, is_final = _find_new_line_(case, tracer, causes[first], containers)
    # Among so many, the one that grows may be out of sight.
    in_view = not leads_to_several(way) or len(containers) < ASKED
    is_building = _update_made_(case, tracer) and in_view and not is_final
    case.still = 0 if is_final else case.still + (not is_building)
    is_patient = case.still <= CASE.still and case.asked < CASE.asked
    waits = not is_final and is_patient and not _was_emptied(case, first, containers)
    if line is not None:
        causes[first] = replace(causes[first], made_at=line)
        others = [] if waits else [owner for owner in case.sought if owner in causes and causes[owner].made_at is None]
        for path in others:
            line, _ = _find_new_line_(case, tracer, causes[path], resolve_all_ways(roots, case.sought[path][0], ASKED))
            causes[path] = replace(causes[path], made_at=line)
        case.found = [*causes.values()]
        case.retold = None if waits else case.found
    if not waits:
        case.still, case.sought = 0, {}
    return waits


def _was_emptied(case: Investigation, owner: str, containers: Sequence[Any]) -> bool:
    """Whether an owner, or a container in its place, has lost most of its items under the trace: it is no leak."""
    way, holding = case.sought[owner]
    if leads_to_several(way) or holding.kind not in ITEMISED:
        return False
    lengths_before = [case.lengths.get(id(container), holding.length) for container in containers]
    return any(2 * now < before for now, before in zip(container_lengths(containers), lengths_before, strict=True))


def _update_made_(case: Investigation, tracer: Tracer | None) -> bool:
    """Whether more traced bytes live than at earlier readings: in a slow program the next item may be under way."""
    most_bytes, live_bytes = case.made, 0 if tracer is None else tracer.live_bytes
    case.made = max(most_bytes or 0, live_bytes)
    minimum_rise = max(CASE.page, CASE.built_share * case.found[0].bytes_per_step)
    is_building = most_bytes is not None and live_bytes >= most_bytes + minimum_rise and case.built < CASE.built
    case.built += is_building
    return is_building


def _find_new_line_(
    case: Investigation, tracer: Tracer | None, found: Finding, containers: Sequence[Any]
) -> tuple[AllocationSite | None, bool]:
    """The line that made the items added to an owner since tracing began, None if unknown; and whether it is final.

    `found` is the owner's finding, and `containers` are all that lie on its way now.
    An item may still be filled, by lines that have not run yet: a second item says that the first is complete, in the
    same container or in another one on the path. Items of a fixed size are complete at once: arrays, texts, handles.
    """
    way, holding = case.sought[found.owner]
    # An unknown container among several is new; a single one may be a copy.
    unknown_length = 0 if leads_to_several(way) else holding.length
    line: AllocationSite | None = None
    for container, length in zip(containers, container_lengths(containers), strict=True):
        holding_before = holding._replace(length=case.lengths.get(id(container), unknown_length))
        if line is not None:
            if length > holding_before.length:
                return line, True
            continue
        newest = added_leaves(container, length, holding_before)
        if not newest:
            continue
        if found.owner == case.found[0].owner:
            case.length = length
        handles = handles_below(newest) if found.outside else ()
        line = find_owner_line_(case, tracer, found.owner, handles or newest)
        has_fixed_size = bool(handles) or is_a(newest[-1], str, bytes) or array_figures(newest[-1]) is not None
        if line is not None and (has_fixed_size or holding.kind not in ITEMISED or length > holding_before.length + 1):
            return line, True
    return line, False


def wants_garbage(case: Investigation) -> bool:
    """Whether the line of cyclic garbage is sought, without a census, which might set a collection off.

    It is sought once a search finds enough garbage for the growth: until growth is proven, a collection may free it.
    """
    if case.seen:
        return case.seen[0].owner == CYCLIC and case.seen[0].made_at is None
    return case.suspect is not None and CYCLIC not in case.lines and case.suspect.may_be_felt


def update_garbage_wait_(case: Investigation, tracer: Tracer | None) -> bool:
    """Update the wait for traced garbage; return whether too few objects were made under the trace to contain any.

    The newest objects are held by the program as a rule. So the wait is until there are as many bytes as two pieces of
    the garbage have, and one more at each further try; but not for long, as the program is slow.
    """
    if not wants_garbage(case):
        return False
    case.held += 1
    wanted_bytes = (1 + case.traced) * case.each
    is_too_little = tracer is not None and tracer.live_bytes < wanted_bytes and case.held < CASE.still
    return case.held < CASE.dropped or is_too_little


def start_search_(case: Investigation, roots: Roots, tracer: Tracer | None, step: int) -> bool:
    """Begin a search for cyclic garbage at `step`, unless there was too little; return whether one is under way."""
    if case.search is None and not case.clean:
        where = tracer.find_line if tracer is not None and tracer.running else None
        with suppress(OSError):  # no memory for a fork
            case.search, case.searched = GarbageSearch(roots, where), step
    return case.search is not None


def stop_search_(case: Investigation) -> None:
    """Stop the search that is under way."""
    if case.search is not None:
        case.search.stop()
        case.search = None


def judge_search_(
    case: Investigation, record: ReadingHistory, slope: Slope, growth: Growth, least: float
) -> list[Finding]:
    """Findings of a search that has ended. Some garbage always waits: it must be much, and it must grow.

    Growth counts from the least garbage that was seen, as a collection may have come between two searches. The line is
    kept, proof or not, for the search that proves it, or for the end.

    Args:
        case: investigation of the search.
        record: readings. If memory was freed at once meanwhile, a collection may have left little to see.
        slope: slope of the memory that no container explains.
        growth: growth of the process.
        least: bytes that are material.
    """
    search, lowest = case.search, case.garbage
    garbage = None if search is None else search.garbage()
    case.search = None
    steps_seen = slope.span - (growth.step - case.searched)  # the fork saw the memory of its beginning
    if garbage is not None and steps_seen <= 0:
        return []  # the search took longer than the stretch that is judged: wait for the next search
    if garbage is None or garbage.bytes < CASE.garbage * slope.per_step * steps_seen:
        case.clean = case.suspect is None and not record.has_fallen(case.since, least)
        return []
    case.each, case.grew, case.tensors = garbage.each, True, False
    case.suspect = garbage if garbage.is_suspect else case.suspect
    if garbage.made_at is not None:
        case.lines[CYCLIC] = garbage.made_at
    if lowest is None or garbage.bytes < lowest[1]:
        case.garbage = case.searched, garbage.bytes
        return []
    gain, backlog = garbage.bytes - lowest[1], garbage.is_ordinary_gc_backlog(record.swing_bytes, record.largest_fall)
    grows = gain >= CASE.garbage * slope.per_step * (case.searched - lowest[0])
    if not (grows or backlog or record.has_fallen(case.since, least)):
        case.suspect = None  # it does not grow
    if backlog or not grows:
        return []  # a later look distinguishes it from a leak
    return [judge_garbage(garbage._replace(made_at=case.lines.get(CYCLIC)), slope.per_step, slope, growth)]


def judge_garbage_at_end(
    garbage: Garbage, record: ReadingHistory, growth: Growth, open_bytes: float, steps: int
) -> list[Finding]:
    """The finding of garbage that is most of the bytes without a cause, and more than an ordinary backlog.

    Args:
        garbage: objects that a collection would free.
        record: readings.
        growth: growth of the process.
        open_bytes: bytes without a cause.
        steps: steps in which they came.
    """
    rate = max(garbage.bytes / steps, recent_slope(record.unaccounted).per_step)  # the garbage may have come late
    finding = judge_garbage(garbage, rate, Slope(rate, rate, rate), growth)
    return [replace(finding, share=min(1.0, garbage.bytes / open_bytes))]


class UnprovenGrowth(NamedTuple):
    """Findings of an investigation that ended without a proof, as readings may scatter more than they rise."""

    found: Sequence[Finding]
    at: Reading

    def confirmed_findings(self, last: Reading, open_bytes: float) -> list[Finding]:
        """The findings, if they explain most bytes without a cause, and memory went on at their rate; else none.

        Args:
            last: the latest reading.
            open_bytes: bytes without a cause.
        """
        rate = sum(finding.bytes_per_step for finding in self.found)
        actual_bytes, forecast_bytes = last.unaccounted - self.at.unaccounted, rate * (last.step - self.at.step)
        went_on = min(actual_bytes, forecast_bytes) >= CASE.garbage * max(actual_bytes, forecast_bytes) > 0
        # The rate for all steps, as the open bytes came since the beginning.
        return list(self.found) if went_on and rate * last.step >= CASE.garbage * open_bytes else []


def search_garbage_now(
    lines: dict[str, AllocationSite], roots: Roots, tracer: Tracer | None, step: int
) -> Garbage | None:
    """The garbage at the end, with its line from this search or an earlier one; None if there is none.

    Args:
        lines: allocating lines by owner.
        roots: choice of roots.
        tracer: tracer of the monitor; None if it has none.
        step: the latest step.
    """
    case = Investigation(lines, proven=True)
    start_search_(case, roots, tracer, step)
    garbage = case.search.garbage() if case.search is not None and case.search.is_done(CASE.last_search) else None
    stop_search_(case)
    return None if garbage is None else garbage._replace(made_at=garbage.made_at or lines.get(CYCLIC))


Known = Mapping[str, Finding]
"""Findings so far, by owner."""


def is_suspicious(record: ReadingHistory, known: Known, reading: Reading) -> bool:
    """Whether memory that no finding explains rises lately: no proof, but worth a census."""
    return any(
        rising_lately(_unexplained_values(series, known), reading.material_bytes) for series in _object_series(record)
    )


def find_drift(record: ReadingHistory, known: Known, reading: Reading) -> tuple[bool, Slope]:
    """Whether memory that no finding explains drifts, and the slope of all growth in the series that shows it."""
    floor = reading.material_bytes
    for series in _object_series(record):
        values = _unexplained_values(series, known)
        by_stairs = stair_points(series.steps, values, floor)
        if any(drift_slope(*points, least=floor) is not None for points in ((series.steps, values), by_stairs)):
            return True, recent_slope(series)
    return False, recent_slope(record.unaccounted)


def judge_native_growth(
    record: ReadingHistory, reading: Reading, growth: Growth, known: float, *, ended: bool = False
) -> list[Finding]:
    """The finding of growth that no object holds, if it is certain.

    Args:
        record: readings.
        reading: the latest.
        growth: growth of the process.
        known: bytes per step that have an owner.
        ended: whether no further reading comes. A single judgement is enough then, if no memory was freed at once:
            garbage rises as well, and falls.
    """
    series, minimum_rise = record.unaccounted, 2 * reading.material_bytes
    is_enough = ended and record.drifted["native"] > 0 and not record.has_fallen(0, minimum_rise)
    if not (is_enough or _sure_of_native(record)):
        return []
    slope = drift_slope(series.steps, series.values, least=minimum_rise, fewest=DRIFT.unheld)
    if slope is None or slope.per_step - known <= (1 - OWNING.explained) * slope.per_step:
        return []
    open_slope = Slope(slope.per_step - known, max(0.0, slope.low - known), slope.high - known)
    return [judge_unowned("native", open_slope, growth)]


def look_limit(record: ReadingHistory) -> int:
    """Maximum number of censuses after the first one."""
    return CASE.looks if _sure_of_native(record) else CASE.more_looks


def _sure_of_native(record: ReadingHistory) -> bool:
    """Whether unaccounted memory was found to drift often enough in a row."""
    return record.drifted["native"] >= DRIFT.again


def _object_series(record: ReadingHistory) -> tuple[Series, Series]:
    """The two series that rise when objects are kept: unaccounted bytes, and bytes that the C allocator handed out."""
    return record.unaccounted, record.live


def _unexplained_values(series: Series, known: Known) -> list[float]:
    """Values of a series, in bytes, without the growth that findings explain, and a quarter more, as estimates err."""
    rates = (finding.bytes_per_step for finding in known.values() if finding.holders or finding.verdict == "native")
    rate = sum(rates) / OWNING.explained
    return [value - rate * step for step, value in zip(series.steps, series.values, strict=True)]
