"""The ledger's equation holds to the byte, and what nobody owns is seen."""

import mmap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatwater.memory.ledger import Effort, Statement, base_bytes, take_statement
from flatwater_watch.meters.allocator import AllocatorPages

MIB = 1 << 20
sizes = st.integers(0, 1 << 40)


@given(sizes, sizes, sizes, sizes, st.dictionaries(st.text(), sizes))
def test_the_parts_are_the_whole(resident: int, files: int, base: int, free: int, owned: dict[str, int]) -> None:
    found = Statement(resident, files, owned, base, AllocatorPages(in_use=0, free=2 * free, kept=free))
    assert found.file_mapped + found.base + found.owned_bytes + found.slack + found.unaccounted == resident


def test_nothing_is_unaccounted_when_the_base_is_taken() -> None:
    owned = {"a": 5 * MIB}
    found = take_statement(owned, base=base_bytes(owned))
    assert abs(found.unaccounted) < MIB // 4
    assert found.explained_share > 0.99


def test_pages_of_nobody_are_unaccounted_and_pages_of_an_owner_are_not() -> None:
    base = base_bytes({})
    with mmap.mmap(-1, 32 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block:
        for page in range(0, 32 * MIB, mmap.PAGESIZE):
            block[page] = 1
        nobody, owner = take_statement({}, base=base), take_statement({"block": 32 * MIB}, base=base)
    assert 24 * MIB < nobody.unaccounted < 40 * MIB
    difference = nobody.unaccounted - owner.unaccounted
    assert difference == pytest.approx(32 * MIB, abs=MIB // 2)  # the heap moves meanwhile


def test_a_record_lists_owners_and_leaves_single_numbers_out() -> None:
    record = Statement(100, 10, {"a": 40, "clock": 8}, 30, None).to_json()
    assert record["owned"] == {"a": 40}
    assert record["owned_bytes"] == 48
    assert record["allocator"] is None
    assert record["slack"] == 0


def test_speed_is_steps_over_seconds() -> None:
    assert Effort(seconds=2.0, cpu_seconds=1.0, steps=10, peak=None).to_json()["steps_per_second"] == 5.0
    assert Effort(seconds=0.0, cpu_seconds=0.0, steps=1, peak=1).to_json()["steps_per_second"] is None
