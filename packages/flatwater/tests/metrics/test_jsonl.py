"""The record of a run: nothing written is lost, and a resumed run's record is that of one that was never killed."""

import json
import subprocess
import sys
import tracemalloc
from math import inf, isnan, nan
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatwater.metrics.jsonl import JsonlSink, encode_line, read_metrics
from flatwater_watch.errors import RunError


def write_rounds(path: Path, rounds: range, *, resume_at: int = 0) -> None:
    sink = JsonlSink(path, resume_at=resume_at)
    for n in rounds:
        sink.write(n, {"fitness/mean": n / 3, "updates": n})
    sink.close()


@settings(max_examples=15)  # each writes and flushes dozens of lines
@given(last=st.integers(0, 9), resume_at=st.integers(0, 9), torn=st.integers(0, 60))
def test_a_resumed_record_is_that_of_an_unbroken_run(
    tmp_path_factory: pytest.TempPathFactory, last: int, resume_at: int, torn: int
) -> None:
    """Killed after any round, with any part of the next line written, and resumed at any round not after it."""
    resume_at = min(last, resume_at)
    folder = tmp_path_factory.mktemp("record")
    broken, whole = folder / "broken.jsonl", folder / "whole.jsonl"
    write_rounds(broken, range(1, last + 1))
    half = encode_line(last + 1, {"fitness/mean": (last + 1) / 3, "updates": last + 1})[:-1][:torn]
    with broken.open("ab") as file:
        file.write(half)

    write_rounds(broken, range(resume_at + 1, 13), resume_at=resume_at)

    write_rounds(whole, range(1, 13))
    assert broken.read_bytes() == whole.read_bytes()
    assert {path.name for path in folder.iterdir()} == {"broken.jsonl", "whole.jsonl"}


def test_a_line_is_on_the_disk_when_write_returns(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path / "metrics.jsonl")
    sink.write(1, {"a": 1})
    assert (tmp_path / "metrics.jsonl").read_text() == '{"round":1,"a":1}\n'
    sink.close()


def test_what_is_not_finite_is_null_in_the_file_and_nan_when_read(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path / "metrics.jsonl")
    sink.write(1, {"a": nan, "b": -inf, "c": 0.1 + 0.2, "lists": [1.0, nan, {"deep": inf}]})
    sink.close()
    line = (tmp_path / "metrics.jsonl").read_text()
    assert json.loads(line, parse_constant=pytest.fail) == {
        "round": 1, "a": None, "b": None, "c": 0.1 + 0.2, "lists": [1.0, None, {"deep": None}],
    }  # fmt: skip


def test_a_last_line_without_its_end_is_cut_not_joined_to_the_next(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"round": 1}\n{"round": 2}')
    write_rounds(path, range(2, 4), resume_at=2)
    assert read_metrics(path)["round"] == [1, 2, 3]


def test_columns_are_aligned_by_round(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    sink = JsonlSink(path)
    sink.write(1, {"a": 1.5})
    sink.write(2, {"a": nan, "b": 7})
    sink.close()
    with path.open("ab") as file:
        file.write(b'{"round": 3, "a"')
    columns = read_metrics(path)
    assert list(columns) == ["round", "a", "b"]
    assert columns["round"] == [1, 2]
    assert (columns["a"][0], columns["b"][1]) == (1.5, 7)
    assert isnan(columns["a"][1])
    assert isnan(columns["b"][0])


def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"round": 1}\n{"rou\n{"round": 3}\n')
    with pytest.raises(RunError, match=r"metrics\.jsonl: line 2 is not a record"):
        read_metrics(path)


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="No such file or directory"):
        read_metrics(tmp_path / "metrics.jsonl")
    with pytest.raises(RunError, match="No such file or directory"):
        JsonlSink(tmp_path / "nowhere" / "metrics.jsonl")


FULL_DISK = """
import resource, sys
from pathlib import Path
from flatwater_watch.errors import RunError
from flatwater.metrics.jsonl import JsonlSink
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
sink, path = JsonlSink(Path(sys.argv[1])), Path(sys.argv[1])
try:
    for n in range(1, 20):
        sink.write(n, {"a": 0.123456789})
except RunError as fault:
    print(n, fault)
sink.close()
"""


def test_a_full_disk_ends_with_a_sentence_and_a_readable_record(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    ran = subprocess.run([sys.executable, "-c", FULL_DISK, path], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "metrics.jsonl: " in ran.stdout
    assert "Free some space" in ran.stdout
    refused = int(ran.stdout.split(maxsplit=1)[0])
    assert read_metrics(path)["round"] == list(range(1, refused))


def test_resuming_a_long_record_does_not_hold_it(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"".join(encode_line(n, {"text": "x" * 4_000}) for n in range(1, 1_001)))
    tracemalloc.start()
    try:
        JsonlSink(path, resume_at=999).close()
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(path.read_bytes().splitlines()) == 999
    assert held < 1 << 20, "of 4 MB"
