"""The investigation of one drift of memory: its first census, and the owners that later ones show.

In names it is a case. A census is a snapshot of the containers that the program can reach; the first one of a case is
the baseline. An owner is a container that grew since then, by its path. A drift is a lasting rise of memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from weakref import WeakSet, WeakValueDictionary

from flatwater_watch.diagnose.contents import MAXIMUM_LEAVES
from flatwater_watch.diagnose.evidence import CurrentContents, Evidence
from flatwater_watch.diagnose.finding import AllocationSite
from flatwater_watch.diagnose.garbage import Garbage, GarbageSearch
from flatwater_watch.diagnose.handles import find_handles
from flatwater_watch.diagnose.hops import (
    MAXIMUM_WAY_CONTAINERS,
    SPREAD_WAY_CONTAINERS,
    resolve_all_ways,
)
from flatwater_watch.diagnose.item_growth import ITEM_KINDS, TRACEABLE_KINDS
from flatwater_watch.diagnose.lines import Tracer
from flatwater_watch.diagnose.newest_items import SINGLE_ITEM_KINDS, ids_in_container, items_and_parts, newest_items
from flatwater_watch.diagnose.owners import Owner, current_contents, find_owners
from flatwater_watch.heap.census import Census, Holding
from flatwater_watch.heap.libraries import ContainerLengths, GrownHolders, grown_holders
from flatwater_watch.heap.modules import imported_module_count
from flatwater_watch.heap.raw import full_name, is_a
from flatwater_watch.heap.roots import THREADS_TABLE, Callback, Roots, lies_in_library_call, lies_in_registry
from flatwater_watch.thresholds import CASE, OWNING


class SoughtContainers(NamedTuple):
    """The containers of an owner whose line is sought."""

    way: tuple[str, ...]
    """Root and hops, as in `Owner.hops`."""
    holding: Holding
    """Their holding at the last comparison."""
    in_more_items: bool
    """Whether each is new, in an item that had none, as in `Owner.in_more_items`."""
    content_class: type | None = None
    """Class of the newest item; None without items."""
    is_registry: bool = False
    """Whether they are a library's, and no call of it that lets go is known: the line that adds is what to change."""

    @property
    def maximum(self) -> int:
        """Maximum number of containers that are looked at."""
        return SPREAD_WAY_CONTAINERS if self.in_more_items else MAXIMUM_WAY_CONTAINERS

    def resolve(self, roots: Roots) -> list[Any]:
        """Return the containers that lie there now."""
        return resolve_all_ways(roots, self.way, self.maximum, is_spread=self.in_more_items)


@dataclass(eq=False, repr=False)
class Investigation:
    """The state of one investigation: its first census, which later ones are compared with, and its results so far."""

    lines: dict[str, AllocationSite]
    """Allocating lines by owner, from traces of this investigation or an earlier one."""
    baseline_census: Census | None = None
    """The first census, with containers that came later; None until it is taken."""
    first_step: int = 0
    """Step at which the first census began."""
    module_count: int = 0
    """Number of modules that were loaded at the first census."""
    frozen_count: int = 0
    """Number of objects that `gc.freeze` had hidden from the collector at the first census."""
    lengths: ContainerLengths | None = None
    """Lengths of all containers at the first comparison that left growth without an owner; None before that, and after
    longer containers were found."""
    lengths_step: int | None = None
    """Step at which `lengths` were taken; None before."""
    searched_bytes: float = 0.0
    """Bytes without an owner at the last search for the holders of longer containers."""
    heap_waits: int = 0
    """Number of readings in a row at which a look at all containers was not affordable."""
    reached_ids: frozenset[int] = frozenset()
    """Ids of the containers that the last census reached on a path of the first one."""
    unproven_readings: int = 0
    """Number of readings at which no drift was proven yet."""
    comparisons: int = 0
    """Number of comparisons with the first census so far."""
    was_in_vain: bool = False
    """Whether the last comparison explained next to nothing."""
    is_trace_suspended: bool = False
    """Whether the trace was ended between two readings, so that the next reading begins it again."""
    suspended_traces: int = 0
    """Number of traces that were suspended so far."""
    unaffordable_traces: int = 0
    """Number of traces that the budget has ended or put off; each next one must be affordable for twice as long."""
    trace_tries: int = 0
    """Number of tries to trace so far; a try after a comparison without growth (`first_owner_grew`) does not count."""
    contains_tensors: bool = True
    """Whether the owner's contents are tensors."""
    contents_are_untraceable: bool = False
    """Whether no trace finds the line of the contents, as they are out of sight."""
    proven: bool = False
    """Whether the growth was a drift at one of the comparisons."""
    first_owner_length: int = 0
    """Number of items of the first-ranked owner when it was last read; of containers, if it is in more items."""
    sought_containers: Mapping[str, SoughtContainers] = field(default_factory=dict)
    """Containers whose line is sought, by owner in order."""
    lengths_at_trace: Mapping[int, int] = field(default_factory=dict)
    """Lengths of the sought containers when tracing began, by id: lengths from a census in slices would be older. If a
    way leads to several containers, any of them may grow."""
    idle_readings: int = 0
    """Number of traced readings at which the line was not final and no item was under construction."""
    most_traced_bytes: int | None = None
    """Maximum live bytes at a traced reading so far; None before the first."""
    building_readings: int = 0
    """Number of traced readings at which the live bytes had risen, so that an item may still be under construction."""
    has_new_line: bool = False
    """Whether the search for the line has ended with a line, so that the next comparison needs no census."""
    least_garbage: tuple[int, int] | None = None
    """Step and bytes of the search that saw the least garbage; None before a search saw enough for the growth."""
    garbage_search: GarbageSearch | None = None
    """The search for cyclic garbage that is under way in a fork."""
    search_step: int = 0
    """Step at which the garbage search began."""
    comparison_evidence: list[Evidence] = field(default_factory=list)
    """Evidence of the comparison under way, on containers and then on garbage."""
    too_little_garbage: bool = False
    """Whether there was too little garbage for the growth."""
    suspected_garbage: Garbage | None = None
    """Garbage that came lately and is enough for the growth, by the last search; this is no proof that it grows."""
    bytes_per_garbage_object: int = 0
    """Bytes of all garbage per object of its most frequent class, as the last search found it."""
    garbage_line_readings: int = 0
    """Number of readings under this trace at which the line of garbage was sought."""
    seeks_handles: bool = False
    """Whether containers are searched for handles, as nothing else explains the remaining growth."""
    last_evidence: list[Evidence] = field(default_factory=list)
    """Evidence of the last comparison, which is reported when its line, or the remaining growth, is explained."""
    owner_to_watch: tuple[str, list[Any]] | None = None
    """Owner, and its containers, whose adding line is to be found after this case: the line that made its items waits
    in one call for the callbacks that add them, or it is a library's table, and what adds to it is to be changed."""
    first_owner_grew: bool = False
    """Whether the length of the first owner had changed at the last comparison."""


def missing_since_lengths(case: Investigation, step: int, rate: float, minimum_bytes: float) -> float:
    """Return the bytes that came since `case.lengths` was taken and that no container explains; 0 if they are too few.

    These are the lengths of all containers of the process, with which a search for longer ones compares. For a further
    search twice as many bytes must come, as it takes as long as several censuses.

    Args:
        case: investigation, with the causes found so far and the step of `case.lengths`.
        step: step of the latest reading.
        rate: bytes per step by which memory grows.
        minimum_bytes: minimum bytes for a search.
    """
    if case.lengths is None or case.lengths_step is None:
        return 0.0
    explained_rate = sum(cause.drift.per_step for cause in case.comparison_evidence)
    missing_bytes = (rate - explained_rate) * (step - case.lengths_step)
    return missing_bytes if missing_bytes >= max(minimum_bytes, 2 * case.searched_bytes) else 0.0


def take_grown_holders_(case: Investigation, roots: Roots, missing_bytes: float) -> GrownHolders:
    """Return the objects that hold containers longer now than in `case.lengths`, which is cleared if there are any.

    Nothing is searched if no lengths were taken, or if `missing_bytes`, the bytes without an owner, is 0.
    """
    if case.lengths is None or not missing_bytes:
        return GrownHolders(holders={}, must_open_ids=frozenset())
    case.searched_bytes = missing_bytes
    new_holders = grown_holders(case.lengths, roots, case.reached_ids, missing_bytes)
    if new_holders.holders:
        case.lengths = None
    return new_holders


def find_owners_since_baseline_(
    case: Investigation, baseline_census: Census, census: Census, rate: float
) -> list[Owner]:
    """Return the containers that grew between two censuses, and record which containers the case has reached.

    Args:
        case: investigation.
        baseline_census: first census (snapshot of all containers) of the case.
        census: latest census, with references to its containers.
        rate: bytes per step by which memory grows.
    """
    # Containers on paths of the first census.
    case.reached_ids = frozenset(
        id(container) for path, container in census.containers.items() if path in baseline_census.holdings
    )
    steps = census.step - case.first_step
    owners = find_grown_owners(baseline_census, census, rate, steps, seeks_handles=case.seeks_handles)
    # Imports fill registries once, which is no lasting growth.
    if imported_module_count() > case.module_count + CASE.maximum_modules_loaded:
        owners = [owner for owner in owners if not lies_in_registry(owner.path)]
    return owners


def find_grown_owners(
    earlier_census: Census, later_census: Census, rate: float, steps: int, *, seeks_handles: bool
) -> list[Owner]:
    """Return the containers that grew between two censuses, without those of too small a share of the growth.

    If they seem to grow much faster than the process, its growth is divided among them in proportion: the nodes of a
    tree that is sampled reach each other, so that their bytes count many times.

    Args:
        earlier_census: earlier snapshot of all containers.
        later_census: later snapshot, with references to its containers.
        rate: bytes per step by which memory grows.
        steps: steps between the censuses.
        seeks_handles: whether small objects with memory of C libraries are searched for, if much growth has no owner.
    """
    growth_bytes = rate * steps
    strong_owners = _without_weak_tables(find_owners(earlier_census, later_census))
    # By each owner's own number of steps, as a census in slices opens containers at different steps.
    owners = [owner for owner in strong_owners if owner.bytes_grown >= _minimum_share(owner) * rate * owner.steps]
    summed_rate = sum(owner.bytes_grown / owner.steps for owner in owners)
    unexplained_bytes = growth_bytes - summed_rate * steps
    maximum_rate = CASE.maximum_container_growth_ratio * rate
    if 0 < maximum_rate < summed_rate:
        owners = [replace(owner, bytes_grown=round(owner.bytes_grown * rate / summed_rate)) for owner in owners]
    owners = merge_holders_of_same_items(owners, rate)
    if seeks_handles and unexplained_bytes > (1 - OWNING.explained_share) * growth_bytes:
        return [*find_handles(earlier_census, later_census, unexplained_bytes), *owners]
    return owners


def _without_weak_tables(owners: list[Owner]) -> list[Owner]:
    """Return the owners without tables that only list objects which others keep alive.

    These are tables of weak references, and the table of all threads if another owner holds threads. The first of the
    other owners gets their bytes. Without other owners all are returned.
    """
    has_holder_of_threads = any(owner.contents.resource == "thread" and owner.path != THREADS_TABLE for owner in owners)
    strong_owners = [
        owner
        for owner in owners
        if not is_a(owner.container, WeakSet, WeakValueDictionary)
        and not (has_holder_of_threads and owner.path == THREADS_TABLE)
    ]
    if not strong_owners:
        return owners
    first_owner, *other_owners = strong_owners
    table_bytes = sum(owner.bytes_grown for owner in owners) - sum(owner.bytes_grown for owner in strong_owners)
    return [replace(first_owner, bytes_grown=first_owner.bytes_grown + table_bytes), *other_owners]


def merge_holders_of_same_items(owners: Sequence[Owner], rate: float) -> list[Owner]:
    """Return the growing containers without those whose newest items another one holds, which gets their bytes.

    Of those with the same items the one stays that a name of the user's reaches in the fewest hops: a cache, and not
    its table of links; the set of all intervals, and not a node of the tree of them.

    Args:
        owners: containers that grew.
        rate: bytes per step by which the process grows.
    """
    if len(owners) <= 1:  # the usual case; to look at a million items takes 60 ms
        return list(owners)
    # Arrays and texts are left out: each is its own only item, and of course its holder has it.
    items_by_path = {
        owner.path: newest_items(owner.container, owner.holding.kind, MAXIMUM_LEAVES)
        for owner in owners
        if owner.holding.kind not in SINGLE_ITEM_KINDS
    }
    # The newest items of each owner, with what these hold directly; and which of all these are items of an owner.
    parts_by_path = {path: items_and_parts(items) for path, items in items_by_path.items()}
    sought_ids = {id(part) for parts in parts_by_path.values() for part in parts}
    held_ids_by_path = {owner.path: ids_in_container(owner.container, sought_ids) for owner in owners}
    kept = {owner.path: owner for owner in owners}
    # Dropped first are tables of libraries, then those farthest from a name, and of several that with the fewest bytes.
    for owner in sorted(owners, key=lambda owner: (owner.table is None, -len(owner.hops), owner.bytes_grown)):
        part_ids = {id(part) for part in parts_by_path.get(owner.path, ())}
        # Half of the items must be, or contain, an item of the other owner: fewer may merely refer to the same object.
        minimum_common = max(1, len(items_by_path.get(owner.path, ())) / 2)
        others = [other for other in kept.values() if other is not kept[owner.path]]
        holders = [other for other in others if len(part_ids & held_ids_by_path[other.path]) >= minimum_common]
        if holders:
            kept[holders[0].path] = _add_growth(holders[0], kept.pop(owner.path), rate)
    return sorted(kept.values(), key=lambda owner: -owner.bytes_grown / owner.steps)


def _add_growth(holder: Owner, owner: Owner, rate: float) -> Owner:
    """Return `holder` with the bytes added that another container, `owner`, has grown by.

    The sum is at most the growth of the process, at `rate` bytes per step, but at least the holder's own.
    """
    holder_rate, owner_rate = holder.bytes_grown / holder.steps, owner.bytes_grown / owner.steps
    # Limited, as a sampled item may have been counted in both.
    summed_rate = max(holder_rate, min(holder_rate + owner_rate, rate))
    return replace(holder, bytes_grown=round(summed_rate * holder.steps))


def _minimum_share(owner: Owner) -> float:
    """Return the minimum share of the process's growth for an owner to be reported, 0 to 1.

    It is larger for a local variable of a library's running call.
    """
    return OWNING.minimum_library_call_share if lies_in_library_call(owner.path) else OWNING.minimum_reported_share


def root_gains(earlier_census: Census, later_census: Census) -> list[tuple[str, int]]:
    """Return pairs of a root (global, local variable or registry) and the bytes that it has gained, most bytes first.

    A new root has gained all its bytes.
    """
    root_bytes = {path: holding.bytes for path, holding in later_census.holdings.items() if holding.parent is None}
    earlier_bytes = {path: holding.bytes for path, holding in earlier_census.holdings.items()}
    gains = ((path, size - earlier_bytes.get(path, 0)) for path, size in root_bytes.items())
    return sorted(gains, key=lambda path_and_gain: -path_and_gain[1])


def record_first_owner_(case: Investigation, owners: Sequence[Owner]) -> None:
    """Record what a search for the allocating lines of growing containers needs to know.

    `owners` are the containers that a comparison found to grow, the one with most of the growth first. The search is
    for the line of the first; the lines of the others are looked up together with it.
    """
    first_owner = owners[0]
    holding = first_owner.holding
    # An owner `in_more_items` grows by more containers on its path, and not by longer ones.
    length = holding.instances if first_owner.in_more_items else holding.length
    case.first_owner_grew = length != case.first_owner_length
    case.first_owner_length = length
    case.contains_tensors = any(full_name(type(item))[0].startswith("torch") for item in first_owner.contents.leaves)
    case.contents_are_untraceable = any(type(item) is Callback for item in first_owner.contents.leaves)
    sought_owners = owners[: OWNING.maximum_printed_findings] if holding.kind in TRACEABLE_KINDS else ()
    case.sought_containers = {
        owner.path: SoughtContainers(
            owner.hops,
            owner.holding,
            owner.in_more_items,
            content_class=type(owner.contents.leaves[-1]) if owner.contents.leaves else None,
            is_registry=owner.table is not None and not (owner.table.calls or owner.table.argument),
        )
        for owner in sought_owners
        if owner.holding.kind in TRACEABLE_KINDS
    }


def find_owner_line_(case: Investigation, tracer: Tracer, owner: str, newest: Sequence[Any]) -> AllocationSite | None:
    """Return the line that made the newest items of a container, and record it in `case.lines`.

    If the trace does not know it, the line that was recorded before is returned; None without any.
    """
    line = tracer.find_line(newest)
    if line is not None:
        case.lines[owner] = line
    return case.lines.get(owner)


def larger_contents(cause: Evidence, census: Census) -> CurrentContents | None:
    """Return the contents of a cause's owner in a newer census; None if they are no more than the evidence has."""
    contents_now = current_contents(census, cause.owner) if cause.holders else None
    if contents_now is None:
        return None
    holders, content = contents_now
    holding = census.holdings[cause.owner]
    # An array or a text is its own only item: it may be larger, but has no more contents than before.
    is_single = cause.newest_contents.objects == 1 and holding.kind not in ITEM_KINDS
    if is_single or content.count <= cause.newest_contents.objects:
        return None
    if cause.outside:
        # Of bytes outside of Python the census sees only the items, so the evidence's words, such as `30 × Client, each
        # with its SSLContext`, stay but for the number.
        count = holding.length * holding.instances
        rest_of_phrase = cause.what.partition("×")[2]
        return CurrentContents(holders, count, f"{count} ×{rest_of_phrase}")
    return CurrentContents(holders, content.count, content.what)
