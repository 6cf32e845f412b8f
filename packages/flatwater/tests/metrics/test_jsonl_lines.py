"""Lines of a `.jsonl` are read once, whole and in order, however the file grows, is cut or is replaced."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatwater.metrics.jsonl_lines import (
    FollowedFile,
    read_appended_records_,
    read_records,
    rewind_if_replaced_,
    spread_indexes,
)
from flatwater_watch.errors import RunError


@given(count=st.integers(0, 5000), most=st.integers(2, 700))
def test_thinned_keeps_the_ends_and_the_spread(count: int, most: int) -> None:
    kept = spread_indexes(count, most)
    assert len(kept) == min(count, most)
    assert kept == sorted(set(kept))
    if count:
        assert (kept[0], kept[-1]) == (0, count - 1)
    gaps = {later - earlier for earlier, later in pairwise(kept)}
    assert not gaps or max(gaps) - min(gaps) <= 1


@given(st.lists(st.integers(1, 60), max_size=30))
def test_a_followed_file_gives_every_line_once_wherever_its_writer_stops(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[int]
) -> None:
    path = tmp_path_factory.mktemp("lines") / "ledger.jsonl"
    whole = b"".join(json.dumps({"round": n, "of": "é" * (n % 5)}).encode() + b"\n" for n in range(1, 25))
    tail, seen, at = FollowedFile(path), [], 0
    for piece in [*pieces, len(whole)]:
        with path.open("ab") as file:
            file.write(whole[at : at + piece])
        at = min(len(whole), at + piece)
        assert not rewind_if_replaced_(tail)
        seen += [record["round"] for record in read_appended_records_(tail)]
        assert seen == list(range(1, whole[:at].count(b"\n") + 1))
    assert [record["round"] for record in read_records(path, 100)] == seen


def test_a_file_that_a_resumed_run_cut_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text("".join(f'{{"round": {n}}}\n' for n in range(1, 9)))
    tail = FollowedFile(path)
    assert not rewind_if_replaced_(tail)
    assert len(list(read_appended_records_(tail))) == 8
    longer = tmp_path / "new"  # in its place another file, and a longer one
    longer.write_text("".join(f'{{"round": {n}, "again": true}}\n' for n in range(1, 12)))
    longer.replace(path)
    assert rewind_if_replaced_(tail)
    assert len(list(read_appended_records_(tail))) == 11
    path.write_text('{"round": 1}\n')  # the same file, shorter
    assert rewind_if_replaced_(tail)
    assert [record["round"] for record in read_appended_records_(tail)] == [1]
    assert not rewind_if_replaced_(tail)


def test_a_file_that_is_not_there_yet_has_no_lines(tmp_path: Path) -> None:
    tail = FollowedFile(tmp_path / "findings.jsonl")
    assert not rewind_if_replaced_(tail)
    assert list(read_appended_records_(tail)) == read_records(tail.path, 100) == []


def test_a_damaged_line_is_told_and_a_torn_last_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(b'{"round": 1}\n{"rou')
    assert read_records(path, 100) == list(read_appended_records_(FollowedFile(path))) == [{"round": 1}]
    path.write_bytes(b'{"round": 1}\n{"rou\n{"round": 3}\n')
    with pytest.raises(RunError, match="not a record"):
        read_records(path, 100)
    with pytest.raises(RunError, match="not a record"):
        list(read_appended_records_(FollowedFile(path)))


def test_only_wanted_lines_are_parsed(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = [f'{{"round": {n}}}' for n in range(1, 12)]
    lines[1] = "damaged"
    path.write_text("\n".join(lines) + "\n")
    assert [record["round"] for record in read_records(path, 3)] == [1, 6, 11]
