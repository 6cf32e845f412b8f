"""Rates and shares of owners, from censuses taken at any moment of a growth in stairs."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from watched import GROWING, MIB, rate_of, rows

from flatwater_watch.agent.census_history import (
    MAXIMUM_CENSUSES,
    CensusHistory,
    HeldGrowth,
    OwnerSize,
    filled_bytes,
    has_stopped,
    held_growth,
    measure_growth,
    record_census_,
)
from flatwater_watch.agent.conclusion import decide_outcome
from flatwater_watch.agent.growth import Sample, choose_scale, explained_share, late_growth
from flatwater_watch.agent.summary import build_summary, judge_causes, select_growing_causes
from flatwater_watch.diagnose.evidence import GARBAGE_OWNER, Evidence, MeasuredGrowth
from flatwater_watch.heap.census import Census, Holding

OWNER = GROWING.owner
STAIR = 4
"""Boundaries from one stair to the next."""


def census(**sizes: int) -> Census:
    """A census of lists, by the last part of their path; `KEPT` is the owner's."""
    paths = {f"train.{name}": size for name, size in sizes.items()}
    holdings = {path: Holding(path, None, "list", 1, None, size, items=size / MIB) for path, size in paths.items()}
    return Census(holdings, visited=0, truncated=False, seconds=0.0, containers={})


def history_of(clocks: Iterable[int], size: Callable[[int], int]) -> CensusHistory:
    marks = CensusHistory()
    for clock in clocks:
        record_census_(marks, clock, census(KEPT=size(clock)))
    return marks


def stairs(clock: int) -> int:
    """One MiB a boundary, but added four at a time."""
    return clock // STAIR * STAIR * MIB


def require_growth(
    history: CensusHistory, samples: list[Sample], cause: Evidence = GROWING, owners: tuple[str, ...] = (OWNER,)
) -> MeasuredGrowth:
    found = measure_growth(cause, history, owners, samples)
    assert found is not None
    return found


@example({1, 76, 77, 79})
@given(st.sets(st.integers(1, 80), min_size=4))
def test_growth_in_stairs_is_told_by_whole_stairs(drawn: set[int]) -> None:
    """Wherever the censuses fall; a rate between two moments is off by a stair, the share is not."""
    resident = rows([400 * MIB + stairs(clock) for clock in range(81)], steps_each=1)
    marks = history_of(sorted(drawn | {18, 78}), stairs)
    told = require_growth(marks, resident, replace(GROWING, drift=rate_of(4.0 * MIB)))
    assert told.share == pytest.approx(1.0)
    assert told.rate.per_step == pytest.approx(MIB, rel=0.5)


def test_half_of_the_growth_is_half_a_share() -> None:
    resident = rows([400 * MIB + 2 * stairs(clock) for clock in range(81)], steps_each=1)
    assert require_growth(history_of(range(3, 80, 7), stairs), resident).share == pytest.approx(0.5, rel=0.1)


def test_sizes_beyond_all_that_came_tell_no_rate() -> None:
    """Items that are drawn may reach each other, and count many times then."""
    resident = rows([400 * MIB + stairs(clock) for clock in range(81)], steps_each=1)
    marks = history_of(range(3, 80, 7), lambda clock: 30 * stairs(clock))
    for told, rate in ((MIB, MIB), (90 * MIB, 30 * MIB)):
        found = require_growth(marks, resident, replace(GROWING, drift=rate_of(float(told))))
        assert found.rate.per_step == pytest.approx(rate, rel=0.1)


def test_what_began_late_is_told_at_its_pace_since() -> None:
    marks = history_of([1, 400, 1000, 1010, 1020, 1030], lambda clock: max(0, clock - 1000) * MIB)
    told = require_growth(marks, rows([0] * 21, steps_each=60), replace(GROWING, drift=rate_of(2.0 * MIB)))
    assert told.rate[:3] == pytest.approx((MIB, 0.5 * MIB, 2 * MIB))


def test_what_lies_in_another_owner_counts_there() -> None:
    marks, inner = CensusHistory(), f"{OWNER}.frames"
    for clock in range(1, 11):
        both = census(**{"KEPT": 3 * clock * MIB, "KEPT.frames": 2 * clock * MIB})
        record_census_(marks, clock, both)
    resident = rows([clock * 3 * MIB for clock in range(11)], steps_each=1)
    found = [replace(GROWING, owner=owner, drift=rate_of(1.0)) for owner in (OWNER, inner)]
    rates = [require_growth(marks, resident, each, (OWNER, inner)).rate.per_step for each in found]
    assert rates == pytest.approx([MIB, 2 * MIB])


def test_a_census_that_misses_an_owner_says_nothing_of_it() -> None:
    marks = history_of(range(1, 6), lambda clock: clock * MIB)
    record_census_(marks, 6, census(OTHER=MIB))
    record_census_(marks, 7, census(KEPT=7 * MIB))
    told = require_growth(marks, rows([i * MIB for i in range(8)], steps_each=1))
    assert told.rate.per_step == pytest.approx(MIB)


def test_the_forecast_goes_by_the_rate_of_all_censuses() -> None:
    """Two looks near to each other had said twice as much."""
    plain = rows([400 * MIB + i * MIB for i in range(81)], steps_each=1)
    limited = [row._replace(reading=row.reading._replace(limit=1000 * MIB)) for row in plain]
    marks = history_of(range(2, 80, 6), lambda clock: clock * MIB)
    looked = replace(GROWING, drift=rate_of(2.0 * MIB), plateau_step=None)
    scale = choose_scale(limited, "boundary")._replace(unit="boundary", per_unit=1.0, units=80)
    (told,) = judge_causes(select_growing_causes([looked], limited, {OWNER: 10}, marks), [], limited, scale)
    assert told.limit_step == 80 + 520


def test_a_container_that_the_program_empties_as_it_ends_has_grown() -> None:
    """moto forgets what it stored when its decorator ends: the finding was lost."""
    resident = rows([400 * MIB + clock * MIB for clock in range(81)], steps_each=1)
    marks = history_of([2, 20, 50], lambda clock: clock * MIB)
    before = require_growth(marks, resident)
    marks.has_ended = True
    record_census_(marks, 80, census(KEPT=MIB))
    assert require_growth(marks, resident) == before
    assert select_growing_causes([GROWING], resident, {OWNER: 10}, marks) != []


def test_causes_that_share_a_growth_are_over_when_the_process_is_level() -> None:
    """A window was full after a third of the run, and four tables of it were each compared with the growth of all."""
    parts = [replace(GROWING, owner=f"train.{name}", drift=rate_of(MIB / 4)) for name in "ABCD"]
    found_steps = dict.fromkeys((part.owner for part in parts), 10)
    dense_then_rare = [*range(24), *range(24, 81, 4)]

    def active_count(level: int) -> int:
        # The process gains a little more later, as much as lets each cause alone go on.
        sizes = [400 * MIB + min(step, level) * MIB + max(0, step - 40) * MIB // 8 for step in range(81)]
        samples = rows(sizes, steps_each=1)
        read_samples = [samples[step] for step in dense_then_rare]
        return len(select_growing_causes(parts, read_samples, found_steps, CensusHistory()))

    assert active_count(24) == 0
    assert active_count(81) == len(parts)


def test_a_server_that_waits_at_its_end_has_grown() -> None:
    """Its leak was told while requests came, and no more after it had waited for some seconds."""
    resident = rows([(400 + min(clock, 45)) * MIB for clock in range(81)], steps_each=1)
    served = [sample._replace(counts={"request": 3 * min(clock, 45)}) for clock, sample in enumerate(resident)]
    assert late_growth(served) == (30, MIB, False)


def test_child_processes_and_garbage_grow_while_the_process_is_level() -> None:
    """Each child process has private bytes of its own; garbage falls with each collection."""
    level = rows([400 * MIB] * 81, steps_each=1)
    children = [
        sample._replace(reading=sample.reading._replace(children=sample.reading.step * MIB)) for sample in level
    ]
    assert len(select_growing_causes([GROWING], children, {OWNER: 10}, CensusHistory())) == 1
    sawtooth = rows([(400 + clock % 10) * MIB for clock in range(80)] + [410 * MIB], steps_each=1)
    garbage = replace(GROWING, owner=GARBAGE_OWNER)
    assert len(select_growing_causes([garbage], sawtooth, {GARBAGE_OWNER: 10}, CensusHistory())) == 1


def test_causes_that_share_a_growth_are_over_where_readings_are_too_rare_for_a_third() -> None:
    """Each of four causes alone would go on with what the process still gains; all of them together do not."""
    parts = [replace(GROWING, owner=f"train.{name}", drift=rate_of(MIB / 4)) for name in "ABCD"]
    found_steps = dict.fromkeys((part.owner for part in parts), 20)

    def growing_count(late_share: float) -> int:
        sizes = [400 * MIB + round((min(step, 24) + late_share * max(0, step - 24)) * MIB) for step in range(81)]
        samples = rows(sizes, steps_each=1)
        read_samples = [samples[step] for step in (*range(25), 51, 70, 80)]
        assert late_growth(read_samples) is None
        return len(select_growing_causes(parts, read_samples, found_steps, CensusHistory()))

    assert growing_count(0.15) == 0, "more than 30 % of one rate, and less of four"
    assert growing_count(0.5) == len(parts)


@given(st.floats(1.0, 3.0), st.floats(0.35, 1.0))
def test_causes_that_count_the_same_items_do_not_hide_that_growth_goes_on(ratio: float, late_share: float) -> None:
    """Their rates may be three times that of the process, and need not be gained in full by it."""
    parts = [replace(GROWING, owner=f"train.{name}", drift=rate_of(ratio * MIB / 3)) for name in "ABC"]
    found_steps = dict.fromkeys((part.owner for part in parts), 20)
    sizes = [400 * MIB + round((min(step, 24) + late_share * max(0, step - 24)) * MIB) for step in range(81)]
    samples = rows(sizes, steps_each=1)
    read_samples = [samples[step] for step in (*range(25), 51, 70, 80)]
    assert len(select_growing_causes(parts, read_samples, found_steps, CensusHistory())) == len(parts)


@given(st.integers(0, 3), st.floats(0.9, 1.05))
def test_a_window_that_is_full_does_not_grow_though_it_swings(phase: int, last_share: float) -> None:
    """What is past is forgotten now and then: the swing passed for growth at the low rate of the newest censuses."""

    def size(clock: int) -> int:
        return min(clock, 30) * MIB + (clock + phase) % 4 * MIB

    samples = rows([400 * MIB + size(clock) + max(0, clock - 50) * MIB // 20 for clock in range(81)], steps_each=1)
    marks = history_of((1, 5, 10, 20, 30, 40, 55), size)
    record_census_(marks, 80, census(KEPT=round(last_share * 30 * MIB)))
    slow = replace(GROWING, drift=rate_of(MIB / 20))
    assert select_growing_causes([slow], samples, {OWNER: 10}, marks) == []
    balanced_anew = history_of((1, 5, 10, 20), size)  # nodes of a tree
    for clock in (30, 55, 80):
        record_census_(balanced_anew, clock, census(OTHER=30 * MIB))
    assert select_growing_causes([slow], samples, {OWNER: 10}, balanced_anew) == []
    swinging = rows([400 * MIB + clock * MIB // 2 + (clock + phase) % 4 * MIB for clock in range(81)], steps_each=1)
    assert select_growing_causes([slow], swinging, {OWNER: 10}, history_of(range(1, 81, 8), stairs)) != []


def two_tables(growing: Callable[[int], int], other: Callable[[int], int], other_name: str = "CACHE") -> CensusHistory:
    marks = CensusHistory()
    for clock in (2, 10, 20, 30, 45, 60, 70, 80):
        record_census_(marks, clock, census(**{"KEPT": growing(clock), other_name: other(clock)}))
    return marks


def test_an_owner_that_grows_while_other_memory_falls_still_grows() -> None:
    """A cache that is let go gives back what a leak takes: the readings do not show whether it goes on."""
    level = rows([400 * MIB + min(clock, 40) * MIB for clock in range(81)], steps_each=1)
    found_steps = {OWNER: 10}

    def is_growing(marks: CensusHistory) -> bool:
        return bool(select_growing_causes([GROWING], level, found_steps, marks))

    def grown(clock: int) -> int:
        return clock * MIB

    assert is_growing(two_tables(grown, lambda clock: (90 - max(40, clock)) * MIB))
    assert not is_growing(two_tables(grown, lambda _: 50 * MIB))
    assert not is_growing(two_tables(grown, lambda clock: clock % 20 * 5 * MIB)), "emptied and filled again"
    inner = two_tables(grown, lambda clock: (90 - max(40, clock)) * MIB, "KEPT.nodes")
    assert is_growing(inner), "a root of its own here"
    for _, holdings in inner.censuses:
        holdings[f"{OWNER}.nodes"] = holdings[f"{OWNER}.nodes"]._replace(is_root=False)  # type: ignore[index]
    assert not is_growing(inner), "nodes of a tree that is balanced anew"


FILLING = replace(GROWING, verdict="filling", capacity=30, plateau_bytes=30 * MIB)


def bounded_history(clocks: Iterable[int], length: Callable[[int], int], item: float = 1.0) -> CensusHistory:
    marks = CensusHistory()
    for clock in clocks:
        items, size = length(clock), round(length(clock) * item * MIB)
        holding = Holding(OWNER, None, "dict", items, None, size, items=items)
        record_census_(marks, clock, Census({OWNER: holding}, visited=0, truncated=False, seconds=0.0, containers={}))
    return marks


@given(st.sets(st.integers(1, 79), min_size=1), st.integers(5, 80))
def test_a_container_that_is_full_is_flat_however_late_it_was_full(clocks: set[int], full_at: int) -> None:
    """An LRU cache whose bound is reached in the last part of a run: it was told to be full at a second before now."""

    def length(clock: int) -> int:
        return min(30, 30 * clock // full_at)

    samples = rows([400 * MIB + length(clock) * MIB for clock in range(81)], steps_each=1)
    marks = bounded_history(sorted(clocks | {80}), length)
    assert select_growing_causes([FILLING], samples, {OWNER: 4}, marks) == []
    (_, holdings), (last_step, last_holdings) = marks.censuses[-2:]
    assume(OWNER in holdings)  # a census that came too early saw no bytes of it
    fewer = last_holdings[OWNER]._replace(bytes=holdings[OWNER].bytes - 1)
    marks.censuses[-1], marks.has_ended = (last_step, {OWNER: fewer}), True
    assert select_growing_causes([FILLING], samples, {OWNER: 4}, marks) == [], "fewer bytes by chance"
    assert filled_bytes([FILLING], marks, samples) <= 30 * MIB


def test_what_is_not_full_or_goes_on_gaining_is_told() -> None:
    samples = rows([(400 + clock) * MIB for clock in range(81)], steps_each=1)
    clocks = (4, 20, 40, 60, 80)
    filling = bounded_history(clocks, lambda clock: clock // 3)
    longer = bounded_history(clocks, lambda clock: clock)
    heavier = bounded_history(clocks, lambda _: 30)
    last_step, holdings = heavier.censuses[-1]
    heavier.censuses[-1] = last_step, {OWNER: holdings[OWNER]._replace(bytes=50 * MIB)}
    for marks in (filling, longer, heavier):
        assert len(select_growing_causes([FILLING], samples, {OWNER: 4}, marks)) == 1
        assert filled_bytes([FILLING], marks, samples) == 0


def test_growth_in_a_container_that_is_full_is_no_open_question() -> None:
    samples = rows([(400 + clock) * MIB for clock in range(81)], steps_each=1)
    bounded = replace(FILLING, capacity=80)
    marks = bounded_history((4, 20, 40, 60, 80), lambda clock: clock)
    kept_bytes = filled_bytes([bounded], marks, samples)
    assert kept_bytes == pytest.approx(64 * MIB, rel=0.1), "since warm-up"
    assert decide_outcome(samples, [], 0.0).state == "unexplained"
    assert decide_outcome(samples, [], 0.0, filled_bytes=kept_bytes).state == "settled"
    summary = build_summary(
        samples, [], unit=None, counts=samples[-1].counts, unread={}, seconds=80.0, filled_bytes=kept_bytes,
        held_growth=held_growth([bounded], marks),
    )  # fmt: skip
    assert (summary["explained_share"], summary["outcome"]["holders"]) == (1.0, f"{OWNER} (full)")


def test_growth_beside_a_full_container_is_explained_by_both() -> None:
    samples = rows([(400 + 2 * clock) * MIB for clock in range(81)], steps_each=1)
    assert explained_share(samples, [], filled_bytes=64 * MIB) == pytest.approx(0.5)


def test_roots_hold_what_came_where_no_cause_is_known() -> None:
    """A table that was loaded in a moment. An owner that the newest census misses is gone, unless the program ended."""
    marks = history_of([4, 20, 40], lambda clock: 60 * MIB if clock > 4 else MIB)
    record_census_(marks, 60, census())
    assert held_growth([], marks) == held_growth([GROWING], marks) == []
    marks.has_ended = True
    inner = replace(GROWING, owner=f"{OWNER}.rows")
    for (step, holdings), size in zip(marks.censuses, (0, 50, 50, 0), strict=True):
        holdings[inner.owner] = OwnerSize(step, size * MIB)  # type: ignore[index]
    assert held_growth([], marks) == [HeldGrowth(OWNER, 59 * MIB, is_full=False)]
    assert [growth.bytes for growth in held_growth([GROWING, inner], marks)] == [50 * MIB, 9 * MIB], "each once"


def test_without_two_censuses_nothing_is_measured() -> None:
    assert measure_growth(GROWING, CensusHistory(), [OWNER], rows([0] * 5)) is None
    assert measure_growth(GROWING, history_of([3], stairs), [OWNER], rows([0] * 5)) is None


@given(st.sets(st.integers(2, 79), min_size=3), st.integers(2, 30))
def test_what_was_compiled_once_has_stopped_while_the_process_grows(drawn: set[int], full: int) -> None:
    """As many signatures as there are; what grows from the beginning to the end has not stopped."""
    clocks = sorted(drawn | {1, 40, 80})
    compiled = history_of(clocks, lambda clock: min(clock, full) * MIB)
    assert has_stopped(compiled, OWNER)
    growing = rows([400 * MIB + i * MIB for i in range(81)], steps_each=1)
    assert select_growing_causes([GROWING], growing, {}, compiled) == []
    assert not has_stopped(history_of(clocks, stairs), OWNER)
    assert not has_stopped(history_of(clocks, lambda clock: clock % 80 * MIB), OWNER), "emptied as the program ends"
    elsewhere = history_of([], stairs)
    for clock in clocks:  # other holders are reached first by now, and have the bytes of new items
        holding = Holding(f"train.{OWNER}", None, "list", clock, None, min(clock, full) * MIB, items=clock)
        record_census_(
            elsewhere, clock, Census({OWNER: holding}, visited=0, truncated=False, seconds=0.0, containers={})
        )
    assert not has_stopped(elsewhere, OWNER)
    assert not has_stopped(history_of([1, 80], lambda clock: min(clock, full) * MIB), OWNER), "two censuses show no end"


def handle_history(clocks: Iterable[int], count: Callable[[int], int]) -> CensusHistory:
    """Censuses of a dict of handles, which are a few bytes each in Python."""
    marks = CensusHistory()
    for clock in clocks:
        items = count(clock)
        holding = Holding(OWNER, None, "dict", items, None, 400 * items, items=items)
        record_census_(marks, clock, Census({OWNER: holding}, visited=0, truncated=False, seconds=0.0, containers={}))
    return marks


@given(st.sets(st.integers(2, 79)), st.integers(1, 30))
def test_handles_that_are_no_more_have_stopped_while_the_process_grows(drawn: set[int], full: int) -> None:
    """Eight files that netCDF4 keeps open were a leak: of what lies outside of Python a census sees the items only."""
    clocks = sorted(drawn | {1, 40, 80})
    handles = replace(GROWING, outside=True)
    growing = rows([400 * MIB + i * MIB for i in range(81)], steps_each=1)

    def is_growing(marks: CensusHistory) -> bool:
        return bool(select_growing_causes([handles], growing, {OWNER: 10}, marks))

    full_history = handle_history(clocks, lambda clock: min(clock, full))
    assert not is_growing(full_history)
    full_history.has_ended = True
    record_census_(full_history, 81, census(OTHER=MIB))
    assert not is_growing(full_history), "dropped as the program ends"
    assert is_growing(handle_history(clocks, lambda clock: clock // 10))
    assert is_growing(handle_history(clocks, lambda clock: 1000 + clock // 10)), "many were there at the beginning"
    assert is_growing(handle_history(clocks, lambda clock: 30 if clock < 80 else 0)), "closed at the last census"
    assert is_growing(handle_history([1, 80], lambda _: full)), "two censuses show no end"


@given(st.integers(1, 300))
def test_marks_are_bounded_and_keep_their_ends(count: int) -> None:
    marks = history_of(range(1, count + 1), stairs)
    assert len(marks.censuses) <= MAXIMUM_CENSUSES
    assert (marks.censuses[0][0], marks.censuses[-1][0]) == (1, count)
