"""The judgement of evidence: shares, order, step of the limit, units and words of the findings that are made of it.

A cause is the `Evidence` on one thing that grows; a `Finding` is what a person reads of it. An owner is the path of the
container that grows, and a holder an object on that path. Bytes without a holder are those of no Python object. A
plateau is where a container of limited size is full and stops growing. Findings are made here only. All functions here
are pure.
"""

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from itertools import takewhile
from math import ceil

from flatwater_watch.diagnose.evidence import (
    CLASS_ADVICE,
    NATIVE_LINE_ADVICE,
    NATIVE_LINE_SENTENCE,
    NATIVE_OBJECT_SENTENCE,
    TOO_LARGE_ADVICE,
    Evidence,
)
from flatwater_watch.diagnose.finding import AllocationSite, Finding
from flatwater_watch.diagnose.gc_sawtooth import gc_amounts_text
from flatwater_watch.diagnose.verdicts import VERDICTS
from flatwater_watch.paths import file_name
from flatwater_watch.series.readings import Growth, Scale
from flatwater_watch.series.slope import Slope
from flatwater_watch.thresholds import OWNING

_NAMES_IN_ADVICE = re.compile("(, for each `item` of )?`[^`]*`")
"""Calls and names of a container in the advice on it."""

NameCause = Callable[[Evidence], Evidence]


def make_findings(
    causes: Sequence[Evidence],
    growth: Growth,
    full_step: int | None = None,
    *,
    scale: Scale | None = None,
    root_gains: Sequence[tuple[str, int]] = (),
    resident_gain: int = 0,
    name_cause: NameCause | None = None,
) -> list[Finding]:
    """Make a finding of each cause, the one with the largest share of the growth first.

    Args:
        causes: evidence on each cause.
        growth: growth of the process.
        full_step: the step at which the process reaches its memory limit; None if that is not known.
        scale: unit of the findings, such as an episode; None for that of `growth`.
        root_gains: roots, and the bytes that each holds more than at the beginning, if that is known.
        resident_gain: resident bytes that the process has gained since the beginning.
        name_cause: function that gives evidence the names that people know; None leaves names as they are.
    """
    rate_shares = _final_shares(sort_causes(causes))
    shares = _shares_by_roots(rate_shares, root_gains, resident_gain)
    named_shares = shares if name_cause is None else [(name_cause(cause), share) for cause, share in shares]
    return [_make_finding(cause, share, growth, full_step, scale) for cause, share in named_shares]


def make_reportable_findings(causes: Sequence[Evidence], growth: Growth) -> list[Finding]:
    """Make the findings of the causes that explain enough to be reported, with the step of the memory limit."""
    return make_findings(select_causes(causes), growth, limit_step(causes, growth))


def select_causes(causes: Sequence[Evidence]) -> list[Evidence]:
    """Return the causes that explain enough to be reported.

    Pages of mapped files that no object holds are left out if an object that holds mapped files is known: they are
    the same pages.
    """
    largest_rate = max((cause.rate.per_step for cause in causes if cause.holders), default=0.0)  # of all owners
    reportable = [cause for cause in causes if _is_worth_reporting(cause, largest_rate)]
    if any(cause.verdict == "mapped" and cause.holders for cause in causes):
        reportable = [cause for cause in reportable if cause.verdict != "mapped" or cause.holders]
    return reportable


def sort_causes(causes: Sequence[Evidence]) -> list[Evidence]:
    """Return the causes, largest share of the growth first; `retention` (freed memory that is kept) is last.

    Retention is often a consequence of the other causes, as the free blocks lie between objects that stay.
    """
    return sorted(causes, key=lambda cause: (cause.verdict == "retention", -cause.known_share, -cause.rate.per_step))


def _final_shares(causes: Sequence[Evidence]) -> list[tuple[Evidence, float]]:
    """Return pairs of a cause and its share of the growth, in the order of the causes; all shares sum to at most 1.

    Causes that Python objects hold keep their shares, which are scaled down if they sum to more than 1. The other
    causes share what is left: each in turn gets its own share, or the rest if that is less.
    """
    held_share = sum(cause.known_share for cause in causes if cause.holders)
    unassigned_share = max(0.0, 1.0 - held_share)
    shares = []
    for cause in causes:
        if cause.holders:
            share = cause.known_share / max(1.0, held_share)
        else:
            share = min(cause.known_share, unassigned_share)
            unassigned_share -= share
        shares.append((cause, share))
    return shares


def _shares_by_roots(
    shares: list[tuple[Evidence, float]], root_gains: Sequence[tuple[str, int]], resident_gain: int
) -> list[tuple[Evidence, float]]:
    """Return the causes with their shares of the growth, enlarged where these are less than their root gained.

    A share by the rate covers only the time between two censuses, and is too small if growth gets faster. The bytes
    that a root (a global or local variable) has gained since the beginning cover all the time.

    Args:
        shares: causes, each with its share by its rate, 0 to 1.
        root_gains: paths of roots, and the bytes that each has gained since the beginning.
        resident_gain: resident bytes that the process has gained since then.
    """
    if resident_gain <= 0:
        return shares
    for root, gained_bytes in root_gains:
        share_below_root = sum(share for cause, share in shares if lies_below_root(cause.owner, root))
        # At most the share that other causes leave, as all shares sum to at most 1.
        free_share = 1 - sum(share for _, share in shares) + share_below_root
        wanted_share = min(gained_bytes / resident_gain, free_share)
        if 0 < share_below_root < wanted_share:
            factor = wanted_share / share_below_root
            shares = [
                (cause, factor * share if lies_below_root(cause.owner, root) else share) for cause, share in shares
            ]
    return shares


def lies_below_root(owner: str, root: str) -> bool:
    """Return whether an owner is a root, or a part of it."""
    return owner == root or owner.startswith((f"{root}.", f"{root}["))


def _make_finding(cause: Evidence, share: float, growth: Growth, full_step: int | None, scale: Scale | None) -> Finding:
    """Make the finding of one cause.

    Args:
        cause: evidence on the cause.
        share: share of the growth of the process that it explains, 0 to 1.
        growth: growth of the process.
        full_step: the step at which the process reaches its limit; None if that is not known.
        scale: unit of the finding; None for that of `growth`.
    """
    # A slowdown and mapped pages bring the process no nearer to its limit.
    step_at_limit = None if cause.verdict in {"slowdown", "mapped"} else full_step
    line, description, line_advice = _describe_line(cause)
    # A filling would stop growing by itself, but the process may reach its limit before.
    reaches_limit_first = step_at_limit is not None and (
        cause.plateau_step is None or step_at_limit < cause.plateau_step
    )
    does_not_fit = cause.verdict == "filling" and cause.plateau_bytes is not None and reaches_limit_first
    # The advice that is most particular to this cause; that of its verdict is always there.
    advice = TOO_LARGE_ADVICE if does_not_fit else line_advice or cause.advice or VERDICTS[cause.verdict].advice
    if cause.slow_segment is not None:
        description = f"{description}; {cause.slow_segment.sentence}"
    if cause.gc_sawtooth is not None and scale is not None:
        description += gc_amounts_text(cause.gc_sawtooth, scale.steps_per_second / scale.per_unit, scale.unit)
    per_unit = 1.0 if scale is None else scale.per_unit  # steps of the evidence in a unit of the finding
    return Finding(
        verdict=cause.verdict,
        owner=cause.slow_segment.name if cause.slow_segment is not None else cause.native_owner or cause.owner,
        holders=(cause.native_use.class_name,) if cause.native_owner else cause.newest_contents.holders,
        made_at=line,
        bytes_per_step=cause.rate.per_step * per_unit,
        interval=(cause.rate.low * per_unit, cause.rate.high * per_unit),
        share=share,
        count=cause.newest_contents.objects,
        what=description,
        plateau_bytes=cause.plateau_bytes,
        plateau_step=cause.plateau_step if scale is None else scale.unit_at_step(cause.plateau_step),
        limit_bytes=growth.limit,
        limit_step=step_at_limit if scale is None else scale.unit_at_step(step_at_limit),
        advice=advice,
        unit=growth.unit if scale is None else scale.unit,
        redundancy=cause.redundancy,
        outside=cause.outside,
        limit_time=None if scale is None else scale.time_at_step(step_at_limit),
        parts=cause.parts,
    )


def _describe_line(cause: Evidence) -> tuple[AllocationSite | None, str, str | None]:
    """Return the line of code to report for a cause, the description of what grows, and advice on that line.

    A cause may have two lines: one that made its Python objects, and one that ran while memory outside of Python rose
    (native). The native line is reported, and the description names the other one. The line is None if none is known,
    the advice if there is none that is particular to the line.
    """
    description = cause.newest_contents.what + cause.bound
    native_line, item_line = cause.native_line, cause.made_at
    if native_line is None:
        line_advice = None
        # At the top level of a file a class is made once, so advice to keep it says nothing.
        if cause.holds_classes and item_line is not None and item_line.function != "<module>":
            line_advice = CLASS_ADVICE.format(function=item_line.function)
        return item_line, description, line_advice
    if cause.verdict == "native":  # no Python object has the bytes
        sentence = NATIVE_LINE_SENTENCE
        if cause.native_owner:
            description = f"bytes behind an object of class {cause.native_use.class_name}"
            sentence = NATIVE_OBJECT_SENTENCE
        line_advice = f"{cause.native_use.advice or NATIVE_LINE_ADVICE} {sentence}"
        return native_line, f"{description}; memory rises while this line runs", line_advice
    # Items have the bytes, outside of Python.
    if item_line is None:
        return native_line, description, None
    if (item_line.file, item_line.line) == (native_line.file, native_line.line):
        return item_line, description, None
    return native_line, f"{description}; the objects are made at {file_name(item_line.file)}:{item_line.line}", None


def _is_worth_reporting(cause: Evidence, largest_rate: float) -> bool:
    """Return whether a cause explains enough to be reported.

    Args:
        cause: evidence on the cause.
        largest_rate: largest rate of all owners, in bytes per step.
    """
    # Memory that was freed but kept lies in holes between other blocks: those of an owner that grows faster.
    if cause.verdict == "retention" and cause.rate.per_step < largest_rate:
        return False
    # A slowdown has no bytes, and so no share.
    return cause.known_share >= OWNING.minimum_reported_share or not VERDICTS[cause.verdict].is_of_bytes


def limit_step(causes: Sequence[Evidence], growth: Growth) -> int | None:
    """Return the step at which the resident bytes reach the limit; None if they do not, or if there is no limit.

    The resident bytes grow by the rates of all causes; a cause of limited size stops at its plateau, when it is full.
    """
    if growth.limit is None:
        return None
    if growth.resident >= growth.limit:
        return growth.step
    # Owners that are full by now do not grow, and the system takes mapped pages back before the limit.
    unfinished_causes = (cause for cause in causes if cause.plateau_step is None or cause.plateau_step > growth.step)
    growing = [cause for cause in unfinished_causes if cause.verdict != "mapped"]
    plateaus = sorted((cause.plateau_step, cause.rate.per_step) for cause in growing if cause.plateau_step is not None)
    step, resident = float(growth.step), float(growth.resident)
    rate = _process_rate(causes, growing, growth)
    # The forecast goes from plateau to plateau, until the limit is reached before the next one.
    for plateau_step, plateau_rate in plateaus:
        if rate > 0 and resident + rate * (plateau_step - step) >= growth.limit:
            break
        resident += rate * (plateau_step - step)
        step, rate = float(plateau_step), rate - plateau_rate
    # 1 byte per step, not 0: the rate is a difference of large sums, and may be a rounding error.
    if rate <= 1:
        return None
    steps_left = step + (growth.limit - resident) / rate - growth.step
    return growth.step + round_to_two_digits(steps_left)


def merge_related_causes(causes: Sequence[Evidence]) -> list[Evidence]:
    """Return the causes, largest share first; causes that the same change of the program mends become one.

    Merged are the arrays of one buffer that is being filled, containers that the same call of their holder empties, and
    containers below one root into which the same line puts objects of the same kind. Any other causes are merged if
    their verdicts and owners are equal. Containers that lie in each other are never merged.
    """
    causes_by_key: dict[Hashable, list[Evidence]] = {}
    for cause in sort_causes(causes):
        causes_by_key.setdefault(_cause_key(cause), []).append(cause)
    return [cause for same_causes in causes_by_key.values() for cause in _merge_causes(same_causes)]


def _cause_key(cause: Evidence) -> Hashable:
    """Return a key that is equal for causes to be merged, in the order of the cases of `merge_related_causes`."""
    if cause.verdict == "filling" and not cause.holders:  # an array that the program declares
        return cause.verdict, _buffer_path(cause.owner) or cause.owner
    # Of the owner `train.AGENT.rows` the holder is `train.AGENT`, its name `AGENT`, and a call of it `AGENT.reset(`.
    holder = "".join(_HOP.findall(cause.owner)[:-1])
    holder_name = re.split(r"[.: ]", holder)[-1]
    holder_call = rf"\b{re.escape(holder_name)}\.\w+\("
    # Containers that the same call of their holder empties.
    if cause.verdict == "leak" and holder_name and re.search(holder_call, cause.advice or ""):
        return cause.verdict, holder, cause.advice, cause.outside
    # Containers that the same line fills. Memory outside of Python is left out: its line only ran while it rose.
    if cause.verdict == "leak" and cause.made_at is not None and cause.holders and not cause.outside:
        holders = cause.newest_contents.holders
        root, content = holders[0], holders[-1]
        # Advice on the same remedy differs only in the names of the containers.
        return cause.verdict, cause.made_at, root, content, _NAMES_IN_ADVICE.sub("", cause.advice or "")
    return cause.verdict, cause.owner


def _merge_causes(causes: Sequence[Evidence]) -> list[Evidence]:
    """Merge causes of one key (`_cause_key`) into one; return them all, unmerged, if a container lies in another.

    The bytes of a container that lies in another would count twice in a sum.
    """
    if len(causes) == 1:
        return list(causes)
    first_cause = causes[0]
    owners = [cause.owner for cause in causes]
    if first_cause.verdict == "filling":  # arrays, none of which lies in another
        return [_merge_filling(_buffer_path(first_cause.owner), causes)]
    # As in `train.AGENT` and `train.AGENT.rows`.
    are_nested = any(owner.startswith((f"{other}.", f"{other}[")) for owner in owners for other in owners)
    return list(causes) if are_nested else [_merge_leaking(_common_holder(owners), causes)]


def _buffer_path(owner_path: str) -> str:
    """Return the path of the object that holds an array: `train.BUFFER` for the array `train.BUFFER.rows`.

    Empty if the array is itself a variable: "train.ROWS", or the local variable `main() in train.py: rows`.
    """
    # `place` is that of a local variable, `main() in train.py`; empty for a global.
    place, separator, name = owner_path.rpartition(": ")
    # The name without its last hop, such as `.rows` or `[0]`; empty if it has no hop.
    last_hop_start = max(name.rfind("."), name.rfind("["))
    buffer = name[:last_hop_start] if last_hop_start >= 0 else ""
    # What is left of the global "train.ROWS" is its module, which is no buffer.
    is_module = not separator and "." not in buffer
    return f"{place}{separator}{buffer}" if buffer and not is_module else ""


_HOP = re.compile(r"^[^.\[]+|\.<[^>]*>|\['.*?'\]|[.\[][^.\[]*")
"""The beginning of a path, and each hop of it: an attribute, a variable of a closure, an entry, an item."""


def _common_holder(paths: Sequence[str]) -> str:
    """Return the hops with which all paths begin: `train.AGENT` for `train.AGENT.rows` and `train.AGENT.texts`."""
    hops_by_depth = zip(*map(_HOP.findall, paths), strict=False)
    return "".join(hops[0] for hops in takewhile(_are_equal, hops_by_depth))


def _merge_filling(buffer: str, causes: Sequence[Evidence]) -> Evidence:
    """Merge the causes for the arrays of a buffer, which is full when the last of its arrays is full.

    Args:
        buffer: path of the holder of the arrays.
        causes: evidence on each array, of verdict `filling`.
    """
    names = [cause.owner.removeprefix(buffer).strip(".[]'\"") for cause in causes]
    steps = [cause.plateau_step for cause in causes if cause.plateau_step is not None]
    what = f"{len(causes)} arrays, touched for the first time: {', '.join(names)}"
    plateau_bytes = sum(cause.plateau_bytes or 0 for cause in causes)
    merged_cause = _merge_evidence(buffer, causes, len(causes), what)
    return replace(merged_cause, plateau_bytes=plateau_bytes, plateau_step=max(steps, default=None))


def _merge_leaking(holder: str, causes: Sequence[Evidence]) -> Evidence:
    """Merge leaks of several containers that one object holds, at the path `holder`.

    The text on the content names all of them: `120 × dict, in rows; the same line fills texts`.
    """
    names = [cause.owner.removeprefix(holder).removeprefix(".") for cause in causes]
    others = ", ".join(names[1:])
    line = causes[0].made_at
    is_of_one_line = line is not None and all(cause.made_at == line for cause in causes)
    others_phrase = "the same line fills" if is_of_one_line else "more in"
    what = f"{causes[0].newest_contents.what}, in {names[0]}; {others_phrase} {others}"
    object_count = sum(cause.newest_contents.objects for cause in causes)
    return _merge_evidence(holder, causes, object_count, what)


def _merge_evidence(owner: str, causes: Sequence[Evidence], count: int, what: str) -> Evidence:
    """Merge causes into one, with the sums of their rates and shares, and the holders that all have in common.

    All other facts, such as the verdict and the line, are those of the first cause.

    Args:
        owner: owner of the merged cause.
        causes: evidence on each part, largest share first.
        count: number of objects of the main content.
        what: the main content in words.
    """
    rates = [cause.rate for cause in causes]
    # At each depth, the root first, the holders of all causes: kept as long as they are equal.
    holders_by_depth = zip(*(cause.newest_contents.holders for cause in causes), strict=False)
    return Evidence(
        verdict=causes[0].verdict,
        owner=owner,
        drift=Slope(
            per_step=sum(rate.per_step for rate in rates),
            low=sum(rate.low for rate in rates),
            high=sum(rate.high for rate in rates),
        ),
        share=sum(cause.known_share for cause in causes),
        what=what,
        holders=tuple(holders[0] for holders in takewhile(_are_equal, holders_by_depth)),
        count=count,
        advice=causes[0].advice,
        redundancy=causes[0].redundancy,
        outside=causes[0].outside,
        parts=tuple(cause.owner for cause in causes),
        made_at=causes[0].made_at,
        native_line=causes[0].native_line,
    )


def _are_equal(texts: Sequence[str]) -> bool:
    """Return whether all texts are the same."""
    return len(set(texts)) == 1


def round_to_two_digits(steps: float) -> int:
    """Return a number of steps, rounded to two significant digits and then up to a whole step."""
    return ceil(float(f"{steps:.2g}"))


def _process_rate(causes: Sequence[Evidence], growing: Sequence[Evidence], growth: Growth) -> float:
    """Return the rate of the process in bytes per step, without pages of mapped files.

    It is the sum of the causes' rates, or the measured rate of the process if the causes explain too little of that.

    Args:
        causes: evidence on all causes, also on mapped pages.
        growing: those of them that go on growing, without mapped pages.
        growth: growth of the process.
    """
    explained_rate = sum(cause.rate.per_step for cause in growing)
    measured_rate = growth.whole.per_step - sum(cause.rate.per_step for cause in causes if cause.verdict == "mapped")
    return explained_rate if explained_rate >= OWNING.explained_share * measured_rate else measured_rate
