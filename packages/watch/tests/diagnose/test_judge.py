"""From owners and numbers to verdicts, plateaus and the step at which the limit is reached."""

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flatwater_watch
from flatwater_watch.diagnose.code_names import CodeName
from flatwater_watch.diagnose.contents import Contents
from flatwater_watch.diagnose.evidence import (
    TOO_LARGE_ADVICE,
    Evidence,
    LineUse,
    leaf_evidence,
    owner_evidence,
    phase_evidence,
    unowned_evidence,
)
from flatwater_watch.diagnose.finding import AllocationSite, Finding
from flatwater_watch.diagnose.finding_text import brief_text, growth_end
from flatwater_watch.diagnose.judge import limit_step, make_findings, make_reportable_findings, merge_related_causes
from flatwater_watch.diagnose.owners import Owner
from flatwater_watch.heap.census import Holding
from flatwater_watch.series.readings import Growth
from flatwater_watch.series.slope import Slope
from flatwater_watch.series.slowdown import Slowdown

MIB = 1 << 20
SOURCES = Path(flatwater_watch.__file__).parent

LIST = Owner(
    path="train.HISTORY",
    holding=Holding("train.HISTORY", None, "list", 30, None, 30 * MIB),
    contents=Contents(
        count=30,
        what="30 × float32[512, 512]",
        item="Tensor",
        has_graph=False,
        has_base=False,
        resource="",
        leaves=(),
        arrays=(),
    ),
    holders=("train.py, global HISTORY", "list of 30"),
    hops=("train.HISTORY",),
    steps=2,
    length_before=10,
    bytes_grown=20 * MIB,
    item_bytes=MIB,
    redundancy=None,
    container=None,
)
MADE = AllocationSite("/home/ada/train.py", 31, "learn", "aten::mm")
DRIFT = Slope(10.0 * MIB, 9.0 * MIB, 12.0 * MIB)


TABLES = replace(
    LIST,
    contents=replace(LIST.contents, what="49 × Table, and about 1.93 MiB outside of Python with each"),
    outside_python=True,
)
RISES = AllocationSite("/home/ada/train.py", 30, "load", "native")


def list_as(length_before: int = 10, **holding: Any) -> Owner:
    """The list, with other fields of its holding."""
    return replace(LIST, holding=LIST.holding._replace(**holding), length_before=length_before)


def growth(*, per_step: float = 10, resident: float = 400, limit: float | None = 1000) -> Growth:
    whole = Slope(per_step * MIB, per_step * MIB, per_step * MIB)
    return Growth(100, int(resident * MIB), None if limit is None else int(limit * MIB), whole, "round")


def judge_one(owner: Owner, *, per_step: float = 10, limit: float | None = 1000) -> Finding:
    whole = growth(per_step=per_step, limit=limit)
    return make_reportable_findings([owner_evidence(owner, steps=2, growth=whole, drift=DRIFT, made_at=MADE)], whole)[0]


@pytest.mark.parametrize("kind", ["list", "dict", "set", "closure", "hooks", "figures", "object"])
def test_what_has_no_bound_leaks(kind: str) -> None:
    found = judge_one(list_as(kind=kind))
    assert (found.verdict, found.owner, found.made_at) == ("leak", "train.HISTORY", MADE)
    assert (found.bytes_per_step, found.interval) == (10 * MIB, (9 * MIB, 12 * MIB))
    assert (found.share, found.limit_step) == (1.0, 160), "600 MiB are left, at 10 a round"
    assert (found.plateau_bytes, found.plateau_step) == (None, None)


def test_what_has_a_capacity_fills() -> None:
    found = judge_one(list_as(kind="deque", capacity=70))
    assert found.verdict == "filling"
    assert (found.plateau_bytes, found.plateau_step) == (70 * MIB, 104), "40 more, 10 a round"
    assert found.limit_step is None, "40 MiB more is all, and 600 are left"


def test_a_filling_that_does_not_fit_reaches_the_limit() -> None:
    found = judge_one(list_as(kind="deque", capacity=1000))
    assert (found.plateau_step, found.limit_step) == (197, 160)


def test_a_full_container_whose_items_grow_leaks() -> None:
    assert judge_one(list_as(kind="deque", capacity=10, length_before=10, length=10)).verdict == "leak"


def test_a_queue_is_a_backlog_and_a_cache_a_cache() -> None:
    assert judge_one(list_as(kind="queue")).verdict == "backlog"
    unbounded, bounded = (judge_one(list_as(kind="cache", capacity=bound)) for bound in (None, 40))
    assert (unbounded.verdict, unbounded.what, unbounded.plateau_bytes) == (
        "cache",
        f"{LIST.contents.what}, unbounded",
        None,
    )
    assert (bounded.verdict, bounded.plateau_bytes) == ("filling", 40 * MIB)
    full = judge_one(list_as(kind="cache", capacity=40, length_before=40, length=40))
    assert (full.verdict, full.what) == ("cache", f"{LIST.contents.what}, maxsize 40")


def test_the_advice_speaks_of_the_content_first() -> None:
    graph = replace(LIST.contents, has_graph=True)
    assert ".detach()" in judge_one(replace(LIST, contents=graph)).advice
    carried = judge_one(replace(list_as(kind="graph"), code_name=CodeName("hidden"), contents=graph))
    assert carried.advice.startswith("Cut its graph between two steps: `hidden = hidden.detach()`. ")
    assert ".clone()" in judge_one(replace(LIST, contents=replace(LIST.contents, has_base=True))).advice
    assert "remove()" in judge_one(list_as(kind="hooks")).advice
    assert "plt.close" in judge_one(list_as(kind="figures")).advice


def test_state_below_its_plan_is_touched_and_above_it_leaks() -> None:
    slope = Slope(4.0 * MIB, 3.0 * MIB, 5.0 * MIB)
    below = leaf_evidence("replay.rows", 60 * MIB, 100 * MIB, drift=slope, growth=growth())
    above = leaf_evidence("replay.rows", 101 * MIB, 100 * MIB, drift=slope, growth=growth())
    unknown = leaf_evidence("replay.extra", 60 * MIB, None, drift=slope, growth=growth())
    assert (below.verdict, below.plateau_bytes, below.plateau_step) == ("filling", 100 * MIB, 110)
    assert (above.verdict, above.plateau_bytes) == ("leak", None)
    assert (unknown.verdict, unknown.plateau_bytes) == ("leak", None)


@pytest.mark.parametrize("verdict", ["retention", "mapped", "native"])
def test_growth_without_an_object_has_its_slope(verdict: str) -> None:
    cause = unowned_evidence(verdict, DRIFT, growth(per_step=40))  # type: ignore[arg-type]  # a Literal, one by one
    (found,) = make_findings([cause], growth(per_step=40))
    assert (found.verdict, found.bytes_per_step, found.interval) == (verdict, 10 * MIB, (9 * MIB, 12 * MIB))
    assert (found.share, found.made_at, found.holders) == (0.25, None, ())


def test_a_slowdown_takes_no_bytes_and_reaches_no_limit() -> None:
    found = make_reportable_findings([phase_evidence("learn", Slowdown(before=0.01, now=0.02))], growth())[0]
    assert (found.verdict, found.owner, found.bytes_per_step, found.limit_step) == ("slowdown", "learn", 0.0, None)
    assert re.fullmatch(r"learn .*\b50 steps .* 50% .*\(100\)", found.what)


def test_all_are_told_most_bytes_first_and_none_under_a_twentieth() -> None:
    sizes = [3, 40, 1, 20, 10, 8, 6, 5]
    owners = [replace(LIST, path=f"train.A{size}", bytes_grown=2 * size * MIB) for size in sizes]
    whole = growth(per_step=float(sum(sizes)))
    found = make_reportable_findings(
        [owner_evidence(owner, steps=2, growth=whole, drift=DRIFT) for owner in owners], whole
    )
    assert [finding.owner for finding in found] == [
        "train.A40",
        "train.A20",
        "train.A10",
        "train.A8",
        "train.A6",
        "train.A5",
    ]


def test_retention_beside_a_larger_owner_is_its_doing() -> None:
    owner = owner_evidence(LIST, steps=2, growth=growth(per_step=15), drift=DRIFT)
    for rate, told in ((9, ["leak"]), (11, ["leak", "retention"])):
        kept = unowned_evidence("retention", Slope(rate * MIB, 0.0, 0.0), growth(per_step=15))
        found = make_reportable_findings([owner, kept], growth(per_step=15))
        assert [each.verdict for each in found] == told, "what is held stands before the holes around it"
        assert sum(each.share for each in found) <= 1


def test_shares_are_parts_of_one_growth() -> None:
    """Owners that were estimated too large are told smaller; the rest is all that what nobody holds can have."""
    whole = growth(per_step=10)
    lists = [replace(LIST, path=f"train.A{n}") for n in range(2)]
    owners = [owner_evidence(one, steps=2, growth=whole, drift=DRIFT) for one in lists]
    rest = unowned_evidence("native", Slope(8 * MIB, 8.0 * MIB, 8.0 * MIB), whole)
    assert [found.share for found in make_findings([rest, *owners], whole)] == [0.5, 0.5, 0.0]
    half = replace(owners[0], share=0.5)
    assert [found.share for found in make_findings([rest, half], whole)] == [0.5, 0.5]


def test_mapped_pages_kill_nobody() -> None:
    """The system takes them back: they have no date, and bring that of others no nearer."""
    whole = growth(per_step=30.0)
    mapped = unowned_evidence("mapped", Slope(20 * MIB, 0.0, 0.0), whole)
    leak = unowned_evidence("native", Slope(10 * MIB, 9.0 * MIB, 11.0 * MIB), whole)
    told = {found.verdict: found for found in make_reportable_findings([mapped, leak], whole)}
    assert told["mapped"].limit_step is None
    assert "pages" in growth_end(told["mapped"])
    assert told["native"].limit_step == 160, "600 MiB are left, at 10 a round"


def test_a_rate_that_is_not_known_gives_no_date() -> None:
    (leak,) = make_findings([unowned_evidence("native", Slope(10 * MIB, 0.5 * MIB, 90.0 * MIB), growth())], growth())
    wide, narrow = replace(leak, limit_step=160), replace(leak, limit_step=160, interval=(9.0 * MIB, 11.0 * MIB))
    assert (wide.has_date, narrow.has_date) == (False, True)
    assert "160" not in growth_end(wide)
    assert "at round 160" in growth_end(narrow)


def test_a_buffer_that_does_not_fit_says_so_first() -> None:
    filling = leaf_evidence("replay.frames", 100 * MIB, 5000 * MIB, drift=DRIFT, growth=growth())
    (told,) = make_reportable_findings([filling], growth())
    assert told.dies_first
    assert told.advice == TOO_LARGE_ADVICE
    assert re.match(r".*limit .*; full with ", growth_end(told))
    fitting = leaf_evidence("replay.frames", 100 * MIB, 200 * MIB, drift=DRIFT, growth=growth())
    (fits,) = make_reportable_findings([fitting], growth())
    assert (fits.verdict, fits.dies_first) == ("filling", False)
    assert "when it is full" in fits.advice


def test_arrays_of_one_buffer_are_one_finding_with_one_end() -> None:
    paths = ("main() in train.py: replay.frames", "main() in train.py: replay.actions", "train.FRAMES", "train.NEXT")
    parts = [leaf_evidence(path, 100 * MIB, 200 * MIB, drift=DRIFT, growth=growth()) for path in paths]
    buffer, *others = merge_related_causes(parts)
    assert [each.owner for each in others] == ["train.FRAMES", "train.NEXT"], "variables are buffers of their own"
    assert (buffer.owner, buffer.plateau_bytes) == ("main() in train.py: replay", 400 * MIB)
    assert buffer.rate.per_step == sum(part.rate.per_step for part in parts[:2])
    assert "frames, actions" in buffer.what
    assert buffer.parts == tuple(paths[:2])


def handlers(path: str, **changes: Any) -> Evidence:
    """A list somewhere in `train.EVENTS` that leaks functions made at one line."""
    holders = ("train.py, global EVENTS", f"entry {path!r} of dict of 3", "list of 30", "closure of _handler")
    contents = replace(LIST.contents, what="30 × closure of _handler")
    owner = replace(LIST, path=f"train.EVENTS{path}", holders=holders, contents=contents)
    found = owner_evidence(owner, steps=2, growth=growth(), drift=DRIFT, made_at=MADE)
    return replace(found, **{"share": 0.25, **changes})


def test_containers_of_one_holder_that_one_line_fills_are_one_finding() -> None:
    parts = [handlers("['get']['values'][*]"), handlers("['put.a']"), handlers("['get']['names']", share=0.2)]
    (told,) = merge_related_causes(parts)
    assert told.owner == "train.EVENTS"
    assert told.parts == tuple(part.owner for part in parts)
    assert told.holders == ("train.py, global EVENTS",)
    assert told.what.startswith("30 × closure of _handler, in ['get']['values'][*]; ")
    assert told.what.endswith(" ['put.a'], ['get']['names']")
    assert (told.verdict, told.made_at, told.advice) == ("leak", MADE, parts[0].advice)
    assert (told.count, told.share, told.rate.per_step) == (90, 0.7, 30 * MIB)
    assert told.rate[:3] == tuple(sum(ends) for ends in zip(*(part.rate[:3] for part in parts), strict=True))


def test_the_holder_of_what_is_told_as_one_is_the_nearest() -> None:
    (told,) = merge_related_causes([handlers(".layers[*].keys"), handlers(".layers[*].values")])
    assert told.owner == "train.EVENTS.layers[*]"
    assert re.search(r" in keys; .* values$", told.what)
    (told,) = merge_related_causes([handlers("['kept']"), handlers("['keys']")])
    assert told.owner == "train.EVENTS", "names that begin alike are no holder"


def test_containers_that_one_call_of_their_holder_empties_are_one_finding() -> None:
    """The lists of an `Accelerator`, filled by three lines of the program."""
    lines = (MADE, replace(MADE, line=32), None)
    advice = "Call `EVENTS.clear()` when this is done with."
    parts = [
        handlers(f".{name}", made_at=line, advice=advice, holders=("train.py, global EVENTS", f"list of {line}"))
        for name, line in zip(("models", "optimizers", "loaders"), lines, strict=True)
    ]
    (told,) = merge_related_causes(parts)
    assert (told.owner, told.advice, told.made_at) == ("train.EVENTS", advice, MADE)
    assert told.what == "30 × closure of _handler, in models; more in optimizers, loaders"
    (told,) = merge_related_causes([replace(part, made_at=None) for part in parts])
    assert told.what == "30 × closure of _handler, in models; more in optimizers, loaders", "no line is known"
    other = replace(parts[2], owner="train.OTHERS.loaders")
    assert merge_related_causes([parts[0], other]) == [parts[0], other], "another holder"
    for words in ("Call `NEWEVENTS.clear()`.", "Drop the EVENTS. Or call `close()`."):
        unrelated = [replace(parts[0], advice=words), replace(parts[2], advice=words)]
        assert merge_related_causes(unrelated) == unrelated, "it calls nothing of the holder"
    for changes in ({"advice": "Call `EVENTS.loaders.pop()`."}, {"verdict": "cache"}, {"outside": True}):
        changed: list[Evidence] = [parts[0], replace(parts[2], **changes)]  # type: ignore[arg-type]
        assert merge_related_causes(changed) == changed


@pytest.mark.parametrize(
    "changes",
    [
        {"made_at": None},
        {"made_at": replace(MADE, line=32)},
        {"verdict": "cache"},
        {"outside": True},
        {"advice": "Call `reset()`."},
        {"holders": ("train.py, global EVENTS", "list of 30", "str")},
        {"owner": "train.OTHERS", "holders": ("train.py, global OTHERS", "list of 30", "closure of _handler")},
        {"owner": "train.EVENTS['get'][*].names"},
    ],
    ids=[
        "no line",
        "another line",
        "another verdict",
        "outside",
        "other advice",
        "another kind",
        "another root",
        "nested",
    ],
)
def test_other_leaks_stay_findings_of_their_own(changes: dict[str, Any]) -> None:
    parts = [handlers("['get']"), handlers("['put']", **changes)]
    assert merge_related_causes(parts) == parts
    assert merge_related_causes(parts[::-1]) == parts[::-1]


def test_leaks_without_a_line_are_not_told_as_one() -> None:
    parts = [handlers("['get']", made_at=None), handlers("['put']", made_at=None)]
    assert merge_related_causes(parts) == parts


def test_without_a_limit_there_is_no_forecast() -> None:
    found = judge_one(LIST, limit=None)
    assert (found.limit_bytes, found.limit_step) == (None, None)


def test_a_finding_is_made_in_one_place_and_changed_in_none() -> None:
    makers, changers = set[str](), list[str]()
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding":
                makers.add(path.name)
            if isinstance(node, ast.FunctionDef) and node.returns is not None:
                given = [ast.unparse(each.annotation) for each in node.args.args if each.annotation is not None]
                changers += [node.name] * ("Finding" in given and ast.unparse(node.returns).strip("'") == "Finding")
    assert makers == {"judge.py"}
    assert changers == []


rates = st.floats(0.1, 50)
ends = st.none() | st.integers(101, 400)


@given(st.lists(st.tuples(rates, ends), min_size=1, max_size=5), st.floats(0, 30))
def test_the_forecast_is_where_a_simulation_step_by_step_gets_to(
    causes: list[tuple[float, int | None]], unknown: float
) -> None:
    """Each cause adds its rate until its plateau; what nobody explains goes on for ever if it is a fifth or more."""
    known = sum(rate for rate, _ in causes)
    forever = unknown if known < 0.8 * (known + unknown) else 0.0
    found = [
        replace(unowned_evidence("native", Slope(rate * MIB, 0.0, 0.0), growth()), plateau_step=end)
        for rate, end in causes
    ]
    whole = growth(per_step=known + unknown, resident=500, limit=1500)

    resident, step = 500.0, 100
    while resident < 1500 and step < 20_000:
        resident += forever + sum(rate for rate, end in causes if end is None or step < end)
        step += 1

    told = limit_step(found, whole)
    if resident < 1500 and told is None:
        return
    assert told is not None
    assert told - whole.step == pytest.approx(step - whole.step, rel=0.05, abs=1), "two digits"


def test_classes_are_made_once_by_the_function_of_their_line() -> None:
    classes = replace(owner_evidence(LIST, steps=2, growth=growth(), drift=DRIFT), holds_classes=True)
    (made,) = make_findings([replace(classes, made_at=MADE)], growth())
    assert made.advice.startswith("Make each class once and keep it: `@functools.cache` on `learn`")
    (by_module,) = make_findings([replace(classes, made_at=replace(MADE, function="<module>"))], growth())
    assert by_module.advice == make_findings([classes], growth())[0].advice == classes.advice


def test_bytes_behind_objects_have_the_line_that_they_come_from_and_that_of_the_objects_beside_it() -> None:
    def judge_lines(**lines: AllocationSite | None) -> Finding:
        return make_findings([replace(tables, **lines)], growth())[0]

    tables, rows = (owner_evidence(one, steps=2, growth=growth(), drift=DRIFT) for one in (TABLES, LIST))
    told = judge_lines(made_at=MADE, native_line=RISES)
    assert told.made_at == RISES
    assert re.fullmatch(rf"{re.escape(TABLES.contents.what)}; .* train\.py:31", told.what)
    assert (tables.wants_native_line, rows.wants_native_line) == (True, False), "what objects hold has their line"
    same = replace(RISES, line=MADE.line)
    assert judge_lines(made_at=MADE, native_line=same) == judge_lines(made_at=MADE), "the same line, and no native one"
    assert judge_lines(native_line=RISES).what == TABLES.contents.what
    assert judge_lines(native_line=RISES).made_at == RISES


def test_an_object_of_c_that_the_line_uses_owns_memory_that_no_python_object_has() -> None:
    use = LineUse("Call `self.tree.delete(id)`.", "main() in shop.py: shop.tree", "Index")
    unowned = unowned_evidence("native", DRIFT, growth())
    line = AllocationSite("/home/ada/shop.py", 7, "Shop.add", "native")
    told, without_line = make_findings([replace(unowned, native_line=line, native_use=use)], growth()), unowned
    assert (told[0].owner, told[0].holders, told[0].made_at) == (use.owner, ("Index",), line)
    assert brief_text(told[0]) == "memory inside shop.tree of main() grows at shop.py:7. Call `self.tree.delete(id)`."
    assert "cannot measure" in told[0].advice
    assert replace(without_line, native_use=use).native_owner == ""
    held = replace(owner_evidence(TABLES, steps=1, growth=growth(), drift=DRIFT), native_line=line, native_use=use)
    assert held.native_owner == "", "its items have the memory"
