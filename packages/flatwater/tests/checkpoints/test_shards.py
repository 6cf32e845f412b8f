"""Leaves are packed in order, never beyond the limit, and lie where readers that map the file can use them."""

import json
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from flatwater.checkpoints.shards import TensorEntry, group_into_shards, shard_header


@dataclass(frozen=True)
class Item:
    number: int
    nbytes: int


@given(sizes=st.lists(st.integers(0, 30), max_size=30), limit=st.integers(1, 25))
def test_every_item_is_in_one_group_and_no_two_share_more_than_the_limit(sizes: list[int], limit: int) -> None:
    items = [Item(number, size) for number, size in enumerate(sizes)]
    groups = list(group_into_shards(items, limit))
    assert sorted((item for group in groups for item in group), key=lambda item: item.number) == items
    for group in groups:
        assert group == sorted(group, key=lambda item: item.number)
        assert len(group) == 1 or sum(item.nbytes for item in group) <= limit
    small = [group for group in groups if sum(item.nbytes for item in group) <= limit]
    for group, after in pairwise(small):
        assert sum(item.nbytes for item in group) + after[0].nbytes > limit, "a group was closed with room left"


@given(counts=st.lists(st.tuples(st.sampled_from([1, 2, 4, 8]), st.integers(0, 9)), max_size=9))
def test_items_lie_end_to_end_at_multiples_of_their_size(counts: list[tuple[int, int]]) -> None:
    group = {
        f"leaf.{at}": TensorEntry(dtype="X", shape=(count,), itemsize=size, nbytes=size * count)
        for at, (size, count) in enumerate(sorted(counts, reverse=True))
    }
    start = shard_header(group)
    places = json.loads(start[8:])
    assert len(start) == 8 + int.from_bytes(start[:8], "little")
    assert len(start) % 8 == 0
    end = 0
    for name, stored in group.items():
        begin, after = places[name]["data_offsets"]
        assert (begin, after) == (end, end + stored.nbytes)
        assert begin % stored.itemsize == 0
        end = after
