"""A kept result is read as JSON reads it, and a large one at a bounded price."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from watched import LEAK

from flatwater_watch.agent.spool import unwatched_summary
from flatwater_watch.faces import bounded_result
from flatwater_watch.faces.bounded_result import read_record


def write_record(folder: Path, found: object) -> Path:
    path = folder / "watch.json"
    path.write_text(json.dumps(found))
    return path


def of_readings(count: int) -> dict[str, Any]:
    series: dict[str, list[Any]] = {name: list(range(count)) for name in unwatched_summary("", "")["series"]}
    series["freed_bytes"] = [None] * count
    series["seconds"] = [0.25 * at for at in range(count)]
    return unwatched_summary("train.py", "") | {"readings": count, "series": series, "unseen": []}


@pytest.mark.parametrize(
    "found",
    [
        unwatched_summary("train.py", "why"),
        of_readings(0),
        of_readings(1),
        of_readings(bounded_result.MAXIMUM_POINTS),
        unwatched_summary("", "")
        | {"findings": [LEAK.to_json()], "held": {"train.KEPT": [1, 2]}, "more": {"a": [None, True]}},
        {"findings": "text", "series": {"seconds": "1,2"}},
        {"findings": {}, "series": {}},
        {},
        [],
        [1, 2],
        "text",
        3,
        None,
    ],
)
def test_what_is_small_is_read_as_json_reads_it(tmp_path: Path, found: object) -> None:
    assert read_record(write_record(tmp_path, found)) == found


@pytest.mark.parametrize(
    "count",
    [
        bounded_result.MAXIMUM_POINTS + 1,
        3 * bounded_result.MAXIMUM_POINTS - 1,
        3 * bounded_result.MAXIMUM_POINTS,
        100_003,
    ],
)
@pytest.mark.parametrize("piece", [7, 1 << 20])
def test_columns_are_thinned_alike_and_keep_their_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, piece: int
) -> None:
    monkeypatch.setattr(bounded_result, "PIECE_BYTES", piece)
    whole = of_readings(count)
    read = read_record(write_record(tmp_path, whole))
    stride = -(-count // bounded_result.MAXIMUM_POINTS)
    kept = [*range(0, count, stride)]
    kept += [] if kept[-1] == count - 1 else [count - 1]
    assert read["series"] == {name: [column[at] for at in kept] for name, column in whole["series"].items()}
    assert len(kept) <= bounded_result.MAXIMUM_POINTS + 1
    (said,) = read["unseen"]
    assert f"one in {stride} " in said
    assert read["readings"] == count
    assert list(read) == list(whole)


def test_of_many_findings_the_first_are_read_and_that_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_result, "PIECE_BYTES", 1000)
    many = [LEAK.to_json() | {"owner": f"train.KEPT[{at}]"} for at in range(bounded_result.MAXIMUM_FINDINGS + 7)]
    read = read_record(write_record(tmp_path, unwatched_summary("train.py", "") | {"findings": many, "unseen": []}))
    assert read["findings"] == many[: bounded_result.MAXIMUM_FINDINGS]
    (said,) = read["unseen"]
    assert said.startswith("7 findings of 507")


def test_secrets_that_an_earlier_version_kept_are_not_read(tmp_path: Path) -> None:
    read = read_record(write_record(tmp_path, unwatched_summary("train.py --password=hunter2", "https://u:hunter2@h/")))
    assert "hunter2" not in json.dumps(read)


@pytest.mark.parametrize(
    "text",
    ["", "{", '{"findings": [1, 2', '{"series": {"seconds": [1, 2}}', "[" * 200_000, '{"a":' * 200_000, "\xff", "nul"],
)
def test_what_is_no_json_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "watch.json"
    path.write_text(text, "latin-1")
    with pytest.raises((ValueError, RecursionError)):
        read_record(path)


@pytest.mark.parametrize("where", ["held", "findings", "unseen"])
def test_a_record_that_has_too_much_elsewhere_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(bounded_result, "OTHER_BYTES", 10_000)
    monkeypatch.setattr(bounded_result, "PIECE_BYTES", 1000)
    value: Any = {"held": {"a": "x" * 20_000}, "findings": [{"what": "x" * 20_000}], "unseen": ["x" * 20_000]}[where]
    with pytest.raises(ValueError, match=r"has|have"):
        read_record(write_record(tmp_path, unwatched_summary("", "") | {where: value}))


@pytest.mark.long
def test_a_long_record_is_read_in_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_record(tmp_path, of_readings(300_000))
    size = path.stat().st_size
    monkeypatch.setattr(bounded_result, "RESULT_BYTES", size)  # so much is set aside before the file is read
    tracemalloc.start()
    read_record(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * size  # built, it has 12 times as much
