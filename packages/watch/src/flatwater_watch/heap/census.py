"""The census: the containers of the user's program by path, and the bytes below each.

The heap is walked breadth-first from the roots, so that an object belongs to the shallowest container that reaches it.
Big containers are sized from a sample. Instances on like paths ("train.AGENTS[*].history") are one holding.

The walk has a row for each object, in the order in which it came to them, so that a container has a lower row than the
objects that it holds. When it has ended, the bytes of each row are added to its holder's row, and then to the record of
its path.

A census of a million objects takes a second or more. So it can be taken in slices, while the program goes on:
`begin_census` and `continue_census_`. `walk.py` describes the objects that it keeps alive meanwhile.
"""

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf, sqrt
from types import MappingProxyType
from typing import Any, NamedTuple

from flatwater_watch.heap.roots import Roots
from flatwater_watch.heap.view import strong_object
from flatwater_watch.heap.walk import (
    FOLDED,
    SAMPLED,
    HeapWalk,
    PathRecord,
    begin_walk,
    continue_walk_,
    release_objects_,
)
from flatwater_watch.meters.system_calls import monotonic, process_seconds, thread_seconds
from flatwater_watch.thresholds import ENDING, MEASURING

SAMPLED_ITEMS, FEWER_SAMPLED_ITEMS = 24, 6
"""Items of a big container that are sampled; the second number if the first makes the walk long, as figures do."""

LONG_WALK_OBJECTS = 20_000
"""Objects after which the walk begins again with fewer items of each container."""

ROWS_BETWEEN_CLOCKS = 4000
"""Rows that are summed between two looks at the clock: about 2 ms."""


class Holding(NamedTuple):
    """A container, or all containers on like paths."""

    path: str
    """Readable path, the same in every run, without indexes: "train.HISTORY", "main() in train.py: agent.memory"."""
    parent: str | None
    """Path of the container that holds it; None for a root."""
    kind: str
    """list, tuple, dict, set, deque, queue, cache, figures, hooks, closure, array, graph, text, bytes, class,
    generator, frame, thread or object."""
    length: int
    """Items; elements of an array; nodes of a graph or of a linked structure. The mean over several containers."""
    capacity: int | None
    """Maximum length: `maxlen` of a deque, `maxsize` of a queue or cache; None if nothing bounds it."""
    bytes: int
    """Bytes of all objects below it that no earlier holding holds."""
    instances: int = 1
    """Estimated number of containers on this path."""
    step: int = 0
    """Step at which it was opened, which in a census in slices comes after the census began."""
    items: float = 0.0
    """Estimated items of all containers on this path together: one of many that grows hardly changes the mean."""
    usual_bytes: float = 0.0
    """Bytes of the items of sampled containers, without the largest item of each."""
    bytes_error: float = 0.0
    """Standard error of the bytes, as a sample is not all."""
    length_error: float = 0.0
    """Standard error of the mean length: other containers on this path would give another one."""


class Census(NamedTuple):
    """The holdings of one moment, or of the slices in which it was taken."""

    holdings: Mapping[str, Holding]
    visited: int
    """Number of objects that were opened."""
    truncated: bool
    """Whether the walk stopped at its limit: bytes are too few, and holdings may be missing."""
    seconds: float
    """Seconds for which the program stood still, all slices together."""
    containers: Mapping[str, Any]
    """The container on each path, or the longest of several. Strong references: `without_objects` drops them."""
    unread: Mapping[str, int] = MappingProxyType({})
    """Number of objects that could not be read, by class and exception; objects below them are missing."""
    sampled_items: int = SAMPLED_ITEMS
    """Items of a big container that were sampled: estimates of items are compared only between equal samples."""
    step: int = 0
    """Step of the program at which it began."""

    def without_objects(self) -> "Census":
        """Return the census without references to objects of the program."""
        return self._replace(containers={})


@dataclass(eq=False, repr=False, slots=True)
class CensusInProgress:
    """A census that is under way."""

    roots: Roots
    maximum_objects: int
    """Maximum number of objects to visit."""
    heap_walk: HeapWalk
    step: int = 0
    """Step of the program at which it began."""
    seconds: float = 0.0
    """Seconds of wall time that its slices have taken."""
    walk_done: bool = False
    """Whether the walk has ended, so that its bytes can be summed."""
    rows_added: int = 0
    """Rows whose bytes were added to their holders', the last rows first."""
    rows_assigned: int = 0
    """Rows whose bytes were added to their paths', the first rows first."""


def take_census(roots: Roots, *, maximum: int = 200_000) -> Census:
    """Walk the heap from the roots in one go, while the program stands still.

    Returns:
        The holdings, with references to the containers.
    """
    census = continue_census_(begin_census(roots, maximum=maximum), inf)
    assert census is not None  # noqa: S101  (its time is not bounded)
    return census


def begin_census(
    roots: Roots, *, step: int = 0, maximum: int = 200_000, sample_fewer_items: bool = False
) -> CensusInProgress:
    """Begin a census from the roots as they are now, without opening an object.

    Args:
        roots: roots of the walk.
        step: step of the program now.
        maximum: maximum number of objects to visit, without single numbers and short texts.
        sample_fewer_items: whether `FEWER_SAMPLED_ITEMS` are sampled from the beginning, as the walk is known to be
            long.
    """
    # Paused, so that the walk's own allocations start no collection, which would free objects to be counted.
    with _pause_collector():
        if sample_fewer_items:
            heap_walk = begin_walk(roots, sampled_items=FEWER_SAMPLED_ITEMS, maximum=maximum)
        else:  # a walk that reaches this limit begins again, with fewer items: see `_continue_census_`
            heap_walk = begin_walk(roots, sampled_items=SAMPLED_ITEMS, maximum=min(LONG_WALK_OBJECTS, maximum))
        return CensusInProgress(roots, maximum, heap_walk, step)


def continue_census_(progress: CensusInProgress, seconds: float, step: int = 0) -> Census | None:
    """Go on with a census for a while; return it when it is done, and None until then.

    Args:
        progress: census from `begin_census`.
        seconds: maximum CPU seconds of this thread, for which the program stands still; the opening of one container
            or graph is not interrupted.
        step: step of the program now.
    """
    start_seconds = monotonic()
    with _pause_collector():
        progress.heap_walk.step = step
        census = _continue_census_(progress, thread_seconds() + seconds)
        if census is None:  # until the next slice the program may free objects, which the walk must not keep alive
            release_objects_(progress.heap_walk)
    progress.seconds += monotonic() - start_seconds
    return None if census is None else census._replace(seconds=progress.seconds)


_collector_was_enabled: list[bool] = []
"""Whether the collector was on before each pause under way, the innermost last."""


@contextmanager
def _pause_collector() -> Iterator[None]:
    """Pause the garbage collector during the block, so that allocations of the walk free no objects to be counted.

    A fork that another thread makes meanwhile inherits the pause: `restore_collector` ends it there.
    """
    _collector_was_enabled.append(gc.isenabled())
    gc.disable()
    try:
        yield
    finally:
        # Empty in a fork, where `restore_collector` was called.
        if _collector_was_enabled and _collector_was_enabled.pop():
            gc.enable()


def restore_collector() -> None:
    """End the pause of the collector in a fork that was made while another thread took a census."""
    # In a fork: the thread of the census does not exist here, so its pause would never end.
    while _collector_was_enabled:
        if _collector_was_enabled.pop():
            gc.enable()


def _continue_census_(progress: CensusInProgress, deadline: float) -> Census | None:
    """Go on with a census until a time of `thread_seconds`; return it if it is complete, else None.

    A walk that turns out to be long begins again, once, with fewer sampled items of each container.
    """
    if not progress.walk_done:
        if not continue_walk_(progress.heap_walk, deadline):
            return None
        if progress.heap_walk.truncated and progress.heap_walk.walk.sampled_items == SAMPLED_ITEMS:
            _begin_again_with_fewer_items_(progress)
            return _continue_census_(progress, deadline)
        progress.walk_done = True
    heap_walk = progress.heap_walk
    # Both sums go on where the last slice ended, and the order matters: paths get the bytes of whole subtrees.
    if not _sum_subtrees_(progress, heap_walk, deadline):
        return None
    if not _assign_to_paths_(progress, heap_walk, deadline):
        return None
    _add_sampling_figures_(heap_walk)
    holdings, containers = _list_holdings(heap_walk.records.values())
    _break_cycles_(heap_walk)
    return Census(
        holdings,
        visited=heap_walk.walk.opened_count,
        truncated=heap_walk.truncated,
        seconds=0.0,  # set by the caller
        containers=containers,
        unread=dict(heap_walk.walk.unread_by_class),
        sampled_items=heap_walk.walk.sampled_items,
        step=progress.step,
    )


def _begin_again_with_fewer_items_(progress: CensusInProgress) -> None:
    """Begin the walk again with fewer sampled items of each container, so that it gets further within its limit."""
    _break_cycles_(progress.heap_walk)
    step = progress.heap_walk.step  # the program's present one, which new records get
    progress.heap_walk = begin_walk(progress.roots, sampled_items=FEWER_SAMPLED_ITEMS, maximum=progress.maximum_objects)
    progress.heap_walk.step = step


def _break_cycles_(heap_walk: HeapWalk) -> None:
    """Break the cycles between records, so that they are freed at once and without the collector."""
    for record in heap_walk.records.values():
        record.children.clear()


def _sum_subtrees_(progress: CensusInProgress, heap_walk: HeapWalk, deadline: float) -> bool:
    """Add the bytes of each row to its holder's, until the deadline (of `thread_seconds`); return whether all are done.

    Afterwards the size of a row is that of its object with all below it.
    """
    # A holder always has a lower row than its parts, so one pass from the end sums whole subtrees.
    sizes, holders, marks, samples = heap_walk.sizes, heap_walk.holders, heap_walk.marks, heap_walk.samples
    while progress.rows_added < len(sizes):
        end = len(sizes) - progress.rows_added
        begin = max(0, end - ROWS_BETWEEN_CLOCKS)
        for row in range(end - 1, begin - 1, -1):
            sample = samples.get(row)
            if sample is not None:
                sizes[row] += sample.estimate_total_()
            holder = holders[row]
            if marks[row] & SAMPLED:  # the holder gets an estimate of all its items when its own row comes
                samples[holder].add_row(row, sizes[row])
            elif holder >= 0:  # a root has none: -1
                sizes[holder] += sizes[row]
        progress.rows_added += end - begin
        if thread_seconds() >= deadline:
            return progress.rows_added == len(sizes)
    return True


def _assign_to_paths_(progress: CensusInProgress, heap_walk: HeapWalk, deadline: float) -> bool:
    """Add the bytes of each row to the record of its path, until the deadline; return whether all rows are done.

    The bytes of a sampled item are multiplied by the scale of its sample and of all samples above it: the scale of its
    row. Afterwards the column of weights has these scales.
    """
    # From the first row on: a holder has a lower row than its parts, and its scale counts for them too.
    sizes, holders, marks = heap_walk.sizes, heap_walk.holders, heap_walk.marks
    scales = heap_walk.weights  # the array is used again, row by row: nobody reads the weights any more
    while progress.rows_assigned < len(sizes):
        end = min(len(sizes), progress.rows_assigned + ROWS_BETWEEN_CLOCKS)
        for row in range(progress.rows_assigned, end):
            holder, mark = holders[row], marks[row]
            scale = 1.0 if holder < 0 else scales[holder]  # below 0: a root
            if mark & SAMPLED:
                scale *= heap_walk.samples[holder].scale
            scales[row] = scale
            if not mark & FOLDED:  # else an object above it, on the same path, includes its bytes
                heap_walk.path_records[row].bytes += sizes[row] * scale
        progress.rows_assigned = end
        if thread_seconds() >= deadline:
            return end == len(sizes)
    return True


def _add_sampling_figures_(heap_walk: HeapWalk) -> None:
    """Add each sample's variance, and its bytes without the largest item, to the record of its container's path."""
    for row, sample in heap_walk.samples.items():
        if not heap_walk.marks[row] & FOLDED:  # else a container above it, on the same path, includes its bytes
            record = heap_walk.path_records[row]
            weight = heap_walk.weights[row]  # by now the scale: number of containers for which this one stands
            record.usual_bytes += sample.usual_bytes * weight
            record.bytes_variance += sample.variance * weight**2


def _list_holdings(records: Iterable[PathRecord]) -> tuple[dict[str, Holding], dict[str, Any]]:
    """Return the holdings and their containers by path, parents first.

    Containers that were freed meanwhile are left out, and so are all below them.
    """
    holdings = dict[str, Holding]()
    containers = dict[str, Any]()
    for record in records:  # in the order of the walk, so that a parent comes before what it holds
        container = strong_object(record.longest_container)
        has_parent = record.parent is None or record.parent.path in holdings
        if container is not None and has_parent:
            holdings[record.path] = _make_holding(record)
            containers[record.path] = container
    return holdings, containers


def _make_holding(record: PathRecord) -> Holding:
    """Return the holding of a path, with the bytes and items of all its containers, and the mean length of one.

    The length of a linked structure is its number of links.
    """
    container_count = max(record.weight, 1.0)  # at least 1, as it divides
    mean_length = record.length / container_count
    # The standard error of the mean: by the variance of the lengths, which rounding may make negative.
    variance = max(0.0, record.squared_length / container_count - mean_length**2)
    length_error = sqrt(variance / max(1, record.opened_count))
    if record.chained_objects:  # a linked structure: its first object, and those below it
        mean_length = 1 + record.chained_objects / container_count
        length_error = inf if record.opened_count > 1 else 0.0  # of several structures only the sum is known
    return Holding(
        path=record.path,
        parent=None if record.parent is None else record.parent.path,
        kind=record.kind,
        length=round(mean_length),
        capacity=record.capacity,
        bytes=round(record.bytes),
        instances=round(container_count),
        step=record.step,
        items=mean_length * container_count,
        usual_bytes=record.usual_bytes,
        bytes_error=sqrt(record.bytes_variance),
        length_error=length_error,
    )


CensusListener = Callable[[Census], None]
"""Callback for a census that is done, with its references."""


class CensusTaker:
    """The censuses of one process, taken one at a time, in slices."""

    def __init__(self, roots: Roots, on_census: CensusListener, current_step: Callable[[], int]) -> None:
        """Prepare without a census.

        Args:
            roots: roots of all censuses.
            on_census: callback for each census that is done.
            current_step: returns the step of the program now, by which holdings are dated: a slice may be taken between
                two readings, and after the last one.
        """
        self.slice_seconds = 0.0
        """CPU seconds that a slice may still take at this step."""
        self.last_cpu_seconds = 0.0
        """CPU seconds of the last census, all slices and the callback together."""
        self.current_cpu_seconds = 0.0
        """CPU seconds so far of the census under way."""
        self.library_roots: dict[str, Any] = {}
        """Holders by path, or weak references to them, which are roots of the coming censuses as well."""
        self.must_open_ids = frozenset[int]()
        """Ids of objects below `library_roots` that the coming censuses open, whether they are sampled or not."""
        self._roots, self._on_census, self._current_step = roots, on_census, current_step
        self._in_progress: CensusInProgress | None = None
        self._complete: Census | None = None
        """The census that is done, until it is reported."""
        self._process_seconds_at_last = self._time_at_last = 0.0
        """CPU seconds of the process, and monotonic time, at the end of the last census."""
        self._starts_with_few_items = False
        """Whether the next census samples few items from the beginning, as the last walk was long."""

    @property
    def is_under_way(self) -> bool:
        """Whether a census waits for its next slice."""
        return self._in_progress is not None and self._complete is None

    @property
    def is_affordable(self) -> bool:
        """Whether a census that only measures may be taken: the last was quick, or a small share of the time since.

        The times are CPU seconds of the process.
        """
        seconds = process_seconds() - self._process_seconds_at_last
        return self.last_cpu_seconds <= MEASURING.quick_census_seconds + MEASURING.maximum_cpu_share * seconds

    @property
    def is_short(self) -> bool:
        """Whether the program may wait for one more census at its end, by the duration of the last one."""
        return self.last_cpu_seconds <= ENDING.last_census_seconds

    @property
    def is_earned_again(self) -> bool:
        """Whether the last census took little of the time since, by the clock.

        One more may begin then after a comparison of two censuses that explained nothing.
        """
        return self.last_cpu_seconds <= MEASURING.maximum_time_share * (monotonic() - self._time_at_last)

    @property
    def roots(self) -> Roots:
        """Roots of the next census."""
        holders = ((path, strong_object(holder)) for path, holder in self.library_roots.items())
        libraries = tuple((path, holder) for path, holder in holders if holder is not None)  # not those that are gone
        return self._roots._replace(libraries=libraries, must_open_ids=self.must_open_ids)

    def advance_census_(self) -> Census | None:
        """Take this step's slice of the census under way, or of a new one; return the census if that completes it.

        A complete census is given to the callback first. None is returned until then, and if this step has no time for
        a slice.
        """
        if self.slice_seconds <= 0:
            return None
        if self._in_progress is None:
            self._in_progress = begin_census(
                self.roots, step=self._current_step(), sample_fewer_items=self._starts_with_few_items
            )
        self.run_slice_(self.slice_seconds)  # sets `_complete` if the census is done by now
        self.slice_seconds = 0.0
        if self._complete is None:
            return None
        census, walk = self._complete, self._in_progress.heap_walk.walk
        # A walk that opens so many objects with few items would reach its limit with many items again.
        minimum_objects = LONG_WALK_OBJECTS * FEWER_SAMPLED_ITEMS // SAMPLED_ITEMS
        self._starts_with_few_items = walk.sampled_items == FEWER_SAMPLED_ITEMS and walk.opened_count > minimum_objects
        self.last_cpu_seconds = self.current_cpu_seconds
        self.discard_()
        self._report_(census)
        return census

    def _report_(self, census: Census) -> None:
        """Give a complete census to the callback, and note what it took and when it ended."""
        start_seconds = thread_seconds()
        with _pause_collector():  # the callback gets references to the containers
            self._on_census(census)
        self.last_cpu_seconds += thread_seconds() - start_seconds
        self._process_seconds_at_last, self._time_at_last = process_seconds(), monotonic()

    def run_slice_(self, seconds: float) -> None:
        """Take a slice of the census under way, if any; once it is done, the next `advance_census_` returns it."""
        if self._in_progress is not None and self._complete is None:
            start_seconds = thread_seconds()
            self._complete = continue_census_(self._in_progress, seconds, self._current_step())
            self.current_cpu_seconds += thread_seconds() - start_seconds

    def discard_(self) -> None:
        """Drop the census under way."""
        self._in_progress = self._complete = None
        self.current_cpu_seconds = 0.0
