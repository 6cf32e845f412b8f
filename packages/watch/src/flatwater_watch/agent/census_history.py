"""The sizes of owners over the censuses of a run, and what they show: growth, a stop, a full container, a fall.

A census lists the containers of the program by path, its holdings, with their bytes and items. A root is a holding that
no other holding holds. An owner is the path of a container to which growth was attributed; a cause is `Evidence` of
that growth. The two censuses that identified an owner are too close in time for a rate: all censuses give it. Steps are
boundaries that the program has passed, such as episodes.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from flatwater_watch.agent.growth import Sample, growth_bytes, growth_rate, samples_after_warm_up
from flatwater_watch.diagnose.evidence import Evidence, MeasuredGrowth
from flatwater_watch.diagnose.judge import lies_below_root
from flatwater_watch.heap.census import Census
from flatwater_watch.series.slope import Slope
from flatwater_watch.thresholds import CASE, ENDING, MEASURING, OWNING

CENSUS_INTERVAL_FACTOR = 1.4
"""Factor between the steps at which the bytes of owners are measured: a long run has only a few censuses more."""
MAXIMUM_OWNERS = 60
"""Maximum number of owners whose bytes a result keeps."""
MAXIMUM_CENSUSES = 40
"""Maximum number of censuses that are remembered; the older half is thinned when there are more."""


class OwnerSize(NamedTuple):
    """The size of an owner at one census."""

    step: int
    """Step at which the census read it."""
    bytes: int
    items: float = 0.0
    """Items of all containers on its path together."""
    length: int = 0
    """Mean number of items of a container on its path."""
    is_root: bool = False
    """Whether no other holding holds it."""


class HeldGrowth(NamedTuple):
    """The growth of a container from the first census to the newest that the program's end cannot have emptied."""

    path: str
    bytes: float
    is_full: bool
    """Whether it was at its bound at a census, and has hardly gained bytes since."""


class ItemCount(NamedTuple):
    """A number of items that all censuses of a stretch of steps found at one path."""

    items: float
    first_step: int
    last_step: int


@dataclass(eq=False, repr=False)
class CensusHistory:
    """Sizes of the larger owners in all censuses that are remembered, and the newest number of items of every owner."""

    censuses: list[tuple[int, Mapping[str, OwnerSize]]] = field(default_factory=list)
    """The step at which each census began, and its larger holdings by path."""
    item_counts: Mapping[str, ItemCount] = field(default_factory=dict)
    """The number of items of each holding of the newest census that the program's end cannot have emptied, by path."""
    next_step: float = 0.0
    """Step from which on the bytes of owners are measured again."""
    has_ended: bool = False
    """Whether the newest census was taken as the program ended, which may have emptied its containers."""


def record_census_(history: CensusHistory, step: int, census: Census) -> None:
    """Add the larger holdings of a census, which began at `step`, to the history; thin it if it has too many censuses.

    Unless the program has ended, the counts of items are brought up to date too.
    """
    sizes = {
        # A census in slices reads its holdings at later steps; 0 stands for the step at which it began.
        path: OwnerSize(
            holding.step or step, holding.bytes, holding.items, holding.length, is_root=holding.parent is None
        )
        for path, holding in census.holdings.items()
        if holding.bytes >= MEASURING.least_bytes
    }
    history.censuses.append((step, sizes))
    if not history.has_ended:
        counts = history.item_counts
        history.item_counts = {
            path: _continued_count(counts.get(path), holding.items, holding.step or step)
            for path, holding in census.holdings.items()
            if holding.items
        }
    if len(history.censuses) > MAXIMUM_CENSUSES:
        # Every second census of the older half goes, and the first stays: it is the reference for all growth.
        del history.censuses[1 : MAXIMUM_CENSUSES // 2 : 2]
    history.next_step = CENSUS_INTERVAL_FACTOR * step


def _continued_count(previous: ItemCount | None, items: float, step: int) -> ItemCount:
    """Return the previous count up to this step, or a new one if the census found another number of items."""
    if previous is None or previous.items != items:
        return ItemCount(items, first_step=step, last_step=step)
    return previous._replace(last_step=step)


def newest_owner_sizes(history: CensusHistory) -> dict[str, int]:
    """Return the bytes by owner at the newest census, the largest first; at most `MAXIMUM_OWNERS` owners."""
    _, newest = history.censuses[-1] if history.censuses else (0, {})
    sizes = sorted(((size.bytes, owner) for owner, size in newest.items()), reverse=True)
    return {owner: size for size, owner in sizes[:MAXIMUM_OWNERS]}


def measure_growth(
    cause: Evidence, history: CensusHistory, owners: Iterable[str], samples: Sequence[Sample]
) -> MeasuredGrowth | None:
    """Return the rate of a cause's owner over the recent censuses, and its share of the growth of the process.

    It is None if no census can measure the cause, as it has no owner or its bytes lie outside of Python, and if the
    owner does not rise over two censuses.

    Args:
        cause: the cause; its `drift` is the rate at which it was found.
        history: all censuses that are remembered.
        owners: owners of all causes. Bytes of those that lie below this owner are not counted for this one.
        samples: readings of the process.
    """
    if not cause.holders or cause.outside or cause.drift.per_step <= 0:
        return None
    owner_sizes, own_bytes = _owner_sizes(history, cause.owner, owners)
    steps = [size.step for size in owner_sizes]
    rate = _recent_rate(steps, own_bytes) if len(steps) > 1 else 0.0
    if rate == 0:
        return None
    process_rate = growth_rate(samples)
    # Sizes in a census are estimates. If they rise by far more than the process, the owner's rate is not above the rate
    # at which it was found.
    if 0 < CASE.maximum_container_growth_ratio * process_rate < rate:
        rate = min(rate, cause.drift.per_step)
    share = _share_between_censuses(steps, own_bytes, samples)
    if share is None:  # the process gained too little between the censuses: its rate over all readings is taken
        share = min(1.0, rate / process_rate) if process_rate > 0 else cause.share
    scale = rate / cause.drift.per_step  # the bounds keep their ratios to the rate
    slope = Slope(per_step=rate, low=cause.drift.low * scale, high=cause.drift.high * scale)
    return MeasuredGrowth(rate=slope, share=share)


def measured_causes(causes: Sequence[Evidence], history: CensusHistory, samples: Sequence[Sample]) -> list[Evidence]:
    """Return the causes, each with the growth of its owner over all censuses, if that could be measured."""
    owners = [cause.owner for cause in causes]
    return [replace(cause, measured=measure_growth(cause, history, owners, samples)) for cause in causes]


def has_stopped(history: CensusHistory, owner: str) -> bool:
    """Return whether an owner's size has hardly changed over the newer half of the steps between its censuses.

    What was compiled, imported or loaded once stays as it is, while other memory of the process may still grow. An
    owner that has lost much has not stopped: a program that ends empties its containers.
    """
    sizes, _ = _owner_sizes(history, owner)
    if len(sizes) < MEASURING.minimum_censuses_of_stop:
        return False
    first, last = sizes[0], sizes[-1]
    middle = [size for size in sizes if size.step <= (first.step + last.step) / 2][-1]  # the last of the older half
    early_gain, late_change = middle.bytes - first.bytes, abs(last.bytes - middle.bytes)
    # Items as well, as a later census may reach them from another holder, which then has their bytes.
    early_item_gain, late_item_change = middle.items - first.items, abs(last.items - middle.items)
    minimum_share = MEASURING.minimum_late_share
    # At least 1 item: an owner that gained none, or lost some, must not have changed their number since.
    has_same_items = late_item_change <= minimum_share * max(early_item_gain, 1.0)
    return late_change < minimum_share * early_gain and has_same_items


def has_no_new_items(history: CensusHistory, owner: str) -> bool:
    """Return whether an owner had the same number of items over the newer half of the steps between the censuses.

    An owner whose bytes lie outside of Python has stopped growing then: of those a census sees the items alone.
    """
    count = history.item_counts.get(owner)
    if count is None or len(history.censuses) < MEASURING.minimum_censuses_of_stop:
        return False
    begin_step, _ = history.censuses[0]
    middle_step = (begin_step + count.last_step) / 2
    return count.first_step < count.last_step and count.first_step <= middle_step


def is_level_late(history: CensusHistory, owner: str) -> bool:
    """Return whether an owner gained next to nothing in the last third of the steps between its censuses.

    That is at most `ENDING.minimum_remaining_rate_share` of its mean gain in a third, of bytes and of items. An owner
    that the newest census does not find, such as a node of a tree that is balanced anew, is level too.
    """
    newest_holdings = _newest_holdings(history)
    if newest_holdings is not None and owner not in newest_holdings:
        return True
    sizes, _ = _owner_sizes(history, owner)
    if len(sizes) < MEASURING.minimum_censuses_of_stop:
        return False
    first, last = sizes[0], sizes[-1]
    third_begin = last.step - (last.step - first.step) / 3
    # The size at that step lies on the line between the censuses before it and after it.
    later_index = bisect_left(sizes, third_begin, key=lambda size: size.step)
    earlier, later = sizes[later_index - 1], sizes[later_index]
    fraction = (third_begin - earlier.step) / (later.step - earlier.step)  # of the way from earlier to later, 0 to 1

    def is_level(first_amount: float, earlier_amount: float, later_amount: float, last_amount: float) -> bool:
        late_gain = last_amount - (earlier_amount + fraction * (later_amount - earlier_amount))
        return late_gain <= ENDING.minimum_remaining_rate_share * max(0.0, last_amount - first_amount) / 3

    four_sizes = (first, earlier, later, last)
    return is_level(*(size.bytes for size in four_sizes)) and is_level(*(size.items for size in four_sizes))


def is_full(history: CensusHistory, cause: Evidence) -> bool:
    """Return whether a cause's container was at its maximum length at a census, and has hardly gained bytes since.

    One that is longer than the number that was taken for its maximum, or whose items grow, is not full.
    """
    if cause.capacity is None:
        return False
    # With the census at the end of the program, which finds fewer bytes by chance as well.
    sizes = [holdings[cause.owner] for _, holdings in history.censuses if cause.owner in holdings]
    bytes_when_full = [size.bytes for size in sizes if size.length >= cause.capacity]
    return bool(bytes_when_full) and OWNING.explained_share * sizes[-1].bytes <= bytes_when_full[0]


def filled_bytes(causes: Sequence[Evidence], history: CensusHistory, samples: Sequence[Sample]) -> int:
    """Return the bytes that the process has gained since warm-up in containers that are full by now."""
    full_causes = [cause for cause in causes if is_full(history, cause)]
    full_share = sum(cause.known_share for cause in measured_causes(full_causes, history, samples))
    return round(min(1.0, full_share) * max(0, growth_bytes(samples)))


def held_growth(causes: Sequence[Evidence], history: CensusHistory) -> list[HeldGrowth]:
    """Return the growth of the causes' owners since the first census, or of all roots if there is no owner.

    Most bytes come first. An owner that the newest census does not find is left out: it may hold nothing any more.
    """
    full_owners = {cause.owner for cause in causes if is_full(history, cause)}
    newest_holdings = _newest_holdings(history) or {}
    owners = dict.fromkeys(cause.owner for cause in causes if cause.holders)
    paths = owners or [path for path, size in newest_holdings.items() if size.is_root]  # no root lies in another
    held_growth = []
    for path in paths:
        _, own_bytes = _owner_sizes(history, path, owners)
        if own_bytes and path in newest_holdings:
            held_growth.append(HeldGrowth(path, own_bytes[-1] - own_bytes[0], is_full=path in full_owners))
    return sorted(held_growth, key=lambda growth: -growth.bytes)


def _newest_holdings(history: CensusHistory) -> Mapping[str, OwnerSize] | None:
    """Return the larger holdings of the newest census that the program's end cannot have emptied; None without one."""
    censuses = _censuses_before_end(history)
    return censuses[-1][1] if censuses else None


def _censuses_before_end(history: CensusHistory) -> list[tuple[int, Mapping[str, OwnerSize]]]:
    """Return the censuses, each with its step, without one that was taken as the program ended."""
    return history.censuses[:-1] if history.has_ended else history.censuses


def fallen_bytes(history: CensusHistory, owners: Sequence[str]) -> int:
    """Return the bytes that roots without an owner lost from the middle third of the steps to the last third.

    They hide the growth of the owners in the readings of the process.
    """
    censuses = _censuses_before_end(history)
    first_step, last_step = (censuses[0][0], censuses[-1][0]) if censuses else (0, 0)
    third = (last_step - first_step) / 3
    middle = [holdings for step, holdings in censuses if third <= step - first_step < 2 * third]
    late = [holdings for step, holdings in censuses if step - first_step >= 2 * third]
    if not middle:
        return 0
    lost_bytes = 0
    missing = OwnerSize(step=0, bytes=0)  # the size of a root that a census does not find
    for root, size in middle[-1].items():
        if not size.is_root or any(lies_below_root(owner, root) for owner in owners):
            continue
        # The least bytes, then the most: a root that is emptied and filled again loses nothing for good.
        middle_bytes = min(holdings.get(root, missing).bytes for holdings in middle)
        late_bytes = max(holdings.get(root, missing).bytes for holdings in late)
        lost_bytes += max(0, middle_bytes - late_bytes)
    return lost_bytes


def _recent_rate(steps: Sequence[float], sizes: Sequence[float]) -> float:
    """Return the bytes per step over the newer half of the censuses, or over more of them if these do not rise.

    It is 0 if no stretch up to the newest census rises.
    """
    middle_index = bisect_left(steps, (steps[0] + steps[-1]) / 2)
    # The newer half by steps may have too few censuses.
    begin = max(0, min(middle_index, len(steps) - MEASURING.minimum_censuses))
    # The newer half may lie between two jumps of the growth: then one earlier census after the other is taken in.
    for first_index in range(begin, -1, -1):
        rate = _median_slope(steps[first_index:], sizes[first_index:])
        if rate > 0:
            return rate
    return 0.0


def _share_between_censuses(steps: Sequence[float], sizes: Sequence[float], samples: Sequence[Sample]) -> float | None:
    """Return the share of an owner in the growth of the process from the first census after warm-up to the last.

    It is None if there is only one such census, or the process has gained too little between the two.

    Args:
        steps: step of each census.
        sizes: bytes of the owner at each census.
        samples: readings of the process.
    """
    # Both gains are taken over the same stretch: where growth comes in jumps, other stretches would be off by a jump.
    first_index = bisect_left(steps, samples_after_warm_up(samples)[0].reading.step)
    if first_index >= len(steps) - 1:  # fewer than two censuses after warm-up
        return None
    grown_bytes = _resident_bytes(samples, steps[-1]) - _resident_bytes(samples, steps[first_index])
    all_grown_bytes = growth_bytes(samples)
    if all_grown_bytes <= 0 or grown_bytes < MEASURING.minimum_owner_share * all_grown_bytes:
        return None
    return min(1.0, max(0.0, (sizes[-1] - sizes[first_index]) / grown_bytes))


def _median_slope(steps: Sequence[float], sizes: Sequence[float]) -> float:
    """Return the median of the slopes of all pairs of censuses, each weighted by its steps (Sievers 1978).

    It is 0 without a pair. Where growth comes in jumps, two censuses near to each other often show no slope; those far
    apart show the rate.
    """
    pairs = [(i, j) for i in range(len(steps)) for j in range(i + 1, len(steps))]
    weighted_slopes = sorted(((sizes[j] - sizes[i]) / (steps[j] - steps[i]), steps[j] - steps[i]) for i, j in pairs)
    weight_left = sum(weight for _, weight in weighted_slopes) / 2
    for slope, weight in weighted_slopes:
        weight_left -= weight
        if weight_left <= 0:  # this slope and the smaller ones have half of all weight
            return slope
    return 0.0


def _resident_bytes(samples: Sequence[Sample], step: float) -> int:
    """Return the resident bytes at the reading of a step, at the first one after it, or else at the last reading."""
    index = bisect_left([sample.reading.step for sample in samples], step)
    return samples[min(index, len(samples) - 1)].resident


def _owner_sizes(history: CensusHistory, owner: str, owners: Iterable[str] = ()) -> tuple[list[OwnerSize], list[float]]:
    """Return two lists: the size of an owner at each census, and its bytes there without those of `owners` below it.

    The owner has 0 bytes before the first census that finds it. A later census is left out if it misses the owner, if
    it read the owner at the same step as the census before, or if it was taken as the program ended and finds less.
    """
    inner_owners = [other for other in owners if other != owner and lies_below_root(other, owner)]
    owner_sizes: list[OwnerSize] = []
    own_bytes: list[float] = []
    was_present = False
    for begin_step, holdings in history.censuses:
        size = holdings.get(owner, OwnerSize(begin_step, bytes=0))
        is_missed = was_present and owner not in holdings
        is_same_reading = bool(owner_sizes) and size.step <= owner_sizes[-1].step
        if is_missed or is_same_reading:
            continue
        was_present = owner in holdings
        owner_sizes.append(size)
        own_bytes.append(size.bytes - sum(holdings[inner].bytes for inner in inner_owners if inner in holdings))
    if history.has_ended and len(owner_sizes) > 1 and owner_sizes[-1].bytes < owner_sizes[-2].bytes:
        return owner_sizes[:-1], own_bytes[:-1]
    return owner_sizes, own_bytes
