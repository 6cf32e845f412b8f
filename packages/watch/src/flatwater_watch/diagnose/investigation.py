"""One investigation: a census, the next one, and what is known between them; and whether memory is worth one."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
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


@dataclass
class Investigation:
    """A census that waits for the next one."""

    lines: dict[str, AllocationSite]
    """By owner: the line that was found while allocations were traced, in this investigation or an earlier one."""
    before: Census | None = None
    """None until it is taken."""
    since: int = 0
    """The step at which it began."""
    modules: int = 0
    """Loaded then."""
    libraries: Mapping[str, int] | None = None
    """Lengths of the globals of libraries then; None once they were compared."""
    waited: int = 0
    """Readings at which no drift was proven yet."""
    looks: int = 0
    traced: int = 0
    """Steps for which allocations were traced."""
    tensors: bool = True
    """Whether the owner's contents are tensors."""
    hidden: bool = False
    """Whether they are out of sight, so that no trace finds their line."""
    proven: bool = False
    """Whether the growth was drifting at one of the looks."""
    length: int = 0
    sought: Mapping[str, tuple[tuple[str, ...], Holding]] = field(default_factory=dict)
    """By owner, the foremost first: the way to a container whose line is looked for, which needs no census, and its
    holding as tracing began."""
    lengths: Mapping[int, int] = field(default_factory=dict)
    """Lengths of these containers when tracing began, by id. Where a way leads to several containers, any of them may
    grow. Lengths of a census in slices would be older."""
    still: int = 0
    """Traced readings in a row at which its line was not known, ..."""
    made: int | None = None
    """Maximum live bytes at a traced reading so far; None before the first."""
    built: int = 0
    """Traced readings at which the live bytes had risen, so that an item may still be under construction."""
    asked: float = 0.0
    """... and CPU seconds of all of them."""
    retold: list[Finding] | None = None
    """The findings of the last look with the line, once it is known."""
    garbage: tuple[int, int] | None = None
    """Step and bytes when cyclic garbage was first looked for."""
    search: GarbageSearch | None = None
    """The look for cyclic garbage that goes on in a fork, ..."""
    searched: int = 0
    """... the step at which it began, ..."""
    seen: list[Finding] = field(default_factory=list)
    """... and what the look at containers had found, which waits for it."""
    clean: bool = False
    """Whether there was too little garbage for the growth."""
    suspect: Garbage | None = None
    """Garbage that came lately and is enough for the growth, as the last search says: no proof that it grows."""
    each: int = 0
    """Bytes for one piece of the garbage that was found."""
    held: int = 0
    """Readings since allocations are traced for the line of garbage."""
    handles: bool = False
    """Whether containers of handles are asked for the rest, as nothing else explains it."""
    found: list[Finding] = field(default_factory=list)
    """Of the last look, waiting for a line or for the rest."""
    grew: bool = False
    """Whether the length of the first owner was another one at the last look."""


def take_grown_libraries_(case: Investigation, roots: Roots) -> dict[str, Any]:
    """Globals of libraries that became longer since the investigation began; none the second time."""
    before, case.libraries = case.libraries, None
    return {} if before is None else grown_globals(roots, before)


def find_grown_owners(before: Census, now: Census, rate: float, steps: int, *, handles: bool) -> list[Owner]:
    """The containers that grew. What is too small to be told does not count as found: a handle's Python object is.

    Items that are drawn may reach others of their container, as nodes of a tree do; their sizes then count many times.
    So where containers grow by far faster than the process, each has its share of what comes.

    Args:
        before: the earlier census.
        now: the later one.
        rate: bytes that come with each step of the process.
        steps: from the beginning of one census to that of the other; a container may have been looked at later.
        handles: whether containers of handles are asked for what the others leave.
    """
    grown = rate * steps
    found = _without_weak(find_owners(before, now))
    owners = [owner for owner in found if owner.bytes_grown >= _least_share(owner) * grown]
    missing = grown - sum(owner.bytes_grown for owner in owners)
    together = sum(owner.bytes_grown / owner.steps for owner in owners)
    if 0 < CASE.too_large * rate < together:
        owners = [replace(owner, bytes_grown=round(owner.bytes_grown * rate / together)) for owner in owners]
    if handles and missing > (1 - OWNING.explained) * grown:
        return [*find_handles(before, now, missing), *owners]
    return owners


def _without_weak(owners: list[Owner]) -> list[Owner]:
    """A table of weak references grows with what others keep: its bytes are those of the foremost other owner."""
    strong = [owner for owner in owners if not is_a(owner.container, WeakSet, WeakValueDictionary)]
    if not strong:
        return owners
    weak = sum(owner.bytes_grown for owner in owners) - sum(owner.bytes_grown for owner in strong)
    return [replace(strong[0], bytes_grown=strong[0].bytes_grown + weak), *strong[1:]]


def _least_share(owner: Owner) -> float:
    """Part of the growth that an owner must have."""
    return OWNING.passing_share if is_of_library_call(owner.way[0]) else OWNING.told_share


def gained_by_roots(before: Census, now: Census) -> list[tuple[str, int]]:
    """Roots and the bytes that each holds more than before, most first."""
    roots = {path: held.bytes for path, held in now.holdings.items() if held.parent is None}
    held = before.holdings
    grown = ((path, size - (held[path].bytes if path in held else 0)) for path, size in roots.items())
    return sorted(grown, key=lambda each: -each[1])


def note_first_owner_(case: Investigation, owners: Sequence[Owner]) -> None:
    """Note what the foremost owner was at this look, and the ways to all owners."""
    first = owners[0]
    case.grew, case.length = first.length != case.length, first.length
    case.tensors = any(full_name(type(item))[0].startswith("torch") for item in first.newest)
    case.hidden = any(type(item) is Callback for item in first.newest)
    reached = [owner for owner in owners[: OWNING.told] if owner.kind in FOLLOWED]
    case.sought = {owner.path: (owner.way, owner.holding) for owner in reached} if first.kind in FOLLOWED else {}


def find_owner_line_(
    case: Investigation, tracer: Tracer | None, owner: str, newest: Sequence[Any]
) -> AllocationSite | None:
    """The line that made what is new in an owner: of now, or of an earlier look."""
    made = None if tracer is None else tracer.find_line(newest)
    if made is not None:
        case.lines[owner] = made
    return case.lines.get(owner)


def judge_owners_(case: Investigation, tracer: Tracer | None, owners: Sequence[Owner], **told: Any) -> list[Finding]:  # noqa: ANN401
    """Findings of containers that grew, each with its line if that is known; `told` as of `judge_owner`."""
    return [
        judge_owner(owner, find_owner_line_(case, tracer, owner.path, owner.newest), steps=owner.steps, **told)
        for owner in owners
    ]


def with_current_content(found: Finding, census: Census) -> Finding:
    """The finding with what its owner holds at this census: it may have grown by much since it was found."""
    now = current_contents(census, found.owner) if found.holders else None
    whole = found.count == 1 and census.holdings[found.owner].kind not in ITEMISED if now is not None else True
    if now is None or whole or now[1].count <= found.count:
        return found
    holders, content = now
    if found.outside:
        count = census.holdings[found.owner].length * census.holdings[found.owner].instances
        return replace(found, holders=holders, count=count, what=f"{count} ×{found.what.partition('×')[2]}")
    bound = found.what.rpartition(", ")[1:] if found.verdict == "cache" else ()
    return replace(found, holders=holders, count=content.count, what="".join((content.what, *bound)))


def record_lengths_(case: Investigation, roots: Roots) -> None:
    """Note how long the containers are whose lines are looked for, as tracing begins."""
    containers = [each for way, _ in case.sought.values() for each in resolve_all_ways(roots, way, ASKED)]
    case.lengths = dict(zip(map(id, containers), container_lengths(containers), strict=True))


def update_trace_wait_(case: Investigation, tracer: Tracer | None, roots: Roots) -> bool:
    """Whether allocations are to stay traced for the line of the foremost container that was found to grow.

    No census is needed for it: `retold` has the findings as soon as the line is known.
    """
    began = thread_seconds()
    waits = _continue_trace_(case, tracer, roots)
    case.asked = case.asked + thread_seconds() - began if waits else 0.0
    return waits


def _continue_trace_(case: Investigation, tracer: Tracer | None, roots: Roots) -> bool:
    found, foremost = {each.owner: each for each in case.found}, next(iter(case.sought), "")
    if foremost not in found:
        return False
    way = case.sought[foremost][0]
    containers = resolve_all_ways(roots, way, ASKED)
    made, whole = _find_new_line_(case, tracer, found[foremost], containers)
    seen = not leads_to_several(way) or len(containers) < ASKED  # of so many, the one that grows may be out of sight
    builds = _update_made_(case, tracer) and seen and not whole
    case.still = 0 if whole else case.still + (not builds)
    patient = case.still <= CASE.still and case.asked < CASE.asked
    waits = not whole and patient and not _was_emptied(case, foremost, containers)
    if made is not None:
        found[foremost] = replace(found[foremost], made_at=made)
        others = [] if waits else [owner for owner in case.sought if owner in found and found[owner].made_at is None]
        for owner in others:
            made, _ = _find_new_line_(case, tracer, found[owner], resolve_all_ways(roots, case.sought[owner][0], ASKED))
            found[owner] = replace(found[owner], made_at=made)
        case.found = [*found.values()]
        case.retold = None if waits else case.found
    if not waits:
        case.still, case.sought = 0, {}
    return waits


def _was_emptied(case: Investigation, owner: str, containers: Sequence[Any]) -> bool:
    """Whether an owner, or what stands in its place, has lost most of its items under the trace: it leaks none."""
    way, holding = case.sought[owner]
    if leads_to_several(way) or holding.kind not in ITEMISED:
        return False
    known = [case.lengths.get(id(container), holding.length) for container in containers]
    return any(2 * now < before for now, before in zip(container_lengths(containers), known, strict=True))


def _update_made_(case: Investigation, tracer: Tracer | None) -> bool:
    """Whether more was made than at the traced readings before: the next item may be under way, in a slow program."""
    before, made = case.made, 0 if tracer is None else tracer.live_bytes
    case.made = max(before or 0, made)
    more = max(CASE.page, CASE.built_share * case.found[0].bytes_per_step)
    builds = before is not None and made >= before + more and case.built < CASE.built
    case.built += builds
    return builds


def _find_new_line_(
    case: Investigation, tracer: Tracer | None, found: Finding, containers: Sequence[Any]
) -> tuple[AllocationSite | None, bool]:
    """The line of what was added to an owner since tracing began; and whether it is final.

    An item may still be filled, by lines that have not run yet: a second one says that the first is whole, in the same
    container or in another one on the path. What has its size from the beginning on is not waited for: an array, a
    text, a handle.
    """
    way, holding = case.sought[found.owner]
    unseen = 0 if leads_to_several(way) else holding.length  # among several it is new; else it may be a copy
    line: AllocationSite | None = None
    for container, length in zip(containers, container_lengths(containers), strict=True):
        before = replace(holding, length=case.lengths.get(id(container), unseen))
        if line is not None:
            if length > before.length:
                return line, True
            continue
        newest = added_leaves(container, length, before)
        if not newest:
            continue
        if found.owner == case.found[0].owner:
            case.length = length
        handles = handles_below(newest) if found.outside else ()
        line = find_owner_line_(case, tracer, found.owner, handles or newest)
        sized = bool(handles) or is_a(newest[-1], str, bytes) or array_figures(newest[-1]) is not None
        if line is not None and (sized or holding.kind not in ITEMISED or length > before.length + 1):
            return line, True
    return line, False


def wants_garbage(case: Investigation) -> bool:
    """Whether the line of cyclic garbage is looked for, which needs no census: one might set a collection off.

    It is, as soon as a search has found garbage that is enough for the growth, and that would be told if it came again
    and again: when it is proven to grow, the program may be about to end, or a collection may have freed it.
    """
    if case.seen:
        return case.seen[0].owner == CYCLIC and case.seen[0].made_at is None
    return case.suspect is not None and CYCLIC not in case.lines and case.suspect.may_be_felt


def update_garbage_wait_(case: Investigation, tracer: Tracer | None) -> bool:
    """Update the wait for traced garbage; say whether too few objects were made since tracing began to contain any.

    What was made last is held by the program as a rule. So it is waited until there is as much of it as two pieces of
    the garbage that was found have, and one more at each further try; but not for long, as the program is slow.
    """
    if not wants_garbage(case):
        return False
    case.held += 1
    wanted = (1 + case.traced) * case.each
    little = tracer is not None and tracer.live_bytes < wanted and case.held < CASE.still
    return case.held < CASE.dropped or little


def start_search_(case: Investigation, roots: Roots, tracer: Tracer | None, step: int) -> bool:
    """Begin to look for cyclic garbage, unless there was too little of it. Whether a search goes on."""
    if case.search is None and not case.clean:
        where = tracer.find_line if tracer is not None and tracer.running else None
        with suppress(OSError):  # no memory for a fork
            case.search, case.searched = GarbageSearch(roots, where), step
    return case.search is not None


def stop_search_(case: Investigation) -> None:
    """Stop the search that goes on."""
    if case.search is not None:
        case.search.stop()
        case.search = None


def judge_search_(
    case: Investigation, record: ReadingHistory, slope: Slope, growth: Growth, least: float
) -> list[Finding]:
    """What the search that has ended says of the growth. Some garbage always waits: it must be much, and it must grow.

    It grows from the least that was seen: a collection may have come between two searches. Its line is kept, proof or
    not, for the search that proves it, or for the end.

    Args:
        case: of the search.
        record: of the process. Where memory was freed at once meanwhile, a collection may have left little to be seen.
        slope: of the memory that no container explains.
        growth: of the process.
        least: bytes that are material.
    """
    search, before = case.search, case.garbage
    garbage = None if search is None else search.garbage()
    case.search = None
    until = slope.span - (growth.step - case.searched)  # the fork took its time, and saw the memory of then
    if garbage is not None and until <= 0:
        return []  # the search took longer than the stretch that is judged: wait for the next search
    if garbage is None or garbage.bytes < CASE.garbage * slope.per_step * until:
        case.clean = case.suspect is None and not record.has_fallen(case.since, least)
        return []
    case.each, case.grew, case.tensors = garbage.each, True, False
    case.suspect = garbage if garbage.is_suspect else case.suspect
    if garbage.made_at is not None:
        case.lines[CYCLIC] = garbage.made_at
    if before is None or garbage.bytes < before[1]:
        case.garbage = case.searched, garbage.bytes
        return []
    grown, waits = garbage.bytes - before[1], garbage.is_ordinary_gc_backlog(record.swing_bytes, record.largest_fall)
    grows = grown >= CASE.garbage * slope.per_step * (case.searched - before[0])
    if not (grows or waits or record.has_fallen(case.since, least)):
        case.suspect = None  # it lies there
    if waits or not grows:
        return []  # a later look tells it from a leak
    return [judge_garbage(replace(garbage, made_at=case.lines.get(CYCLIC)), slope.per_step, slope, growth)]


def judge_garbage_at_end(
    garbage: Garbage, record: ReadingHistory, growth: Growth, open_bytes: float, steps: int
) -> list[Finding]:
    """The finding of garbage that is most of the bytes that have no cause, and does not only wait its turn.

    Args:
        garbage: that a collection would free.
        record: of the process.
        growth: of the process.
        open_bytes: without a cause.
        steps: in which they came.
    """
    rate = max(garbage.bytes / steps, recent_slope(record.unaccounted).per_step)  # it may have come late
    found = judge_garbage(garbage, rate, Slope(rate, rate, rate), growth)
    return [replace(found, share=min(1.0, garbage.bytes / open_bytes))]


@dataclass(frozen=True)
class UnprovenGrowth:
    """What an investigation found that ended without a proof: readings may scatter more than they rise."""

    found: Sequence[Finding]
    at: Reading

    def confirmed_findings(self, last: Reading, open_bytes: float) -> list[Finding]:
        """The findings, if they have most of all that has no cause, and memory went on as they say; else none.

        Args:
            last: the latest reading.
            open_bytes: that have no cause.
        """
        rate = sum(found.bytes_per_step for found in self.found)
        came, said = last.unaccounted - self.at.unaccounted, rate * (last.step - self.at.step)
        went_on = min(came, said) >= CASE.garbage * max(came, said) > 0
        return list(self.found) if went_on and rate * last.step >= CASE.garbage * open_bytes else []


def search_garbage_now(
    lines: dict[str, AllocationSite], roots: Roots, tracer: Tracer | None, step: int
) -> Garbage | None:
    """What waits for a collection at the end, with its line, of now or of an earlier search; None if nothing is known.

    Args:
        lines: by owner.
        roots: of the search.
        tracer: of the monitor.
        step: the latest.
    """
    case = Investigation(lines, proven=True)
    start_search_(case, roots, tracer, step)
    garbage = case.search.garbage() if case.search is not None and case.search.is_done(CASE.last_search) else None
    stop_search_(case)
    return None if garbage is None else replace(garbage, made_at=garbage.made_at or lines.get(CYCLIC))


Known = Mapping[str, Finding]
"""What was found so far, by owner."""


def is_suspicious(record: ReadingHistory, known: Known, reading: Reading) -> bool:
    """Whether growth that is not known yet rises lately: no proof, but worth a census."""
    return any(
        rising_lately(_unexplained_values(series, known), reading.material_bytes) for series in _object_series(record)
    )


def find_drift(record: ReadingHistory, known: Known, reading: Reading) -> tuple[bool, Slope]:
    """Whether growth that is not known yet drifts, and the slope of all growth in the series that shows it."""
    least = reading.material_bytes
    for series in _object_series(record):
        unknown = _unexplained_values(series, known)
        by_stairs = stair_points(series.steps, unknown, least)
        if any(drift_slope(*points, least=least) is not None for points in ((series.steps, unknown), by_stairs)):
            return True, recent_slope(series)
    return False, recent_slope(record.unaccounted)


def judge_native_growth(
    record: ReadingHistory, reading: Reading, growth: Growth, known: float, *, ended: bool = False
) -> list[Finding]:
    """The growth that no object holds, where it is sure that there is some.

    Args:
        record: of the process.
        reading: the latest.
        growth: of the process.
        known: bytes per step that have an owner.
        ended: whether no reading is to come that could make it surer. A single judgement is enough then, if no memory
            was freed at once: garbage rises as well, and falls.
    """
    series, least = record.unaccounted, 2 * reading.material_bytes
    enough = ended and record.drifted["native"] > 0 and not record.has_fallen(0, least)
    if not (enough or _sure_of_native(record)):
        return []
    slope = drift_slope(series.steps, series.values, least=least, fewest=DRIFT.unheld)
    if slope is None or slope.per_step - known <= (1 - OWNING.explained) * slope.per_step:
        return []
    rest = Slope(slope.per_step - known, max(0.0, slope.low - known), slope.high - known)
    return [judge_unowned("native", rest, growth)]


def look_limit(record: ReadingHistory) -> int:
    """Censuses after the first one that are worth it."""
    return CASE.looks if _sure_of_native(record) else CASE.more_looks


def _sure_of_native(record: ReadingHistory) -> bool:
    """Whether what no book explains was found to drift often enough in a row."""
    return record.drifted["native"] >= DRIFT.again


def _object_series(record: ReadingHistory) -> tuple[Series, Series]:
    """The series that rise when objects are kept."""
    return record.unaccounted, record.live


def _unexplained_values(series: Series, known: Known) -> list[float]:
    """The series without the growth that is known already, and without a fifth more, as estimates err."""
    held = (found.bytes_per_step for found in known.values() if found.holders or found.verdict == "native")
    rate = sum(held) / OWNING.explained
    return [value - rate * step for step, value in zip(series.steps, series.values, strict=True)]
