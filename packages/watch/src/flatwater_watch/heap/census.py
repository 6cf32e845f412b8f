"""The census: the containers of the user's program by path, and the bytes below each.

The heap is walked in breadth from the roots, so that an object belongs to the shallowest container that reaches it. Big
containers are sized from a sample. Instances on like paths ("train.AGENTS[*].history") are one holding.

A census of a million objects takes a second or more. So it can be taken in slices, while the program goes on:
`begin_census` and `continue_census_`. `walk.py` describes the objects that it keeps alive meanwhile.
"""

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Any, NamedTuple

from flatwater_watch.heap.roots import Roots
from flatwater_watch.heap.walk import (
    DRAWN,
    FOLDED,
    HeapWalk,
    PathRecord,
    begin_walk,
    continue_walk_,
    release_objects_,
    strong_object,
)
from flatwater_watch.meters.system_calls import monotonic, thread_seconds

DRAW, FEW = 24, 6
"""Items of a big container that are sampled; the second number if the first makes the walk long, as figures do."""

FIRST_LOOK = 20_000
"""Objects after which the walk begins again with fewer items of each container."""

BETWEEN_CLOCKS = 4000
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


class Census(NamedTuple):
    """The holdings of one moment, or of the slices in which it was taken."""

    holdings: Mapping[str, Holding]
    visited: int
    """Number of objects that were opened."""
    truncated: bool
    """Whether the walk stopped at its limit: bytes are too few, and holdings may be missing."""
    seconds: float
    """Seconds for which the program stood still, all slices together."""
    live: Mapping[str, Any]
    """The container on each path, or the longest of several. Strong references: `without_objects` drops them."""
    unread: Mapping[str, int] = MappingProxyType({})
    """Number of objects that could not be read, by class and exception; objects below them are missing."""
    draw: int = DRAW
    """Items of a big container that were sampled: estimates of items are compared only between equal samples."""

    def without_objects(self) -> "Census":
        """The census without references to objects of the program."""
        return self._replace(live={})


@dataclass(eq=False, repr=False, slots=True)
class CensusInProgress:
    """A census that is under way."""

    roots: Roots
    most: int
    """Maximum number of objects to visit."""
    walking: HeapWalk
    seconds: float = 0.0
    """Seconds of wall time that its slices have taken."""
    explored: bool = False
    """Whether the walk has ended, so that its bytes can be summed."""
    added: int = 0
    """Rows whose bytes were added to their holders', the last rows first."""
    handed: int = 0
    """Rows whose bytes were added to their paths', the first rows first."""


def take_census(roots: Roots, *, most: int = 200_000) -> Census:
    """Walk the heap from the roots, at once.

    Args:
        roots: roots of the walk.
        most: maximum number of objects to visit, without single numbers and short texts.

    Returns:
        The holdings, with references to the containers.
    """
    census = continue_census_(begin_census(roots, most=most), inf)
    assert census is not None  # noqa: S101  (its time is not bounded)
    return census


def begin_census(roots: Roots, *, most: int = 200_000, few: bool = False) -> CensusInProgress:
    """Begin a census from the roots as they are now, without opening an object.

    Args:
        roots: roots of the walk.
        most: maximum number of objects to visit, without single numbers and short texts.
        few: whether few items are sampled from the beginning, as the walk is known to be long.
    """
    with _pause_collector():
        walking = (
            begin_walk(roots, draw=FEW, most=most) if few else begin_walk(roots, draw=DRAW, most=min(FIRST_LOOK, most))
        )
        return CensusInProgress(roots, most, walking)


def continue_census_(counting: CensusInProgress, seconds: float, step: int = 0) -> Census | None:
    """Go on with a census for a while; return it when it is done, and None until then.

    Args:
        counting: census from `begin_census`.
        seconds: maximum CPU seconds of this thread, for which the program stands still; a single container, or graph,
            is not interrupted.
        step: step of the program now.
    """
    start_seconds = monotonic()
    with _pause_collector():
        counting.walking.step = step
        census = _go_on_(counting, thread_seconds() + seconds)
        if census is None:
            release_objects_(counting.walking)
    counting.seconds += monotonic() - start_seconds
    return None if census is None else census._replace(seconds=counting.seconds)


_stopped: list[bool] = []
"""Stack of the slices under way: whether each has to turn the collector on again."""


@contextmanager
def _pause_collector() -> Iterator[None]:
    """Pause the collector: allocations of the walk must not start a collection, which would free objects to count.

    A fork that another thread makes meanwhile inherits the pause: `restore_collector` ends it there.
    """
    _stopped.append(gc.isenabled())
    gc.disable()
    try:
        yield
    finally:
        if _stopped and _stopped.pop():  # empty in a fork, where `restore_collector` was called
            gc.enable()


def restore_collector() -> None:
    """Turn the collector on again, in a fork made while another thread took a census, which never ends there."""
    while _stopped:
        if _stopped.pop():
            gc.enable()


def _go_on_(counting: CensusInProgress, until: float) -> Census | None:
    """Go on with a census until a time of `thread_seconds`; return it if it is complete, else None."""
    if not counting.explored:
        if not continue_walk_(counting.walking, until):
            return None
        if counting.walking.truncated and counting.walking.walk.draw == DRAW:
            # Begun again with few items, once: the sample decides how far a walk gets within its limit.
            _break_cycles(counting.walking)
            step = counting.walking.step
            counting.walking = begin_walk(counting.roots, draw=FEW, most=counting.most)
            counting.walking.step = step
            return _go_on_(counting, until)
        counting.explored = True
    walking = counting.walking
    if not _add_up_(counting, walking, until) or not _hand_down_(counting, walking, until):
        return None
    holdings, live = _holdings(walking.records.values())
    _break_cycles(walking)
    walk = walking.walk
    return Census(holdings, walk.visited, walking.truncated, 0.0, live, dict(walk.unread), walk.draw)


def _break_cycles(walking: HeapWalk) -> None:
    """Break the cycles between records, so that they are freed at once and without the collector."""
    for record in walking.records.values():
        record.children.clear()


def _add_up_(counting: CensusInProgress, walking: HeapWalk, until: float) -> bool:
    """Add the bytes of each row to its holder, from the leaves to the roots; return whether all rows are done."""
    # A holder always has a lower row than its parts, so one pass from the end sums whole subtrees.
    sizes, holders, marks, samples = walking.sizes, walking.holders, walking.marks, walking.samples
    while counting.added < len(sizes):
        end = len(sizes) - counting.added
        begin = max(0, end - BETWEEN_CLOCKS)
        for row in range(end - 1, begin - 1, -1):
            sample = samples.get(row)
            if sample is not None:
                sizes[row] += sample.estimate_total()
            holder = holders[row]
            if marks[row] & DRAWN:
                samples[holder].add(sizes[row])
            elif holder >= 0:
                sizes[holder] += sizes[row]
        counting.added += end - begin
        if thread_seconds() >= until:
            return counting.added == len(sizes)
    return True


def _hand_down_(counting: CensusInProgress, walking: HeapWalk, until: float) -> bool:
    """Hand the factors of samples down, and add the bytes of each row to its path; return whether all are done."""
    sizes, holders, marks, scales = walking.sizes, walking.holders, walking.marks, walking.weights
    while counting.handed < len(sizes):
        end = min(len(sizes), counting.handed + BETWEEN_CLOCKS)
        for row in range(counting.handed, end):
            holder, mark = holders[row], marks[row]
            scale = 1.0 if holder < 0 else scales[holder]
            if mark & DRAWN:
                scale *= walking.samples[holder].factor
            scales[row] = scale  # in place of the weights, which nobody reads any more
            if not mark & FOLDED:
                walking.places[row].bytes += sizes[row] * scale
        counting.handed = end
        if thread_seconds() >= until:
            return end == len(sizes)
    return True


def _holdings(records: Iterable[PathRecord]) -> tuple[dict[str, Holding], dict[str, Any]]:
    """Holdings by path, parents first, and the container on each, without containers that went away meanwhile."""
    holdings, live = dict[str, Holding](), dict[str, Any]()
    for record in records:
        container = strong_object(record.longest)
        if container is not None and (record.parent is None or record.parent.path in holdings):
            holdings[record.path], live[record.path] = _holding(record), container
    return holdings, live


def _holding(record: PathRecord) -> Holding:
    """What a path holds: bytes and items of all its containers, mean length of one; a chain is as long as its links."""
    weight = max(record.weight, 1.0)
    length = 1 + record.chain / weight if record.chain else record.length / weight
    parent = None if record.parent is None else record.parent.path
    size, instances = round(record.bytes), round(weight)
    kind, capacity, items = record.kind, record.capacity, length * weight
    return Holding(record.path, parent, kind, round(length), capacity, size, instances, record.step, items)


CensusListener = Callable[[int, Census], None]
"""Callback for a census that is done: the step at which it began, and the census with its references."""


class CensusTaker:
    """Takes the censuses of one process, one at a time, in slices."""

    def __init__(self, roots: Roots, on_census: CensusListener) -> None:
        """Prepare without a census.

        Args:
            roots: roots of all censuses.
            on_census: callback for each census that is done.
        """
        self.seconds = 0.0
        """CPU seconds that a slice may still take at this step."""
        self.took = 0.0
        """CPU seconds of the last census, all slices together."""
        self.spent = 0.0
        """CPU seconds so far of the census under way."""
        self.libraries: dict[str, Any] = {}
        """Globals of libraries by path, which are roots of the coming censuses as well."""
        self._roots, self._on_census = roots, on_census
        self._counting: CensusInProgress | None = None
        self._complete: Census | None = None
        self._since = self._step = 0
        self._few = False
        """Whether the last census had to begin again with few items: the next one begins with them at once."""

    @property
    def is_under_way(self) -> bool:
        """Whether a census waits for its next slice."""
        return self._counting is not None and self._complete is None

    @property
    def roots(self) -> Roots:
        """Roots of the next census."""
        return self._roots._replace(libraries=tuple(self.libraries.items()))

    def advance(self, step: int) -> tuple[int, Census] | None:
        """Take a slice of the census under way, or begin one; a step has one slice.

        Returns:
            The step at which the census began and the census, if it is done.
        """
        if self.seconds <= 0:
            return None
        if self._counting is None:
            self._counting, self._since = begin_census(self.roots, few=self._few), step
        self._step = step
        self.run_slice(self.seconds)
        self.seconds = 0.0
        if self._complete is None:
            return None
        census, walk = self._complete, self._counting.walking.walk
        self._few = walk.draw == FEW and walk.visited > FIRST_LOOK * FEW // DRAW
        self.took = self.spent
        self.discard()
        self._on_census(self._since, census)
        return self._since, census

    def run_slice(self, seconds: float) -> None:
        """Take a slice of the census under way, between two steps; `advance` hands it over at the next step."""
        if self._counting is not None and self._complete is None:
            start_seconds = thread_seconds()
            self._complete = continue_census_(self._counting, seconds, self._step)
            self.spent += thread_seconds() - start_seconds

    def discard(self) -> None:
        """Drop the census under way."""
        self._counting = self._complete = None
        self.spent = 0.0
