"""A plan adds up, is held against the tightest limit, and refuses with its largest owners."""

import json
import re

import pytest

from flatwater.memory.planner import Plan, budget_text, group_bytes, require_fit
from flatwater_watch.errors import MemoryLimitError

GIB = 1 << 30


def plan(*, budget: int | None = None, limit: int = 100) -> Plan:
    return Plan(
        owners={"replay.action": 30, "replay.row": 10, "learner.actor": 20},
        transients={"evaluate": 5, "learn": 15},
        base_bytes=10,
        limits={"RAM": 1000, "cgroup": limit},
        budget=budget,
        suggestions=("replay.generations = 5: replay would take 20 B instead of 40 B",),
    )


def test_phases_do_not_overlap_so_the_highest_counts() -> None:
    assert plan().total_bytes == 60
    assert plan().transient_bytes == 15
    assert plan().needed_bytes == 10 + 60 + 15


@pytest.mark.parametrize(
    ("limit", "budget", "fits"),
    [(95, None, True), (94, None, False), (85, 85, True), (84, 90, False), (1000, 84, False)],
)
def test_it_fits_to_the_byte(limit: int, budget: int | None, fits: bool) -> None:  # noqa: FBT001
    """Without a budget 90 % of the tightest limit may be taken: 85 of 95 (85.5), and not 85 of 94 (84.6)."""
    assert plan(limit=limit, budget=budget).fits is fits


def test_what_does_not_fit_is_refused_with_owners_and_remedy() -> None:
    require_fit(plan(limit=95))
    with pytest.raises(MemoryLimitError) as refused:
        require_fit(plan(limit=80))
    said = str(refused.value)
    assert re.search(r"run .*85 B.* 72 B.* 80 B \(cgroup\).* 90%", said)
    assert "replay.action 30 B, learner.actor 20 B, replay.row 10 B" in said
    assert "replay.generations = 5: replay " in said
    assert "20 B instead of 40 B" in said
    assert "--budget" in said
    assert refused.value.exit_code == 3


def test_a_budget_of_the_user_is_named() -> None:
    assert re.match(r"1\.00 GiB .*\(--budget\).* 100 B \(cgroup\)$", budget_text(plan(budget=GIB)))


def test_the_json_has_what_was_promised() -> None:
    found = json.loads(json.dumps(plan(limit=80).to_json()))
    assert found["owners"] == {"replay.action": 30, "replay.row": 10, "learner.actor": 20}
    assert (found["total_bytes"], found["transient_bytes"], found["base_bytes"]) == (60, 15, 10)
    assert (found["limit_bytes"], found["budget_bytes"], found["fits"]) == (80, 72, False)


def test_owners_are_grouped_by_the_names_of_their_paths() -> None:
    owners = {"a.b.c": 1, "a.b.d": 2, "a.e": 4, "f": 8}
    assert group_bytes(owners, depth=1) == {"a": 7, "f": 8}
    assert group_bytes(owners, depth=2) == {"a.b": 3, "a.e": 4, "f": 8}
