"""Evidence, the facts of one cause of growth, and the functions that make it from containers, garbage and readings.

Each fact is written once, by the code that found it out; `judge` weighs the facts and makes the finding. An owner is
the container that grows, by its path; a drift is a lasting rise, as a slope in bytes per step. All functions here are
pure.
"""

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from flatwater_watch.diagnose.container_calls import (
    cache_advice,
    item_advice,
    leak_advice,
    queue_advice,
    resource_advice,
)
from flatwater_watch.diagnose.finding import AllocationSite
from flatwater_watch.diagnose.verdicts import VERDICTS, VerdictName
from flatwater_watch.heap.raw import is_class
from flatwater_watch.series.readings import Growth
from flatwater_watch.series.slope import Slope
from flatwater_watch.units import format_bytes

if TYPE_CHECKING:
    from flatwater_watch.diagnose.garbage import Garbage
    from flatwater_watch.diagnose.owners import Owner
    from flatwater_watch.meters.collector import GcSawtooth
    from flatwater_watch.series.slowdown import Slowdown

TOO_LARGE_ADVICE = (
    "Lower its capacity, or store each thing once. It does not fit: the limit is reached before it is full."
)
NATIVE_LINE_ADVICE = (
    "Close what this line opens, by `close()` or a `with` block, free what it returns, take back what it gives to C "
    "code (a callback), or bound a cache of it."
)
NATIVE_LINE_SENTENCE = (
    "What is allocated at this line is not freed, and no object that can be reached holds it: C code does. "
    "`memray run --native` names the C function."
)
NATIVE_OBJECT_SENTENCE = (
    "What is allocated at this line is not freed. Of the objects that it uses, this one alone is of C code and stays; "
    "how much it keeps, Python cannot measure."
)
NOT_ASKED_ADVICE = (
    "Run it longer, or give what a library works with a name of your own (`model = Model(...)`). Your globals, local "
    "variables, tasks and threads do not explain it, and libraries were not asked. `memray run --native` names the C "
    "function, if it is C code."
)
GRAPH_ADVICE = "Keep the number, not the tensor: `loss.item()`, or `loss.detach()` without its autograd graph."
CARRIED_ADVICE = (
    "Cut its graph between two steps: `{name} = {name}.detach()`. It has an autograd graph of all steps so far."
)
BASE_ADVICE = (
    "Keep a copy of the part, `part.clone()` of a tensor or `part.copy()` of an array: it lets go of the whole."
)
CLASS_ADVICE = "Make each class once and keep it: `@functools.cache` on `{function}`, which makes one in each call."
"""Advice on classes that a function makes again and again; each is registered or remembered where it is made."""
_ADVICE_BY_KIND = {
    "figures": "Call `plt.close(figure)` when it is saved. pyplot keeps each figure until it is closed.",
    "hooks": "Keep the handle that registering returns and call `handle.remove()`, or register the hook once.",
}
WAITING_ADVICE = (
    "Give what the calls wait for a timeout, `asyncio.timeout(10)` or `timeout=10`, or let fewer begin: "
    "`asyncio.Semaphore(10)`. They wait and do not end."
)
COLLECTOR_OFF_ADVICE = "Leave the collector on, or call `gc.collect()` once in a while; "
RARE_COLLECTION_ADVICE = "Call `gc.collect()` once in a while, as the collector seldom looks at what has lived long; "
FROZEN_ADVICE = "Call `gc.freeze()` once, right after `gc.collect()`; "
MAXIMUM_CYCLE_HOPS = 3
"""Maximum hops of a cycle that the advice names."""


UNOWNED_KINDS: dict[VerdictName, tuple[str, str]] = {
    "retention": ("the C allocator", "bytes that are freed and kept"),
    "mapped": ("mapped files", "pages of files and shared memory"),
    "native": ("memory outside of Python", "bytes that no object of your program explains"),
}
"""Owner and content of growth that no Python object holds."""
NATIVE_OWNER = UNOWNED_KINDS["native"][0]
GARBAGE_OWNER = "cyclic garbage"
"""Owner of objects that wait for a collection."""


class MeasuredGrowth(NamedTuple):
    """Growth of a cause over all readings, which is known better than in the stretch in which the cause was found."""

    rate: Slope
    """Bytes per step, with bounds."""
    share: float
    """Share of the growth of the whole process, 0 to 1."""


class CurrentContents(NamedTuple):
    """Contents of an owner at a census after the one that found it."""

    holders: tuple[str, ...]
    objects: int
    """Number of objects of the main content."""
    what: str
    """The main content: `120 × float32[64, 504]`."""


class LineUse(NamedTuple):
    """The objects of a line at which memory of C rises, as far as they are known."""

    advice: str = ""
    """Advice with their calls; empty if none is known."""
    owner: str = ""
    """Path of the only object of C of the line that stays, so that it may keep the memory; empty if none is sure."""
    class_name: str = ""
    """Name of the class of that object; empty without it."""


UNKNOWN_USE = LineUse()


class SlowSegment(NamedTuple):
    """The segment of a program that has most of a slowdown."""

    name: str
    """The boundaries between which the segment lies: `from step to update`."""
    sentence: str
    """A clause on its part of the slowdown, which follows the words on the whole."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Evidence:
    """The known facts of one cause of growth, from which `judge` makes a finding."""

    verdict: VerdictName
    owner: str
    drift: Slope
    """Bytes per step in the stretch in which the cause was found, with bounds."""
    share: float = 1.0
    """Share of the growth of the whole process in that stretch, 0 to 1."""
    what: str = ""
    """The main content: `120 × float32[64, 504]`."""
    bound: str = ""
    """Words on the bound of a cache, which follow the words on its content (`what`)."""
    holders: tuple[str, ...] = ()
    count: int = 0
    """Number of objects of the main content."""
    capacity: int | None = None
    """Number of items at which a container that is being filled is full."""
    plateau_bytes: int | None = None
    plateau_step: int | None = None
    advice: str | None = None
    """Advice that replaces the verdict's; None keeps the verdict's."""
    redundancy: str | None = None
    outside: bool = False
    """Whether the bytes lie outside of Python, behind the owner's items."""
    holds_classes: bool = False
    """Whether the owner's items are classes, and no rule has advice on it."""
    parts: tuple[str, ...] = ()
    """Owners of the causes that were merged into this one."""
    made_at: AllocationSite | None = None
    """The line that made the newest contents, from a trace."""
    native_line: AllocationSite | None = None
    """The line that ran while memory rose that no object holds."""
    native_use: LineUse = UNKNOWN_USE
    """What is known of the objects of that line."""
    contents: CurrentContents | None = None
    """Contents at the newest census; None if they are no more than `holders`, `count` and `what` say."""
    measured: MeasuredGrowth | None = None
    """Growth over all readings; None if it is not known."""
    gc_sawtooth: "GcSawtooth | None" = None
    """For cyclic garbage: the bytes that full collections free."""
    slow_segment: SlowSegment | None = None
    """For a slowdown: the segment that has most of it."""

    @property
    def rate(self) -> Slope:
        """Bytes per step: over all readings if they are measured, else in the stretch in which the cause was found."""
        return self.drift if self.measured is None else self.measured.rate

    @property
    def known_share(self) -> float:
        """Share of the growth of the whole process, 0 to 1, over the same readings as `rate`."""
        return self.share if self.measured is None else self.measured.share

    @property
    def newest_contents(self) -> CurrentContents:
        """Holders and contents at the newest census."""
        return self.contents or CurrentContents(self.holders, self.count, self.what)

    @property
    def native_owner(self) -> str:
        """Path of the object of C that may keep memory that no Python object has; empty if none is known."""
        is_unowned = self.owner == NATIVE_OWNER
        return self.native_use.owner if is_unowned and self.native_line is not None else ""

    @property
    def has_proof(self) -> bool:
        """Whether the cause is more than a remainder: it has a line, or its bytes were measured in objects or pages."""
        has_line = self.made_at is not None or self.native_line is not None
        return has_line or not self.wants_native_line

    @property
    def wants_native_line(self) -> bool:
        """Whether no Python object has the bytes, so that the line that runs while memory rises is to be found."""
        return self.outside or self.verdict == "native"


def owner_evidence(
    owner: "Owner", *, steps: int, growth: Growth, drift: Slope, made_at: AllocationSite | None = None
) -> Evidence:
    """Return the evidence on a container that grew.

    Args:
        owner: the container, as two censuses (snapshots of all containers) saw it.
        steps: steps between the two censuses.
        growth: growth of the process.
        drift: slope of the memory in which the container lies. It gives the width of the interval: the bounds of the
            container's rate are as far away, in proportion, as those of this slope.
        made_at: the line that made its newest contents; None if it is not known.
    """
    rate, holding, newest_items = owner.bytes_grown / steps, owner.holding, owner.contents.leaves
    verdict = _container_verdict(owner)
    plateau_bytes = plateau_step = None
    # The plateau is where a bounded container is full. One that leaks is full: its items grow, without a known end.
    if holding.capacity is not None and verdict != "leak":
        plateau_bytes = owner.item_bytes * holding.capacity
        items_per_step = (holding.length - owner.length_before) / steps
        if items_per_step > 0:  # else the step at which it is full is not known
            plateau_step = growth.step + ceil((holding.capacity - holding.length) / items_per_step)
    bound_text = ""
    if verdict == "cache":
        bound_text = ", unbounded" if holding.capacity is None else f", maxsize {holding.capacity}"
    return Evidence(
        verdict=verdict,
        owner=owner.path,
        drift=_scaled_interval(rate, drift),
        share=growth_share(rate, growth),
        what=owner.contents.what,
        bound=bound_text,
        holders=owner.holders,
        made_at=made_at,
        count=owner.contents.count,
        capacity=holding.capacity if verdict == "filling" else None,
        plateau_bytes=plateau_bytes,
        plateau_step=plateau_step,
        advice=_owner_advice(verdict, owner),
        redundancy=owner.redundancy,
        outside=owner.outside_python,
        holds_classes=bool(newest_items) and all(map(is_class, newest_items)) and not owner.rule_advice,
    )


def _owner_advice(verdict: VerdictName, owner: "Owner") -> str:
    """Return the advice for a container, by the most particular of its facts that has an advice.

    In this order: calls that wait, autograd graphs, a rule for its library, views, resources of the system, calls of
    its library, its kind, its verdict.
    """
    if owner.calls > 1 and verdict == "leak":  # a variable of several calls that wait at the same time
        return WAITING_ADVICE
    kind, contents = owner.holding.kind, owner.contents
    if contents.has_graph:
        # A graph that is itself the owner hangs on a variable, which carries it from step to step.
        name = owner.code_name.text if kind == "graph" else ""
        return CARRIED_ADVICE.format(name=name) if name else GRAPH_ADVICE
    needs_emptying = verdict != "filling"  # a container that is filling stops by itself
    if owner.rule_advice and needs_emptying:
        return owner.rule_advice
    if contents.has_base:  # the items are views of larger arrays
        return BASE_ADVICE
    if contents.resource and verdict in {"leak", "mapped"}:
        return resource_advice(contents.resource, owner.resource_item, kind, owner.container, owner.code_name)
    table_advice = owner.table.advice if owner.table is not None and needs_emptying else None
    return table_advice or _kind_advice(verdict, owner) or VERDICTS[verdict].advice


def _kind_advice(verdict: VerdictName, owner: "Owner") -> str | None:
    """Return the advice for a container of the user's own, by its kind; None if none is known."""
    if verdict == "cache":
        return cache_advice(owner.container, owner.code_name)
    if verdict == "backlog":
        return queue_advice(owner.container)
    if verdict != "leak":  # a filling or a mapped file: the advice of its verdict says enough
        return None
    if owner.in_more_items:
        return item_advice(owner.code_name)
    kind = owner.holding.kind
    return _ADVICE_BY_KIND.get(kind) or leak_advice(kind, owner.container, owner.code_name)


def _container_verdict(owner: "Owner") -> VerdictName:
    """Return the verdict on a container that grew.

    It is `backlog` for a queue, `filling` for a bounded container that was not full at the earlier census, `mapped` if
    the items are pages of files, `cache` for a cache, and else `leak`.
    """
    kind, capacity = owner.holding.kind, owner.holding.capacity
    if kind == "queue":
        return "backlog"
    # A full container takes no further items, so its items themselves grow.
    if capacity is not None and owner.length_before < capacity:
        return "filling"
    if owner.contents.resource == "mapped file":
        return "mapped"
    return "cache" if kind == "cache" else "leak"


def leaf_evidence(path: str, held_bytes: int, planned_bytes: int | None, *, drift: Slope, growth: Growth) -> Evidence:
    """Return the evidence on a leaf of the state that the program declares: it is being filled, or outgrows its plan.

    Args:
        path: name of the leaf, such as `replay.rows`.
        held_bytes: resident bytes of the leaf now.
        planned_bytes: its bytes when it is full; None if the program gave no plan.
        drift: slope of its bytes.
        growth: growth of the process.
    """
    share = growth_share(drift.per_step, growth)
    if planned_bytes is None or held_bytes >= planned_bytes:
        content = format_bytes(held_bytes)
        content += ", of which no plan knows" if planned_bytes is None else f" of {format_bytes(planned_bytes)} planned"
        return Evidence(verdict="leak", owner=path, drift=drift, share=share, what=content)
    return Evidence(
        verdict="filling",
        owner=path,
        drift=drift,
        share=share,
        what=f"{format_bytes(held_bytes)} of {format_bytes(planned_bytes)} planned, touched for the first time",
        plateau_bytes=planned_bytes,
        plateau_step=growth.step + ceil((planned_bytes - held_bytes) / drift.per_step),
    )


def unowned_evidence(verdict: VerdictName, drift: Slope, growth: Growth) -> Evidence:
    """Return the evidence on growth that no Python object holds.

    Args:
        verdict: `retention` (freed bytes that the allocator keeps), `mapped` (pages of files) or `native` (the rest).
        drift: slope of these bytes.
        growth: growth of the process.
    """
    owner, content = UNOWNED_KINDS[verdict]
    share = growth_share(drift.per_step, growth)
    return Evidence(verdict=verdict, owner=owner, drift=drift, share=share, what=content)


def garbage_evidence(garbage: "Garbage", rate: float, drift: Slope, share: float) -> Evidence:
    """Return the evidence on cyclic garbage: objects in reference cycles that wait for the garbage collector.

    Args:
        garbage: objects that a collection would free.
        rate: bytes of garbage that come per step.
        drift: slope of the memory that no container explains.
        share: share of the garbage in the growth of the process, 0 to 1.
    """
    size = format_bytes(garbage.bytes)
    ending = f"a collection would free {size}"
    collect_advice = RARE_COLLECTION_ADVICE if garbage.collector_is_on else COLLECTOR_OFF_ADVICE
    if garbage.is_frozen:
        ending, collect_advice = f"`gc.freeze` hides {size} from the collector, which never frees them", FROZEN_ADVICE
    return Evidence(
        verdict="leak",
        owner=GARBAGE_OWNER,
        drift=_scaled_interval(rate, drift),
        share=share,
        what=f"{garbage.what}, in cycles that nobody reaches: {ending}",
        holders=garbage.cycle,
        count=garbage.objects,
        advice=collect_advice + _break_cycle_advice(garbage.cycle),
    )


def _break_cycle_advice(cycle: tuple[str, ...]) -> str:
    """Return the end of the advice on garbage, such as "let `Trainer.model` hold a `weakref.ref(...)`".

    Args:
        cycle: class and attribute of each hop of the cycle; not named if there are none, or too many.
    """
    names = " or ".join(f"`{hop}`" for hop in cycle)
    clause = f"{names} hold" if 0 < len(cycle) <= MAXIMUM_CYCLE_HOPS else "the way back be"
    return f"better, break the cycle: let {clause} a `weakref.ref(...)`."


def phase_evidence(phase: str, slowdown: "Slowdown") -> Evidence:
    """Return the evidence on a phase of the program whose steps take more and more CPU time."""
    no_growth = Slope(per_step=0.0, low=0.0, high=0.0)  # a slowdown has no bytes
    # `slowdown` has CPU seconds per step; the sentence has steps per CPU second.
    steps_before, steps_now = 1 / slowdown.before, 1 / slowdown.now
    fewer_share = 1 - slowdown.before / slowdown.now
    comparison = f"{fewer_share:.0%} fewer than before ({_steps_per_second_text(steps_before)})"
    sentence = f"{phase} does {_steps_per_second_text(steps_now)} steps per CPU second, {comparison}"
    return Evidence(verdict="slowdown", owner=phase, drift=no_growth, what=sentence, share=0.0)


def _steps_per_second_text(steps: float) -> str:
    """Return a number of steps per CPU second as text: "1,234", or with three digits "12.3"."""
    return f"{steps:,.0f}" if steps >= 100 else f"{steps:.3g}"  # noqa: PLR2004  (three digits)


def growth_share(rate: float, growth: Growth) -> float:
    """Return the share of a rate, in bytes per step, in the growth of the process: at most 1, and 1 without growth."""
    # At most 1, as the rates of owners are estimates, and may exceed the whole growth a little.
    return min(1.0, rate / growth.whole.per_step) if growth.whole.per_step > 0 else 1.0


def _scaled_interval(rate: float, drift: Slope) -> Slope:
    """Return a slope of `rate` bytes per step, whose bounds are as far away, in proportion, as those of `drift`.

    For a drift of 10 between 8 and 13, a rate of 5 gets the bounds 4 and 6.5. If `drift` does not rise, both bounds are
    the rate itself.
    """
    if drift.per_step <= 0:
        return Slope(per_step=rate, low=rate, high=rate)
    # By at most and at least 1, so that the rate lies between its bounds.
    low_factor, high_factor = min(1.0, drift.low / drift.per_step), max(1.0, drift.high / drift.per_step)
    return Slope(per_step=rate, low=rate * low_factor, high=rate * high_factor)
