"""What the monitor remembers between two looks, and the censuses that it takes in slices."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from flatwater.memory.leaks.census import Census, Counting, Holding, begin_census, count_
from flatwater.memory.leaks.drift import Slope
from flatwater.memory.leaks.finding import Finding, Made, fingerprint
from flatwater.memory.leaks.garbage import Search
from flatwater.memory.leaks.origin import Tracer
from flatwater.memory.leaks.owners import ITEMISED, Owner, added_since, held_now
from flatwater.memory.leaks.raw import full_name
from flatwater.memory.leaks.roots import Roots
from flatwater.memory.leaks.verdict import CYCLIC, Growth, judge_garbage, judge_owner

STILL = 6
"""Readings for which allocations stay traced while the line is not known: what grows in stairs rests between them, and
what is added soon after tracing began was made before."""
GARBAGE = 0.5
"""Part of the growth that cyclic garbage must be."""


@dataclass
class Dig:
    """A census that waits for the next one."""

    demanded: bool
    before: Census | None = None
    """None until it is taken."""
    since: int = 0
    """The step at which it began."""
    waited: int = 0
    """Readings at which no drift was proven yet."""
    looks: int = 0
    traced: int = 0
    """Steps for which allocations were traced."""
    tensors: bool = True
    """Whether the owner's contents are tensors."""
    lines: dict[str, Made] = field(default_factory=dict)
    """By owner: the line that was found while allocations were traced."""
    proven: bool = False
    """Whether the growth was drifting at one of the looks."""
    length: int = 0
    traced_owner: tuple[Any, Holding] | None = None
    """The container whose line is looked for, which needs no census, and what it was when tracing began."""
    still: int = 0
    """Traced readings in a row at which its line was not known."""
    retold: list[Finding] | None = None
    """The findings of the last look with the line, once it is known."""
    garbage: tuple[int, int] | None = None
    """Step and bytes when cyclic garbage was first looked for."""
    search: Search | None = None
    """The look for cyclic garbage that goes on in a fork, ..."""
    searched: int = 0
    """... the step at which it began, ..."""
    seen: list[Finding] = field(default_factory=list)
    """... and what the look at containers had found, which waits for it."""
    clean: bool = False
    """Whether there was too little garbage for the growth."""
    dropped: bool = False
    """Whether what was made when tracing began may be garbage by now."""
    found: list[Finding] = field(default_factory=list)
    """Of the last look, waiting for a line or for the rest."""
    grew: bool = False
    """Whether the length of the first owner was another one at the last look."""


def remember_(dig: Dig, first: Owner, holding: Holding) -> None:
    """Note what the foremost owner was at this look. Its container is held on to until the next one."""
    dig.grew, dig.length = first.length != dig.length, first.length
    dig.tensors = any(full_name(type(item))[0].startswith("torch") for item in first.newest)
    if first.kind in ITEMISED and not dig.demanded:
        dig.traced_owner = first.container, holding


def line_of_(dig: Dig, tracer: Tracer | None, owner: str, newest: Sequence[Any]) -> Made | None:
    """The line that made what is new in an owner: of now, or of an earlier look."""
    made = None if tracer is None else tracer.where(newest)
    if made is not None:
        dig.lines[owner] = made
    return dig.lines.get(owner)


def judged_(dig: Dig, tracer: Tracer | None, owners: Sequence[Owner], **told: Any) -> list[Finding]:  # noqa: ANN401
    """Findings of containers that grew, each with its line if that is known; `told` as of `judge_owner`."""
    return [
        judge_owner(owner, line_of_(dig, tracer, owner.path, owner.newest), steps=owner.steps, **told)
        for owner in owners
    ]


def recounted(found: Finding, census: Census) -> Finding:
    """The finding with what its owner holds at this census: it may have grown by much since it was found."""
    now = held_now(census, found.owner) if found.holders else None
    if now is None or now[1].count <= found.count:
        return found
    holders, content = now
    bound = found.what.rpartition(", ")[1:] if found.verdict == "cache" else ()
    return replace(found, holders=holders, count=content.count, what="".join((content.what, *bound)))


def waits_(dig: Dig, tracer: Tracer | None) -> bool:
    """Whether allocations are to stay traced for the line of a container that was found to grow.

    No census is needed for it: `retold` has the findings as soon as the line is known.
    """
    if dig.traced_owner is None or not dig.found:
        return False
    dig.retold = _again_(dig, tracer, *dig.traced_owner)
    dig.still = 0 if dig.retold is not None else dig.still + 1
    waits = 0 < dig.still <= STILL
    if not waits:
        dig.still, dig.traced_owner = 0, None
    return waits


def _again_(dig: Dig, tracer: Tracer | None, container: Any, holding: Holding) -> list[Finding] | None:  # noqa: ANN401
    """The findings of the last look, with the line of what was added to the first one's container since."""
    added = added_since(container, holding)
    if added is None:
        return None
    dig.length, newest = added
    first, *others = dig.found
    made = line_of_(dig, tracer, first.owner, newest)
    if made is None:
        return None
    return [replace(first, made_at=made, fingerprint=fingerprint(first.verdict, first.owner, made)), *others]


def wants_garbage(dig: Dig) -> bool:
    """Whether cyclic garbage was found to grow, and its line is looked for, which needs no census."""
    return bool(dig.found) and dig.found[0].owner == CYCLIC


def held_(dig: Dig) -> bool:
    """Whether what is made while allocations are traced is still held: it may be garbage one reading later."""
    held = wants_garbage(dig) and not dig.dropped
    dig.dropped = held
    return held


def search_(dig: Dig, roots: Roots, tracer: Tracer | None, step: int) -> bool:
    """Begin to look for cyclic garbage, unless there was too little of it. Whether a search goes on."""
    if dig.search is None and not dig.clean:
        where = tracer.where if tracer is not None and tracer.running else None
        with suppress(OSError):  # no memory for a fork
            dig.search, dig.searched = Search(roots, where), step
    return dig.search is not None


def leave_(dig: Dig | None) -> None:
    """Stop the search that goes on."""
    if dig is not None and dig.search is not None:
        dig.search.stop()
        dig.search = None


def garbage_(dig: Dig, slope: Slope, growth: Growth) -> list[Finding]:
    """What the search that has ended says of the growth. Some garbage always waits: it must be much, and it must grow.

    Args:
        dig: of the search.
        slope: of the memory that no container explains.
        growth: of the process.
    """
    search, before = dig.search, dig.garbage
    garbage = None if search is None else search.garbage()
    dig.search = None
    if garbage is None or garbage.bytes < GARBAGE * slope.per_step * slope.span:
        dig.clean = True
        return []
    dig.garbage = before or (dig.searched, garbage.bytes)
    if before is None or garbage.bytes - before[1] < GARBAGE * slope.per_step * (dig.searched - before[0]):
        return []
    dig.grew, dig.tensors = True, False
    if garbage.made_at is not None:
        dig.lines[CYCLIC] = garbage.made_at
    return [judge_garbage(replace(garbage, made_at=dig.lines.get(CYCLIC)), slope.per_step, slope, growth)]


Counted = Callable[[int, Census], None]
"""Is told of each census: the step at which it began, and what it counted, with references."""


class Censuses:
    """Takes the censuses of one process, one at a time, in slices."""

    def __init__(self, roots: Roots, counted: Counted) -> None:
        """Take none yet.

        Args:
            roots: where they begin.
            counted: is told of each.
        """
        self.seconds = 0.0
        """What a slice may still take at this step."""
        self.took = 0.0
        """Seconds of the last one, all slices together."""
        self._roots, self._counted = roots, counted
        self._counting: Counting | None = None
        self._counted_whole: Census | None = None
        self._since = self._step = 0

    @property
    def under_way(self) -> bool:
        """Whether one waits for its next slice."""
        return self._counting is not None and self._counted_whole is None

    def take(self, step: int) -> tuple[int, Census] | None:
        """Go on with the one that is under way, or begin one.

        Returns:
            The step at which it began and the census, if it is done; a step has one slice.
        """
        if self.seconds <= 0:
            return None
        if self._counting is None:
            self._counting, self._since = begin_census(self._roots), step
        self._step = step
        self.go_on(self.seconds)
        self.seconds = 0.0
        if self._counted_whole is None:
            return None
        census = self._counted_whole
        self.drop()
        self.took = census.seconds
        self._counted(self._since, census)
        return self._since, census

    def go_on(self, seconds: float) -> None:
        """A slice of the one that is under way, between two steps; `take` hands it over at the next one."""
        if self._counting is not None and self._counted_whole is None:
            self._counted_whole = count_(self._counting, seconds, self._step)

    def drop(self) -> None:
        """Leave the one that is under way."""
        self._counting = self._counted_whole = None
