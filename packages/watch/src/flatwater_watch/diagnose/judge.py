"""Findings from owners and numbers: the verdict (leak, filling, retention), the share, and the step of the limit.

All functions here are pure.
"""

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from math import ceil
from typing import TYPE_CHECKING

from flatwater_watch.diagnose.finding import AllocationSite, Finding, Verdict, sort_findings
from flatwater_watch.paths import file_name
from flatwater_watch.series.readings import Growth
from flatwater_watch.series.slope import Slope
from flatwater_watch.thresholds import SHIPPED
from flatwater_watch.units import format_bytes

if TYPE_CHECKING:
    from flatwater_watch.diagnose.garbage import Garbage
    from flatwater_watch.diagnose.owners import Owner
    from flatwater_watch.series.slowdown import Slowdown

OWNING = SHIPPED.owning

_ADVICE_BY_VERDICT: dict[Verdict, str] = {
    "leak": "Drop what is not needed any more, or bound it: collections.deque(maxlen=...) keeps the newest.",
    "filling": "Nothing is lost: it stops growing when it is full. Lower its capacity if that does not fit.",
    "retention": "Blocks were freed, and the allocator keeps them between others: allocate buffers once and write into "
    "them, give varying temporaries one size, or call malloc_trim after a round.",
    "backlog": "The consumer takes fewer than are put. Bound the queue (maxsize), so that the producer waits, or add "
    "consumers.",
    "cache": "Give it a maxsize, or key it by something small; a cache on a method keeps each object that called it.",
    "mapped": "Pages of files: the system takes them back when it needs them. Count private bytes instead.",
    "native": "Nothing that your globals, local variables, tasks and threads reach explains it: look at C extensions "
    "and buffers outside of Python, and give what a library works with a name of your own. A recording with "
    "`memray run --native` names the C function.",
    "slowdown": "The work of a step grows: look in this phase for a list, a table or a history that each step walks "
    "whole.",
}

TOO_LARGE_ADVICE = (
    "It does not fit: the limit is reached before it is full. Lower its capacity, or store each thing once."
)
_ADVICE_BY_KIND = {
    "dict": "Remove entries that are not needed any more (`del`, `pop`), or bound it: keep the newest so many.",
    "set": "Remove what is not needed any more (`discard`), or bound it; instances of a class can be held weakly: "
    "weakref.WeakSet.",
    "object": "Drop what is not needed any more: its attributes hold more and more.",
    "array": "It is replaced by a larger one again and again: write out what is done with, or keep the newest rows.",
    "text": "It is added to again and again: write it out in portions.",
    "bytes": "It is added to again and again: write it out in portions.",
    "figures": "pyplot keeps each figure until it is closed: call plt.close(figure) when it is saved.",
    "hooks": "Register the hook once, or keep the handle that registering returns and call its remove().",
}

GRAPH_ADVICE = "Keep the number, not the tensor: loss.item(), or loss.detach() without its autograd graph."
BASE_ADVICE = "Keep a copy of the part: .clone() of a tensor or .copy() of an array lets go of the whole."

WAITING_ADVICE = "The calls wait and do not end: give what they wait for a timeout, or let fewer begin (a semaphore)."
COLLECTOR_OFF_ADVICE = "Leave the collector on, or call gc.collect() once in a while; "
RARE_COLLECTION_ADVICE = (
    "The collector seldom looks at objects that have lived long: call gc.collect() once in a while; "
)
BREAK_CYCLE_ADVICE = "better, break the cycle: hold the way back by a weakref."


def advice(verdict: Verdict, kind: str = "", *, graph: bool = False, base: bool = False) -> str:
    """The advice for a finding.

    Args:
        verdict: verdict of the finding.
        kind: kind of the container that grows, such as `list` or `hooks`.
        graph: whether the content carries an autograd graph.
        base: whether the content are views that keep larger bases alive.
    """
    if graph:
        return GRAPH_ADVICE
    if base:
        return BASE_ADVICE
    return _ADVICE_BY_KIND.get(kind, _ADVICE_BY_VERDICT[verdict]) if verdict == "leak" else _ADVICE_BY_VERDICT[verdict]


UNOWNED_KINDS: dict[Verdict, tuple[str, str]] = {
    "retention": ("the C allocator", "bytes that are freed and kept"),
    "mapped": ("mapped files", "pages of files and shared memory"),
    "native": ("memory outside of Python", "bytes that no object of your program explains"),
}
"""Owner and content of growth that no Python object holds."""
GARBAGE_OWNER = "cyclic garbage"
"""Owner of objects that wait for a collection."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Evidence:
    """The known facts of one cause of growth, from which `judge` makes a finding."""

    verdict: Verdict
    owner: str
    drift: Slope
    """Bytes per step, with bounds."""
    what: str = ""
    holders: tuple[str, ...] = ()
    made_at: AllocationSite | None = None
    count: int = 0
    share: float | None = None
    """Share of the growth of the whole process, if it is known better than from the rates."""
    plateau_bytes: int | None = None
    plateau_step: int | None = None
    advice: str | None = None
    """Advice that replaces the verdict's; None for that."""
    redundancy: str | None = None
    outside: bool = False


def judge(evidence: Evidence, growth: Growth) -> Finding:
    """Make the finding; all findings of runs, watched programs, other processes and tests are made here."""
    return Finding(
        verdict=evidence.verdict,
        owner=evidence.owner,
        holders=evidence.holders,
        made_at=evidence.made_at,
        bytes_per_step=evidence.drift.per_step,
        interval=(evidence.drift.low, evidence.drift.high),
        share=_growth_share(evidence.drift.per_step, growth) if evidence.share is None else evidence.share,
        count=evidence.count,
        what=evidence.what,
        plateau_bytes=evidence.plateau_bytes,
        plateau_step=evidence.plateau_step,
        limit_bytes=growth.limit,
        limit_step=None,
        advice=advice(evidence.verdict) if evidence.advice is None else evidence.advice,
        unit=growth.unit,
        redundancy=evidence.redundancy,
        outside=evidence.outside,
    )


def judge_owner(owner: "Owner", made_at: AllocationSite | None, *, steps: int, growth: Growth, drift: Slope) -> Finding:
    """The finding of a container that grew.

    Args:
        owner: the container, as two censuses saw it.
        made_at: the line that made its newest contents.
        steps: steps between the two censuses.
        growth: growth of the process.
        drift: slope of the part of memory that the container is in; the finding's rate gets an interval as wide, in
            proportion.
    """
    rate = owner.bytes_grown / steps
    verdict = _container_verdict(owner)
    plateau_bytes = plateau_step = None
    if owner.capacity is not None and verdict != "leak":
        plateau_bytes = owner.item_bytes * owner.capacity
        items_per_step = (owner.length - owner.length_before) / steps
        plateau_step = (
            growth.step + ceil((owner.capacity - owner.length) / items_per_step) if items_per_step > 0 else None
        )
    bound_text = ""
    if verdict == "cache":
        bound_text = ", unbounded" if owner.capacity is None else f", maxsize {owner.capacity}"
    evidence = Evidence(
        verdict=verdict,
        owner=owner.path,
        drift=_interval_around(rate, drift),
        what=owner.content_words + bound_text,
        holders=owner.holders,
        made_at=made_at,
        count=owner.count,
        plateau_bytes=plateau_bytes,
        plateau_step=plateau_step,
        advice=_owner_advice(verdict, owner),
        redundancy=owner.redundancy,
        outside=owner.outside_python,
    )
    return judge(evidence, growth)


def _owner_advice(verdict: Verdict, owner: "Owner") -> str:
    """The advice for a container: its library's rule or calls, unless a graph or base explains it, or it is filling."""
    if owner.calls > 1 and verdict == "leak":
        return WAITING_ADVICE
    explained = verdict == "filling" or owner.holds_graph or owner.holds_base
    if owner.rule is None and owner.table is not None and verdict in {"leak", "cache"} and not explained:
        return owner.table.advice
    if owner.rule is None or explained:
        return advice(verdict, owner.kind, graph=owner.holds_graph, base=owner.holds_base)
    return owner.rule.advice


def _container_verdict(owner: "Owner") -> Verdict:
    """The verdict for a container that grew: filling if it is bounded and was not full; else leak, cache or backlog."""
    if owner.kind == "queue":
        return "backlog"
    # A full container takes no further items, so its items themselves grow.
    if owner.capacity is not None and owner.length_before < owner.capacity:
        return "filling"
    return "cache" if owner.kind == "cache" else "leak"


def judge_leaf(path: str, held_bytes: int, planned: int | None, *, drift: Slope, growth: Growth) -> Finding:
    """The finding of state that the program declares: it is filled for the first time, or it outgrows its plan.

    Args:
        path: name of the leaf.
        held_bytes: resident bytes now.
        planned: bytes of the full leaf; None if no plan names it.
        drift: slope of its resident bytes.
        growth: growth of the process.
    """
    if planned is None:
        words = f"{format_bytes(held_bytes)}, of which no plan knows"
        return judge(Evidence(verdict="leak", owner=path, drift=drift, what=words), growth)
    words = f"{format_bytes(held_bytes)} of {format_bytes(planned)} planned"
    if held_bytes >= planned:
        return judge(Evidence(verdict="leak", owner=path, drift=drift, what=words), growth)
    filling = Evidence(
        verdict="filling",
        owner=path,
        drift=drift,
        what=f"{words}, touched for the first time",
        plateau_bytes=planned,
        plateau_step=growth.step + ceil((planned - held_bytes) / drift.per_step),
    )
    return judge(filling, growth)


def judge_unowned(verdict: Verdict, drift: Slope, growth: Growth) -> Finding:
    """The finding of growth that no Python object holds: `retention`, `mapped` or `native`."""
    owner, words = UNOWNED_KINDS[verdict]
    return judge(Evidence(verdict=verdict, owner=owner, drift=drift, what=words), growth)


NATIVE_LINE_SENTENCE = (
    "C code that this line calls keeps what it allocates: close, free or release what it returns, or bound the cache "
    "that it has. `memray run --native` names the C function."
)


def has_proof(finding: Finding) -> bool:
    """Whether an object, a line, or a count of this very kind of memory proves the growth, so that it is not a rest."""
    return finding.made_at is not None or not (finding.outside or finding.verdict == "native")


def wants_line(finding: Finding) -> bool:
    """Whether the line that runs while memory rises is wanted, as no Python object has the bytes."""
    return finding.verdict == "native" or (
        finding.outside and (finding.made_at is None or finding.made_at.operation != "native")
    )


def with_line(finding: Finding, line: AllocationSite | None) -> Finding:
    """The finding with the line that ran while memory rose, if it wants one; other findings as they are."""
    if line is None or not wants_line(finding):
        return finding
    if finding.verdict != "native":
        item_site = finding.made_at
        if item_site is None:
            return replace(finding, made_at=line)
        if (item_site.file, item_site.line) == (line.file, line.line):
            return finding
        full_text = f"{finding.what}; the objects are made at {file_name(item_site.file)}:{item_site.line}"
        return replace(finding, made_at=line, what=full_text)
    words = f"{UNOWNED_KINDS['native'][1]}; memory rises while this line runs"
    return replace(finding, made_at=line, what=words, advice=NATIVE_LINE_SENTENCE)


def judge_garbage(garbage: "Garbage", rate: float, drift: Slope, growth: Growth) -> Finding:
    """The finding of objects in cycles that wait for the collector.

    Args:
        garbage: objects that a collection would free.
        rate: bytes by which they grow per step.
        drift: slope of the memory that no container explains.
        growth: growth of the process.
    """
    evidence = Evidence(
        verdict="leak",
        owner=GARBAGE_OWNER,
        drift=_interval_around(rate, drift),
        what=f"{garbage.what}, in cycles that nobody reaches: a collection would free {format_bytes(garbage.bytes)}",
        holders=garbage.cycle,
        made_at=garbage.made_at,
        count=garbage.objects,
        advice=(RARE_COLLECTION_ADVICE if garbage.collecting else COLLECTOR_OFF_ADVICE) + BREAK_CYCLE_ADVICE,
    )
    return judge(evidence, growth)


def judge_phase(phase: str, slower: "Slowdown", growth: Growth) -> Finding:
    """The finding of a phase of the program whose steps become slower and slower.

    Args:
        phase: name of the phase.
        slower: cost of its steps, before and now.
        growth: growth of the process.
    """
    no_growth = Slope(0.0, 0.0, 0.0)
    comparison = f"{1 - slower.before / slower.now:.0%} fewer than before ({_steps_per_second_text(1 / slower.before)})"
    sentence = f"{phase} does {_steps_per_second_text(1 / slower.now)} steps per CPU second, {comparison}"
    return judge(Evidence(verdict="slowdown", owner=phase, drift=no_growth, what=sentence, share=0.0), growth)


def _steps_per_second_text(steps: float) -> str:
    """Steps per CPU second in words: `1,234`, `12.3`."""
    return f"{steps:,.0f}" if steps >= 100 else f"{steps:.3g}"  # noqa: PLR2004  (three digits)


def select_and_rank(findings: Sequence[Finding], growth: Growth) -> list[Finding]:
    """The findings that explain enough, most bytes first, each with the step at which the process reaches its limit."""
    full_step = limit_step(findings, growth)
    largest_rate = max((finding.bytes_per_step for finding in findings if finding.holders), default=0.0)
    reported = [finding for finding in findings if _is_worth_reporting(finding, largest_rate)]
    return [with_limit_step(finding, full_step) for finding in rank_findings(reported)]


def rank_findings(findings: Sequence[Finding]) -> list[Finding]:
    """The findings in order: most bytes first, but kept free memory last, as its holes lie around objects that stay.

    Shares are made to sum to 1 at most: owners are estimated one by one, and the others share the rest.
    """
    ordered = sort_findings(findings)
    owners_share = sum(finding.share for finding in ordered if finding.holders)
    open_share = max(0.0, 1.0 - owners_share)
    ranked = []
    for finding in ordered:
        share = finding.share / max(1.0, owners_share) if finding.holders else min(finding.share, open_share)
        open_share -= 0.0 if finding.holders else share
        ranked.append(replace(finding, share=share))
    return ranked


def with_limit_step(finding: Finding, step: int | None) -> Finding:
    """The finding with the step at which the process reaches its limit, if the finding contributes to that.

    Args:
        finding: the finding.
        step: the step of the limit; None if the process does not reach one.
    """
    if finding.verdict in {"slowdown", "mapped"}:
        return replace(finding, limit_step=None)
    limited = replace(finding, limit_step=step)
    fits = finding.verdict != "filling" or not limited.dies_first
    return limited if fits else replace(limited, advice=TOO_LARGE_ADVICE)


def _is_worth_reporting(finding: Finding, largest_rate: float) -> bool:
    """Whether a finding explains enough to be reported; `largest_rate`: the largest of all owners, bytes per step."""
    # Memory that is freed between blocks of a larger owner is that owner's doing.
    if finding.verdict == "retention" and finding.bytes_per_step < largest_rate:
        return False
    return finding.share >= OWNING.minimum_reported_share or finding.verdict == "slowdown"


def limit_step(findings: Sequence[Finding], growth: Growth) -> int | None:
    """The step at which the resident bytes reach the limit; None if they do not, or there is no limit.

    The process grows in a straight line that loses the rate of each filling at its plateau.
    """
    if growth.limit is None:
        return None
    if growth.resident >= growth.limit:
        return growth.step
    # Without owners that are full by now, and without mapped pages, which the system takes back before the limit.
    unfinished = (finding for finding in findings if finding.plateau_step is None or finding.plateau_step > growth.step)
    growing = [finding for finding in unfinished if finding.verdict != "mapped"]
    plateaus = sorted(
        (finding.plateau_step, finding.bytes_per_step) for finding in growing if finding.plateau_step is not None
    )
    step, resident, rate = float(growth.step), float(growth.resident), _process_rate(findings, growing, growth)
    for end, end_rate in plateaus:
        if rate > 0 and resident + rate * (end - step) >= growth.limit:
            break
        resident, step, rate = resident + rate * (end - step), float(end), rate - end_rate
    # 1 byte, not 0: the rate is a difference of large sums, and a rest after the last plateau may be rounding.
    return (
        growth.step + round_to_two_digits(step + (growth.limit - resident) / rate - growth.step) if rate > 1 else None
    )


def merge_same_cause(findings: Sequence[Finding]) -> list[Finding]:
    """The findings in their order, with findings of one cause merged.

    Arrays of a buffer that are being filled have the same cause: the buffer is full when the last of them is. So have
    containers of one holder that leak objects of one kind, made at one line: one change mends them all.
    """
    by_cause: dict[Hashable, list[Finding]] = {}
    for finding in findings:
        by_cause.setdefault(_cause_key(finding), []).append(finding)
    return [finding for parts in by_cause.values() for finding in _merge_parts(parts)]


def _cause_key(finding: Finding) -> Hashable:
    """The key that findings of the same cause share."""
    if finding.verdict == "filling" and finding.plateau_bytes is not None:
        return finding.verdict, _buffer_path(finding.owner) or finding.owner
    # Memory outside of Python has the line that ran while it rose, which says nothing of its holder.
    if finding.verdict == "leak" and finding.made_at is not None and finding.holders and not finding.outside:
        return finding.verdict, finding.made_at, finding.holders[0], finding.holders[-1], finding.advice
    return finding.verdict, finding.owner


def _merge_parts(parts: Sequence[Finding]) -> list[Finding]:
    """One finding for all parts, or the parts if a container lies in another, so that no byte counts twice."""
    first, owners = parts[0], [part.owner for part in parts]
    if len(parts) == 1:
        return [first]
    if first.verdict == "filling":
        return [_merge_filling(_buffer_path(first.owner), parts)]
    nested = any(owner.startswith((f"{other}.", f"{other}[")) for owner in owners for other in owners)
    return list(parts) if nested else [_merge_leaking(_common_holder(owners), parts)]


def _buffer_path(path: str) -> str:
    """The path of an array's holder, `train.BUFFER` for `train.BUFFER.rows`; empty for a variable of the program."""
    place, separator, name = path.rpartition(": ")
    buffer = name[: max(name.rfind("."), name.rfind("["))] if {".", "["} & set(name) else ""
    return f"{place}{separator}{buffer}" if buffer and (separator or "." in buffer) else ""


_HOP = re.compile(r"^[^.\[]+|\.<[^>]*>|\['.*?'\]|[.\[][^.\[]*")
"""The beginning of a path, and each hop of it: an attribute, a variable of a closure, an entry, an item."""


def _common_holder(paths: Sequence[str]) -> str:
    """The hops with which all paths begin: `train.AGENT` for `train.AGENT.rows` and `train.AGENT.texts`."""
    return "".join(hops[0] for hops in takewhile(_are_equal, zip(*map(_HOP.findall, paths), strict=False)))


def _merge_filling(buffer: str, parts: Sequence[Finding]) -> Finding:
    """One finding for the arrays of a buffer, which is full when the last of them is.

    Args:
        buffer: path of their holder.
        parts: fillings below it.
    """
    names = [part.owner.removeprefix(buffer).strip(".[]'\"") for part in parts]
    steps = [part.plateau_step for part in parts if part.plateau_step is not None]
    return replace(
        _sum_parts(buffer, parts),
        count=len(parts),
        what=f"{len(parts)} arrays, touched for the first time: {', '.join(names)}",
        plateau_bytes=sum(part.plateau_bytes or 0 for part in parts),
        plateau_step=max(steps, default=None),
    )


def _merge_leaking(holder: str, parts: Sequence[Finding]) -> Finding:
    """One finding for leaks of the same line into several containers, with the others named in its content."""
    largest, *names = (part.owner.removeprefix(holder).removeprefix(".") for part in parts)
    what = f"{parts[0].what}, in {largest}; the same line fills {', '.join(names)}"
    return replace(_sum_parts(holder, parts), count=sum(part.count for part in parts), what=what)


def _sum_parts(owner: str, parts: Sequence[Finding]) -> Finding:
    """The first part, with the owner and the summed rate of all parts."""
    return replace(
        parts[0],
        owner=owner,
        parts=tuple(part.owner for part in parts),
        holders=tuple(hops[0] for hops in takewhile(_are_equal, zip(*(part.holders for part in parts), strict=False))),
        bytes_per_step=sum(part.bytes_per_step for part in parts),
        interval=(sum(part.interval[0] for part in parts), sum(part.interval[1] for part in parts)),
        share=min(1.0, sum(part.share for part in parts)),
    )


def _are_equal(hops: Sequence[str]) -> bool:
    """Whether all hops at one place of several paths are the same."""
    return len(set(hops)) == 1


def round_to_two_digits(steps: float) -> int:
    """A number of steps, rounded to two digits, as no rate is known better."""
    return ceil(float(f"{steps:.2g}"))


def _process_rate(findings: Sequence[Finding], growing: Sequence[Finding], growth: Growth) -> float:
    """Bytes per step of the whole process, without mapped pages: the findings' sum if it explains the measured rate."""
    explained_rate = sum(finding.bytes_per_step for finding in growing)
    measured_rate = growth.whole.per_step - sum(
        finding.bytes_per_step for finding in findings if finding.verdict == "mapped"
    )
    return explained_rate if explained_rate >= OWNING.explained_share * measured_rate else measured_rate


def _growth_share(rate: float, growth: Growth) -> float:
    """Share of a rate, in bytes per step, in the growth of the process: 0 to 1, and 1 if the process does not grow."""
    # Owners are estimates, which may come to a little more than all.
    return min(1.0, rate / growth.whole.per_step) if growth.whole.per_step > 0 else 1.0


def _interval_around(rate: float, drift: Slope) -> Slope:
    """The relative interval of `drift` around a rate; a point if `drift` does not rise."""
    if drift.per_step <= 0:
        return Slope(rate, rate, rate)
    return Slope(rate, rate * min(1.0, drift.low / drift.per_step), rate * max(1.0, drift.high / drift.per_step))
