"""The end of a file of metrics is what reading it whole says, and costs no more where the file is long."""

import json
from math import isfinite
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatwater.metrics import last_records
from flatwater.metrics.jsonl import read_metrics
from flatwater.metrics.jsonl_lines import FollowedFile, read_appended_records_
from flatwater.metrics.last_records import last_lines_start, read_last
from flatwater_watch.errors import RunError
from flatwater_watch.files.json_values import MAXIMUM_NUMBER

VALUES = st.one_of(st.none(), st.floats(-MAXIMUM_NUMBER, MAXIMUM_NUMBER), st.integers(-9, 9))
ROUNDS = st.lists(st.dictionaries(st.sampled_from(["a", "a/b", 'q"uote', "é"]), VALUES, max_size=4), max_size=30)


@given(ROUNDS, st.sampled_from(["", '{"round": 9', "\n", '{"a": 1}\n']), st.sampled_from([7, 64, 1 << 20]))
def test_the_end_is_what_the_whole_file_says(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[dict[str, float | None]], torn: str, block: int
) -> None:
    path = tmp_path_factory.mktemp("tail") / "metrics.jsonl"
    path.write_text("".join(json.dumps({"round": at + 1} | each) + "\n" for at, each in enumerate(rounds)) + torn)
    columns = read_metrics(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(last_records, "FIRST_BLOCK_BYTES", block)
        patch.setattr(last_records, "BLOCK_BYTES", block)
        for name in ("a", "a/b", 'q"uote', "é", "missing"):
            record, number = read_last(path, name)
            known = [value for value in columns.get(name, []) if isfinite(value)]
            assert number == (known[-1] if known else None)
            assert (record is None) == (not rounds)
            assert record is None or record["round"] == len(rounds)


def test_reading_begins_so_many_lines_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps({"round": at}) + "\n" for at in range(1, 1001)) + '{"round"')
    for last in (1, 5, 999, 1000, 2000):
        seen = [record["round"] for record in read_appended_records_(FollowedFile(path, last_lines=last))]
        assert seen == list(range(max(1, 1001 - last), 1001))


@pytest.mark.parametrize("content", [b"x" * (9 << 20), b"\0" * (9 << 20), b'{"round": 1}\n[]\nx\n'])
def test_a_line_that_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(content)
    with pytest.raises(RunError, match=r"4\.00 MiB|last line is not a record"):
        read_last(path, "a")


def test_a_hole_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with path.open("rb") as file, pytest.raises(OSError, match="MiB"):
        last_lines_start(file, 1)
