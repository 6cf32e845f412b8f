"""Findings as JSON, and as lines for a person."""

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatwater_watch.diagnose import finding_text
from flatwater_watch.diagnose.evidence import NATIVE_LINE_SENTENCE
from flatwater_watch.diagnose.finding import AllocationSite, Finding
from flatwater_watch.diagnose.finding_text import brief_line, finding_lines, growth_end, subject_and_verb
from flatwater_watch.diagnose.rules import RULES
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
    advice="Keep the number, not the tensor: loss.item(), or loss.detach() without its autograd graph.",
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
        "  do      Keep the number, not the tensor: loss.item(), or loss.detach() without its autograd",
        "          graph.",
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


def test_the_first_line_says_what_grows_where_and_what_to_do() -> None:
    assert brief_line(LEAK) == "train.HISTORY grows, train.py:31: keep the number, not the tensor: loss.item()"
    native = replace(LEAK, verdict="native", owner="memory outside of Python", made_at=None)
    assert brief_line(native) == "memory outside of Python grows: look at C extensions and buffers outside of Python"
    assert len(brief_line(replace(LEAK, owner="x" * 200))) <= 88


@pytest.mark.parametrize(
    ("owner", "said"),
    [
        ("learn() in a_long_name_of_a_module.py: agent.memory", "agent.memory"),
        ("moto.s3.models.s3_backends[*]['aws'].buckets['reports'].keys", "…['aws'].buckets['reports'].keys"),
        ("agents.teacher.policy.network.layers.cache.entries", "…policy.network.layers.cache.entries"),
    ],
)
def test_of_a_long_path_the_first_line_has_the_end(owner: str, said: str) -> None:
    assert brief_line(replace(LEAK, owner=owner)).startswith(f"{said} grows, train.py:31: ")


CUT = {
    "bound the queue. Or add consumers. Or add consumers.": f"Bound the queue. {'Or add consumers. ' * 9}",
    "give it a maxsize, or key it by something small": "Give it a maxsize, or key it by something small; a cache keeps "
    "each object that called it.",
    # what is known of a library is left out where it does not fit
    "call `dispose()`, or make one for all.": "An engine has a pool of its own. Call `dispose()`, or make one for all.",
    "call `close()`.": "pyplot keeps each figure until it is closed. Call `close()`.",
    # no end that fits is one of an instruction, or it is within code, a bracket or a list
    "call `add(one, or another, or the third one of them)` …": "Call `add(one, or another, or the third one of "
    "them)` now.",
    "remove entries, attributes and what else is not needed …": "Remove entries, attributes and what else is "
    "not needed any more.",
}
"""What stands after 33 columns, and the advice."""


@pytest.mark.parametrize("said", CUT)
def test_a_long_advice_ends_in_the_first_line_with_a_whole_instruction(said: str) -> None:
    line = brief_line(replace(LEAK, owner="train.TABLE", advice=CUT[said]))
    assert line == f"train.TABLE grows, train.py:31: {said}"
    assert len(line) <= 88


NAMED = {
    "luigi.task_register.Register._Register__instance_cache": (
        "Call Register.clear_instance_cache() when this is done with: luigi keeps it until then.",
        "…_Register__instance_cache grows, train.py:31: call Register.clear_instance_cache()",
    ),
    "bokeh.io.state._STATE._document.callbacks._session_destroyed_callbacks": (
        "Call bokeh.io.reset_output() when this is done with: bokeh keeps it until then.",
        "…_session_destroyed_callbacks grows, train.py:31: call bokeh.io.reset_output()",
    ),
    "minimize() in pymoo: algorithm.history": (
        "Leave `save_history` out where its result is not needed: pymoo keeps it for that.",
        "minimize() in pymoo: algorithm.history grows, train.py:31: leave `save_history` out",
    ),
    "saver.writes": (
        "Call InMemorySaver.delete_thread(thread_id) for each that is done with: langgraph keeps it until then.",
        "saver.writes grows, train.py:31: call InMemorySaver.delete_thread(thread_id)",
    ),
}
"""Advice, and the first line, by the owner."""


@pytest.mark.parametrize("calls", ["", "Call Producer.poll() in each pass, if nothing does. "])
def test_the_first_line_of_native_memory_says_what_to_do_at_its_line(calls: str) -> None:
    native = replace(LEAK, verdict="native", owner="memory outside of Python", advice=calls + NATIVE_LINE_SENTENCE)
    said = "call Producer.poll() in each pass" if calls else "close, free or release what that returned"
    assert said in brief_line(native)
    assert brief_line(native).endswith(f" grows, train.py:31: {said}")
    assert len(brief_line(native)) <= 88


@pytest.mark.parametrize("owner", NAMED)
def test_the_first_line_names_the_whole_call_and_the_end_of_a_long_path_before_it(owner: str) -> None:
    advice, said = NAMED[owner]
    assert brief_line(replace(LEAK, owner=owner, advice=advice)) == said


def test_the_instructions_of_rules_begin_with_a_word_that_is_known_for_one() -> None:
    others = {rule.fix for rule in RULES if not finding_text._is_instruction(rule.fix[:1].lower() + rule.fix[1:])}
    assert others == {rule.fix for rule in RULES if rule.fix.startswith("With `iterparse`")}


ONE = {"gymnasium's registry", "structlog's WRITE_LOCKS", "train.HISTORIES", "main() in train.py: items"}
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
    assert brief_line(replace(LEAK, owner="atexit's callbacks")).startswith("atexit's callbacks grow, train.py:31: ")
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
