"""A container that is emptied and filled again did not leak; one that never comes back to its floor did."""

from collections.abc import Callable
from types import ModuleType

import pytest

from flatwater_watch.diagnose.owners import find_owners
from flatwater_watch.diagnose.reset_tracker import ResetTracker
from flatwater_watch.heap.census import take_census
from flatwater_watch.heap.roots import Roots
from flatwater_watch.thresholds import OWNING

Load = Callable[[str], ModuleType]
FOUND_AT = 100 << 20
LOOKS = OWNING.maximum_checks_between_resets
SOURCE = """
    TRACE, TABLES = [], [{}]
    def fill(length):
        while len(TRACE) < length:
            TRACE.append(bytearray(1000))
            TABLES[0][len(TABLES[0])] = bytearray(1000)
    def empty(floor=0):
        del TRACE[floor:]
"""


@pytest.fixture
def program(load: Load) -> ModuleType:
    return load(SOURCE)


@pytest.fixture
def levels(program: ModuleType) -> ResetTracker:
    """Follows a list that was found to grow to 40 items."""
    program.fill(20)
    before = take_census(Roots()).without_objects()
    program.fill(40)
    followed = ResetTracker()
    followed.track_owners(find_owners(before, take_census(Roots())), FOUND_AT)
    return followed


def see(levels: ResetTracker, program: ModuleType, *lengths: int) -> None:
    """Looks while the list has these lengths, one after the other."""
    for length in lengths:
        program.empty(length)
        program.fill(length)
        levels.check_lengths(Roots())


def test_what_each_episode_fills_anew_is_refilled(levels: ResetTracker, program: ModuleType) -> None:
    see(levels, program, 44, 12)
    assert levels.periodically_emptied_paths == set()  # it may be the end of the program
    see(levels, program, 48)
    assert levels.periodically_emptied_paths == {"train.TRACE"}


def test_what_only_grows_is_not(levels: ResetTracker, program: ModuleType) -> None:
    see(levels, program, *range(41, 60), 50, 61)
    assert levels.periodically_emptied_paths == set()


def test_what_is_emptied_at_the_end_is_not(levels: ResetTracker, program: ModuleType) -> None:
    see(levels, program, 60, 80, 0, 0)
    assert levels.periodically_emptied_paths == set()


def test_a_floor_that_rises_is_told_after_a_while(levels: ResetTracker, program: ModuleType) -> None:
    see(levels, program, 10, 50)
    assert levels.periodically_emptied_paths == {"train.TRACE"}
    see(levels, program, *(60 + 5 * n - 10 * (n % 2) for n in range(LOOKS)))
    assert levels.periodically_emptied_paths == set()


def test_what_is_emptied_is_no_cause_where_it_is_small_beside_what_came(
    levels: ResetTracker, program: ModuleType
) -> None:
    see(levels, program, 80, 12)
    assert levels.negligible_paths(FOUND_AT + (10 << 20)) == set()  # it may be the end of the program
    see(levels, program, 48)
    fullest = 80 * 1000
    assert levels.negligible_paths(FOUND_AT + fullest) == set(), "it may have that more each time"
    assert levels.negligible_paths(FOUND_AT + 10 * fullest) == {"train.TRACE"}
    assert levels.negligible_paths(FOUND_AT - fullest) == set()


def test_items_of_a_list_are_many_containers_and_are_not_followed(levels: ResetTracker) -> None:
    assert list(levels._containers) == ["train.TRACE"]
    assert levels.has_recent_container
