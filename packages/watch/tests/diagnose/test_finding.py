"""Findings as JSON, and as lines for a person."""

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatwater_watch.diagnose.finding import AllocationSite, Finding
from flatwater_watch.diagnose.finding_text import (
    WIDTH,
    brief_text,
    finding_lines,
    growth_end,
    lines_below_brief,
    subject_and_verb,
    wrap_text,
)
from flatwater_watch.heap import roots
from flatwater_watch.units import clock_words

MIB = 1 << 20

MADE = AllocationSite("/home/ada/train.py", 31, "Agent.learn", "aten::mm")
LEAK = Finding(
    verdict="leak",
    owner="train.HISTORY",
    holders=("train.py, global HISTORY", "list of 120", "Tensor with its autograd graph"),
    made_at=MADE,
    bytes_per_step=2.5 * MIB,
    interval=(2.25 * MIB, 2.75 * MIB),
    share=0.964,
    count=120,
    what="120 × float32[64, 504]",
    plateau_bytes=None,
    plateau_step=None,
    limit_bytes=8 << 30,
    limit_step=412,
    advice="Keep the number, not the tensor: `loss.item()`. It carries an autograd graph with all that led to it.",
)
FILLING = replace(
    LEAK,
    verdict="filling",
    owner="train.REPLAY",
    plateau_bytes=512 * MIB,
    plateau_step=300,
    limit_step=None,
    redundancy="consecutive arrays share all rows but one: store row numbers",
    advice="Nothing is lost.",
)


def test_a_leak_is_told_whole() -> None:
    assert finding_lines(LEAK) == [
        "leak: train.HISTORY grows by 2.50 MiB a round, 96% of the growth.",
        "  held by train.py, global HISTORY → list of 120 → Tensor with its autograd graph",
        "  made at train.py:31 in Agent.learn (aten::mm)",
        "  what    120 × float32[64, 504]; between 2.25 MiB and 2.75 MiB a round",
        "  until   the limit of 8.00 GiB is reached at round 410",
        "  do      Keep the number, not the tensor: `loss.item()`.",
        "  why     It carries an autograd graph with all that led to it.",
    ]


def test_a_limit_has_a_clock_time_where_its_pace_is_known() -> None:
    at = time.mktime(time.strptime("2026-03-05 03:42", "%Y-%m-%d %H:%M"))
    said = {left: clock_words(at, at - left) for left in (1800.0, 36_000.0, 3 * 86_400.0, 9e6, 3e7, 1.1e8)}
    assert said == {
        1800.0: "about 03:42",
        36_000.0: "about 03:40",
        3 * 86_400.0: "about 04:00 on Thursday",
        9e6: "about 5 March",
        3e7: "in about a year",
        1.1e8: "in about 3.5 years",
    }
    near = growth_end(replace(LEAK, limit_step=6938, limit_time=time.time() + 1e8))
    assert near == "the limit of 8.00 GiB is reached in about 3.2 years, at round 6900"
    assert growth_end(replace(LEAK, limit_step=6938, limit_time=time.time() + 60, interval=(1.0, 11.0))).endswith(
        "have"
    )


def test_the_brief_says_what_grows_where_and_what_to_do() -> None:
    assert brief_text(LEAK) == "train.HISTORY grows at train.py:31. Keep the number, not the tensor: `loss.item()`."
    native = replace(LEAK, verdict="native", owner="memory outside of Python", holders=(), made_at=None)
    assert brief_text(native).startswith("memory outside of Python grows. Keep the number")
    local = replace(LEAK, owner="Agent.learn() in train.py: agent.rows")
    assert brief_text(local).startswith("agent.rows of Agent.learn() grows at train.py:31. ")
    elsewhere = replace(LEAK, owner="play() in games.py: agent.rows")
    assert brief_text(elsewhere).startswith("agent.rows of play() in games.py grows at train.py:31. ")


INSTRUCTIONS = {
    "Call `table.pop(key)`. A table keeps each. See https://example.org/a.html": "Call `table.pop(key)`.",
    "Call `open(..., stream=True)`, or `close()`. It notes all.": "Call `open(..., stream=True)`, or `close()`.",
    "Say `print('a. b')`. Or not.": "Say `print('a. b')`.",
    "Call `close()`.": "Call `close()`.",
}
"""The first sentence, by the advice."""


@pytest.mark.parametrize("advice", INSTRUCTIONS)
def test_the_brief_has_the_whole_first_sentence_of_the_advice_and_the_lines_below_it_the_others(advice: str) -> None:
    instruction = INSTRUCTIONS[advice]
    finding = replace(LEAK, advice=advice)
    assert brief_text(finding) == f"train.HISTORY grows at train.py:31. {instruction}"
    facts = advice.removeprefix(instruction).strip()
    assert finding_lines(finding)[-2:][-1 if not facts else 0] == f"  do      {instruction}"
    below = lines_below_brief(finding)
    assert not any("  do  " in line for line in below)
    assert below[-1].removeprefix("  why     ") == (facts or below[-1])


@given(st.text(min_size=1, max_size=300), st.lists(st.sampled_from(["`x.pop(key)`", "`a b c`", "word"]), max_size=40))
def test_short_code_stays_in_one_line(owner: str, words: list[str]) -> None:
    lines = wrap_text("flatwater: ", f"{' '.join(owner.split()) or 'x'}. {' '.join(words)}", "  ")
    assert max(map(len, lines)) <= WIDTH
    assert sum(line.count("`x.pop(key)`") + line.count("`a b c`") for line in lines) >= sum("`" in w for w in words)


ONE = {"sys.modules", "gymnasium's registry", "structlog's WRITE_LOCKS", "train.HISTORIES", "main() in train.py: items"}
SEVERAL = {
    "atexit's callbacks",
    "mapped files",
    "worker processes",
    *(name for *_, name in roots._KNOWN_REGISTRIES),
} - ONE


def test_an_owner_that_is_a_plural_has_the_verb_of_one() -> None:
    assert {
        owner for owner in ONE | SEVERAL if subject_and_verb(replace(LEAK, owner=owner)) == f"{owner} grow"
    } == SEVERAL
    assert brief_text(replace(LEAK, owner="atexit's callbacks")).startswith("atexit's callbacks grow at train.py:31. ")
    assert finding_lines(replace(LEAK, owner="pyplot's figures"))[0].startswith(
        "leak: pyplot's figures grow by 2.50 MiB a "
    )
    assert subject_and_verb(replace(LEAK, owner="pyplot's figures[*].canvas")).endswith(" grows")


def test_a_filling_says_where_it_ends() -> None:
    assert finding_lines(FILLING) == [
        "filling: train.REPLAY grows by 2.50 MiB a round, 96% of the growth.",
        "  held by train.py, global HISTORY → list of 120 → Tensor with its autograd graph",
        "  made at train.py:31 in Agent.learn (aten::mm)",
        "  what    120 × float32[64, 504]; between 2.25 MiB and 2.75 MiB a round",
        "  until   full with 512.00 MiB at round 300; the limit of 8.00 GiB is not reached",
        "  note    consecutive arrays share all rows but one: store row numbers",
        "  do      Nothing is lost.",
    ]


def test_a_slowdown_speaks_of_steps_and_not_of_bytes() -> None:
    slower = replace(LEAK, verdict="slowdown", holders=(), made_at=None, what="learn does 80 steps", advice="Look.")
    assert finding_lines(slower) == ["slowdown: learn does 80 steps.", "  do      Look."]


@given(st.text(min_size=1, max_size=400), st.lists(st.text(max_size=200), max_size=6))
def test_no_line_is_longer_than_99_columns(owner: str, holders: list[str]) -> None:
    lines = finding_lines(replace(LEAK, owner=owner, holders=tuple(holders)))
    assert max(map(len, lines)) <= 99


def test_json_keeps_everything() -> None:
    several = replace(LEAK, owner="train.BOOK", parts=("train.BOOK['losses']", "train.BOOK['values']"))
    for finding in (LEAK, FILLING, several, replace(LEAK, made_at=None)):
        assert Finding.from_json(finding.to_json()) == finding
    earlier = {name: value for name, value in LEAK.to_json().items() if name != "parts"}
    assert Finding.from_json(earlier) == LEAK, "runs of versions before have none"
    assert LEAK.to_json()["made_at"] == {
        "file": "/home/ada/train.py",
        "line": 31,
        "function": "Agent.learn",
        "operation": "aten::mm",
    }
    assert LEAK.to_json()["interval"] == [2.25 * MIB, 2.75 * MIB]


def test_the_fingerprint_knows_the_cause_and_not_the_circumstances() -> None:
    """Another folder, line or operation is the same cause; another function, file, owner or verdict is not."""
    same = replace(LEAK, made_at=AllocationSite("/tmp/train.py", 40, "Agent.learn", "aten::add"), share=0.5)
    assert same.fingerprint == LEAK.fingerprint
    others = {
        replace(LEAK, verdict="cache").fingerprint,
        replace(LEAK, owner="train.OTHER").fingerprint,
        replace(LEAK, made_at=replace(MADE, function="Agent.play")).fingerprint,
        replace(LEAK, made_at=replace(MADE, file="/home/ada/other.py")).fingerprint,
        replace(LEAK, made_at=None).fingerprint,
    }
    assert LEAK.fingerprint not in others
    assert len(others) == 5


def test_a_link_stays_in_one_piece() -> None:
    link = f"https://docs.python.org/3/library/{'part-' * 20}.html#name"
    assert any(line.strip() == link for line in finding_lines(replace(LEAK, advice=f"Register it once. See {link}")))
