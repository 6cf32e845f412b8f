"""What is taken of a container that is opened."""

from hypothesis import given
from hypothesis import strategies as st

from flatwater_watch.heap.view import evenly_spaced_slice


@given(count=st.integers(0, 200), later=st.integers(0, 200), draw=st.integers(1, 64))
def test_what_another_thread_appends_after_the_count_is_not_taken(count: int, later: int, draw: int) -> None:
    taken = range(count + later)[evenly_spaced_slice(count, draw)]
    assert [*taken] == [*range(count)[:: -(-count // draw) or 1]]
    assert len(taken) <= draw
