"""A counter tells of each boundary but those that it was granted, and knows how many those were."""

from collections.abc import Iterator

import pytest

from flatwater_watch.agent.call_counters import CallCounter, make_call_counter, set_listener


@pytest.fixture
def kinds_told() -> Iterator[list[str]]:
    """The kinds that somebody is told of."""
    kinds: list[str] = []
    set_listener(kinds.append)
    yield kinds
    set_listener(None)


@pytest.fixture
def counter() -> CallCounter:
    return make_call_counter("step")


def pass_boundaries(counter: CallCounter, boundaries: int) -> None:
    for _ in range(boundaries):
        counter.count_call()


def test_each_is_told_of_where_nothing_is_granted(counter: CallCounter, kinds_told: list[str]) -> None:
    pass_boundaries(counter, 3)
    assert kinds_told == ["step"] * 3
    assert counter.take_skipped_() == counter.skip_next_(2) == 0


def test_what_is_granted_is_counted_only(counter: CallCounter, kinds_told: list[str]) -> None:
    counter.skip_next_(5)
    pass_boundaries(counter, 4)
    assert counter.take_skipped_() == 4
    assert counter.take_skipped_() == 0
    pass_boundaries(counter, 3)
    assert counter.take_skipped_() == 1
    assert kinds_told == ["step"] * 2


def test_a_grant_takes_the_place_of_the_one_before(counter: CallCounter, kinds_told: list[str]) -> None:
    counter.skip_next_(5)
    pass_boundaries(counter, 2)
    assert counter.skip_next_(1) == 2
    pass_boundaries(counter, 1)
    assert counter.skip_next_(0) == 1
    pass_boundaries(counter, 1)
    assert counter.skip_next_(0) == 0
    assert kinds_told == ["step"]


def test_what_is_wrapped_shares_the_grant(counter: CallCounter, kinds_told: list[str]) -> None:
    double = counter.wrap(lambda factor, given: factor * given)
    triple = counter.wrap(lambda factor, given: factor * given)
    counter.skip_next_(3)
    assert double(2, 5) == 10
    pass_boundaries(counter, 1)
    assert triple(3, 5) == double(3, 5) == 15
    assert counter.take_skipped_() == 3
    assert kinds_told == ["step"]


def test_nobody_is_told_after_the_end(counter: CallCounter, kinds_told: list[str]) -> None:
    set_listener(None)
    assert counter.wrap(max)(3, 5) == 5
    assert not kinds_told
