"""What a ledger and a plan say, read back: parts add up, nothing planned or held is left out."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatwater.memory.planner import Plan
from flatwater.rundir.records import (
    REST,
    largest_groups,
    parse_ledger_line,
    planned_and_held_rows,
    read_plan,
    resident_parts,
)
from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.diagnose.finding_text import headline
from flatwater_watch.errors import RunError

SIZES = st.integers(9, 1 << 40)
PATHS = st.from_regex(r"[a-z]{1,3}(\.[a-z]{1,3}){0,3}", fullmatch=True)


@given(owned=st.dictionaries(PATHS, SIZES), numbers=st.integers(0, 400), rest=st.integers(-(1 << 30), 1 << 40))
def test_the_parts_add_up_to_what_is_resident(owned: dict[str, int], numbers: int, rest: int) -> None:
    held = sum(owned.values()) + numbers
    record = {"round": 1, "file_mapped": 70, "base": 50, "slack": 3, "unaccounted": rest, "owned": owned}
    line = parse_ledger_line(record | {"owned_bytes": held, "resident": 70 + 50 + 3 + rest + held}, LEDGER)
    for most in (0, 2, 100):
        found = resident_parts(line, largest_groups([line], most))
        assert sum(found.values()) == line.resident
        assert found[REST] == rest
        assert min(size for name, size in found.items() if name != REST) >= 0


@given(
    owned=st.dictionaries(PATHS, SIZES), missing=st.dictionaries(PATHS, st.integers(0, 99)), numbers=st.integers(0, 9)
)
def test_planned_and_held_are_complete(owned: dict[str, int], missing: dict[str, int], numbers: int) -> None:
    planned = missing | {path: size + 1 for path, size in owned.items()}
    plan = Plan(owners=planned, transients={}, base_bytes=1, limits={"all": 1})
    line = parse_ledger_line({"round": 1, "owned": owned, "owned_bytes": sum(owned.values()) + numbers}, LEDGER)
    rows = planned_and_held_rows(plan, line)
    assert sum(row[1] for row in rows) == plan.total_bytes
    assert sum(row[2] for row in rows) == sum(owned.values()) + (numbers if sum(owned.values()) + numbers else 0)
    listed = {row[0]: row[1:] for row in rows}
    for path, size in owned.items():
        assert listed[path] == (size + 1, size)
    for path, size in missing.items():
        assert path in owned or size <= 8 or listed[path] == (size, 0)


LEDGER = Path("ledger.jsonl")


def test_a_plan_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    assert read_plan(path) is None
    plan = Plan(
        {"replay.row": 9, "n": 8}, {"learn": 5}, 3, {"ulimit": 99, "cgroup": 50}, 40, ("smaller batches",), [7, 6]
    )
    path.write_text(json.dumps(plan.to_json()))
    found = read_plan(path)
    assert found is not None
    assert found.to_json() == plan.to_json()
    path.write_text("{}")
    with pytest.raises(RunError, match=r"plan\.json: cannot be read as a plan"):
        read_plan(path)


def test_a_ledger_that_says_less_reads_as_zero() -> None:
    line = parse_ledger_line({"round": 4, "allocator": None, "cuda": None}, LEDGER)
    assert (line.round, line.resident, line.owned_bytes, line.phases) == (4, 0, 0, {})
    assert line.in_use is None
    assert line.cuda_allocated is None


def test_a_headline_agrees_with_an_owner_that_is_a_plural() -> None:
    found = Finding(
        verdict="leak", owner="pyplot's figures", holders=(), made_at=None, bytes_per_step=2 << 20, interval=(1.0, 2.0),
        share=1.0, count=1, what="1 × Figure", plateau_bytes=None, plateau_step=None, limit_bytes=None, limit_step=None,
        advice="Close them.",
    )  # fmt: skip
    assert headline(found) == "pyplot's figures grow by 2.00 MiB a round, and nothing ends it"
    assert headline(replace(found, owner="train.HALL")) == "train.HALL grows by 2.00 MiB a round, and nothing ends it"
    assert headline(replace(found, verdict="filling")) == "pyplot's figures are filling by 2.00 MiB a round"
    assert headline(replace(found, verdict="backlog")).startswith("pyplot's figures take in more than is taken out: ")
