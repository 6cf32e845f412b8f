"""Growth per boundary, told per unit: the conversions, the share explained, what has stopped growing."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from watched import GROWING, LEAK, MIB, READING, rate_of, rows

from flatwater_watch.agent.growth import (
    Sample,
    append_sample_,
    cap_native_rate,
    cause_still_grows,
    choose_scale,
    drop_immaterial,
    drop_unsure,
    explained_share,
    is_last_reading_valid,
    is_teardown_sample,
    process_still_grows,
)
from flatwater_watch.agent.summary import build_summary, judge_causes
from flatwater_watch.agent.workers import Workers, measure_workers_, workers_evidence
from flatwater_watch.diagnose.evidence import GARBAGE_OWNER
from flatwater_watch.diagnose.finding import AllocationSite, Finding
from flatwater_watch.heap import roots
from flatwater_watch.meters.mappings import FamilyMemory


def test_the_slowest_regular_boundary_is_the_unit() -> None:
    scale = choose_scale(rows([0] * 21))
    assert (scale.unit, scale.per_unit, scale.units) == ("episode", 10.0, 20)


def test_garbage_goes_on_though_a_collection_frees_it() -> None:
    teeth = rows([(i % 12) * 10 * MIB for i in range(24)] + [10 * MIB, 20 * MIB])
    garbage = replace(GROWING, owner=GARBAGE_OWNER)
    assert cause_still_grows(garbage, 0, teeth)
    assert not cause_still_grows(GROWING, 0, teeth)
    assert not cause_still_grows(garbage, 0, rows([i * 10 * MIB for i in range(10)] + [0] * 14)), "it has ended"


def test_a_boundary_of_the_beginning_only_is_no_unit() -> None:
    late = [row._replace(counts=row.counts | {"epoch": min(6, i)}) for i, row in enumerate(rows([0] * 41))]
    assert choose_scale(late).unit == "episode"
    assert choose_scale([row._replace(counts={"tick": 1}) for row in rows([0] * 11)]).unit == "second"


def test_a_long_pause_before_the_last_reading_leaves_the_unit() -> None:
    """As after a census: no reading is near the middle, and the next one after it is the last."""
    all_rows = rows([0] * 41)
    assert choose_scale([*all_rows[:19], all_rows[-1]]).unit == "episode"
    assert choose_scale(all_rows[:1]).unit == "second"


@given(steps=st.integers(2, 1000), rate=st.floats(1, 1e9))
def test_bytes_per_unit_are_those_of_its_boundaries(steps: int, rate: float) -> None:
    samples = rows([0] * 21, steps_each=steps)
    (told,) = judge_causes([replace(GROWING, drift=rate_of(rate))], [], samples, choose_scale(samples))
    assert told.bytes_per_step == pytest.approx(rate * steps)
    assert told.interval == pytest.approx((rate / 2 * steps, 2 * rate * steps))
    assert told.unit == "episode"


def test_a_forecast_is_moved_to_the_unit() -> None:
    """Row 20 is at boundary 200 and episode 20; 50 boundaries later are 5 episodes later."""
    scale = choose_scale(rows([0] * 21))
    assert scale.unit_at_step(250) == 25


def test_growth_with_an_owner_is_explained_and_the_rest_is_not() -> None:
    grown = rows([i * 10 * MIB for i in range(21)])
    assert explained_share(grown, [LEAK]) == pytest.approx(1.0)
    assert explained_share(grown, [replace(LEAK, share=0.25)]) == pytest.approx(0.25)
    assert explained_share(grown, []) == 0.0
    freed = [row._replace(reading=row.reading._replace(free=row.reading.resident // 2)) for row in grown]
    assert explained_share(freed, []) == pytest.approx(0.5)


def test_noise_needs_no_explanation() -> None:
    assert explained_share(rows([400 * MIB] * 20 + [400 * MIB + MIB // 2]), []) == 1.0


def test_what_was_loaded_and_stays_does_not_go_on() -> None:
    loaded = rows([min(i, 10) * 10 * MIB for i in range(40)])
    assert not cause_still_grows(GROWING, 100, loaded)
    assert cause_still_grows(GROWING, 100, rows([i * 10 * MIB for i in range(40)]))
    assert cause_still_grows(GROWING, 370, loaded)  # three readings later nobody can tell


def test_few_readings_over_many_boundaries_show_that_growth_has_ended() -> None:
    """As on a busy machine: dense readings while memory rises, and then one or two for many more boundaries."""
    all_rows = rows([min(i, 10) * 10 * MIB for i in range(80)])
    dense = all_rows[:11]
    assert cause_still_grows(GROWING, 90, dense)
    assert not cause_still_grows(GROWING, 90, [*dense, all_rows[40], all_rows[60]])
    assert cause_still_grows(GROWING, 90, [*dense, all_rows[30]]), "too few boundaries since it rose"
    late = [all_rows[76], all_rows[78]]  # close together, and far from the rise
    assert not cause_still_grows(GROWING, 100, [*dense, *late])
    bursts = rows([i // 8 * 40 * MIB for i in range(80)])
    assert cause_still_grows(GROWING, 160, bursts[:31]), "a pause between two bursts"
    assert cause_still_grows(GROWING, 160, [*bursts[:17], bursts[40], bursts[60], bursts[79]])


def test_a_rate_of_next_to_nothing_is_no_growth() -> None:
    """As all censuses tell it of a cache that was full soon after it was found, beside a page that came since."""
    full = rows([*(min(i, 10) * 10 * MIB for i in range(39)), 100 * MIB + 4096])
    assert not cause_still_grows(replace(GROWING, drift=rate_of(2.0)), 100, full)
    assert cause_still_grows(replace(GROWING, drift=rate_of(2.0 * 4096)), 100, rows([i * MIB for i in range(40)]))


def test_a_cache_that_is_warm_does_not_grow_any_more() -> None:
    """A program of few readings is judged by its growth since the beginning, which a warm cache has too."""
    assert not process_still_grows(rows([100 * MIB] + [124 * MIB] * 11))
    assert not process_still_grows(rows([min(100 + 6 * i, 124) * MIB for i in range(12)]))
    assert not process_still_grows(rows([100 * MIB] + [124 * MIB] * 10 + [124 * MIB + 8192]))
    assert process_still_grows(rows([(100 + 2 * i) * MIB for i in range(12)]))
    assert process_still_grows(rows([100 * MIB] + [(124 + i) * MIB for i in range(11)]))


def test_dense_readings_at_the_beginning_are_no_late_growth() -> None:
    """Numba compiles four signatures in the first seconds, and is read there ten times; then it is read seldom."""
    compiled = rows([min(100 + 4 * i, 150) * MIB for i in range(80)])
    assert not process_still_grows([*compiled[:13], compiled[40], compiled[60], compiled[79]])
    growing = rows([(100 + 4 * i) * MIB for i in range(80)])
    assert process_still_grows([*growing[:13], growing[40], growing[60], growing[79]])
    assert process_still_grows([*growing[:13], growing[79]])


def test_the_last_reading_says_that_growth_has_ended_and_not_that_memory_was_freed() -> None:
    last, flat, more, less = (
        READING._replace(step=i, resident=(400 + size) * MIB) for i, size in enumerate((0, 0, 9, -9))
    )
    valid = [is_last_reading_valid(last, each, is_in_loop=True, is_traced=False) for each in (last, flat, more, less)]
    assert valid == [False, True, True, False]
    assert is_last_reading_valid(last, flat, is_in_loop=True, is_traced=True)
    assert not is_last_reading_valid(last, more, is_in_loop=True, is_traced=True), "it may be the traces"
    assert not is_last_reading_valid(last, flat, is_in_loop=False, is_traced=False)


def test_what_is_freed_at_the_very_end_is_told_from_a_swing() -> None:
    growing = [(100 + 2 * i) * MIB for i in range(20)]
    assert is_teardown_sample(rows([*growing, 101 * MIB]))
    assert is_teardown_sample(rows([*growing, 125 * MIB])), "half an event loop was taken down"
    assert not is_teardown_sample(rows(growing))
    assert not is_teardown_sample(rows([*growing, 130 * MIB]))
    assert not is_teardown_sample(rows([*growing, 101 * MIB, 101 * MIB]))
    assert not is_teardown_sample(rows([100 * MIB] * 20 + [100 * MIB - 8192]))
    assert not is_teardown_sample(rows([100 * MIB, 120 * MIB, 90 * MIB]))


def test_growth_in_bursts_goes_on_between_them() -> None:
    bursts = rows([i // 6 * 60 * MIB for i in range(40)])
    assert all(cause_still_grows(GROWING, since, bursts) for since in range(60, 240, 10))


def test_native_growth_is_what_owners_leave() -> None:
    native = replace(GROWING, verdict="native", owner="memory outside of Python", holders=())
    grown = rows([i * 10 * MIB for i in range(21)])
    assert cap_native_rate([GROWING, native], grown) == [GROWING]
    half = replace(GROWING, drift=rate_of(0.5 * MIB))
    assert [cause.rate.per_step for cause in cap_native_rate([half, native], grown)] == [0.5 * MIB, 0.5 * MIB]


def test_what_has_not_come_to_a_megabyte_in_all_is_no_finding() -> None:
    """Two looks saw a burst of it: 3 % of the growth."""
    grown, native = rows([i * MIB for i in range(21)]), replace(GROWING, verdict="native", holders=())
    steps = grown[-1].reading.step
    half = replace(GROWING, drift=rate_of(0.6 * MIB / steps))
    assert drop_immaterial([half, native], grown) == [native]
    assert drop_immaterial([half, half, native], grown) == [half, half, native], "together they have"


def test_what_a_library_records_while_it_runs_is_a_finding_only_where_memory_grew_by_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As pytest keeps a report of each test until its session ends."""
    monkeypatch.setitem(sys.modules, "somelib", ModuleType("somelib"))
    records = [replace(GROWING, owner="main() in somelib: self.reports"), GROWING]
    little, much = (rows([i * each for i in range(21)]) for each in (MIB, 4 * MIB))
    assert drop_unsure(records, little) == [GROWING]
    assert drop_unsure(records, much) == records
    theirs = [replace(GROWING, owner="main() in somelib.py: reports")]
    assert drop_unsure(theirs, little) == theirs, "a function of the program's own is no library's"


def test_so_is_what_a_generator_of_a_library_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop of pytest's tests is a generator, which waits while the tests run."""
    little = rows([i * MIB for i in range(21)])
    for name, folder in (("somelib", sysconfig.get_path("purelib")), ("own", "/home/me")):
        module = ModuleType(name)
        module.__file__ = f"{folder}/{name}/__init__.py"
        monkeypatch.setitem(sys.modules, name, module)
    kept = [
        replace(GROWING, owner=f"{path}.<locals of run>.self.stats")
        for path in ("somelib.terminal.Reporter.run", "own.terminal.Reporter.run", "somelib.runs[*]")
    ]
    assert drop_unsure(kept, little) == kept[1:]


OF_LIBRARIES = roots._is_library_file
"""Before a fixture hides what runs the tests."""


def test_so_is_what_a_library_that_runs_the_program_keeps_in_a_global(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pytest -n 2` was told to keep reports, by the way that leads from a global of `_pytest`."""
    little, of_user = rows([i * MIB for i in range(21)]), roots.is_user_file
    records = [replace(GROWING, owner="_pytest.mark.structures.MARK_GEN._config.reports"), GROWING]
    monkeypatch.setattr(roots, "_host_packages", set())
    assert drop_unsure(records, little) == records
    monkeypatch.setattr(roots, "_is_library_file", OF_LIBRARIES)
    # A worker of xdist begins in a text that it is sent, which would be the user's program.
    monkeypatch.setattr(roots, "is_user_file", lambda file, *rest: not file.startswith("<") and of_user(file, *rest))
    list(roots.named_roots(roots.Roots()))  # as each census asks for them, here within a call of pytest's
    assert drop_unsure(records, little) == [GROWING]
    called = [replace(GROWING, owner="prometheus_client.registry.REGISTRY._names_to_collectors")]
    assert drop_unsure(called, little) == called, "a library that the program calls keeps what the program gives it"


@pytest.mark.parametrize("of_user", [True, False])
def test_an_installed_application_is_the_program_and_runs_none(tmp_path: Path, *, of_user: bool) -> None:
    """A list in a global of `python -m application`, which only pip had installed, was no finding below 32 MiB."""
    application = tmp_path / "site-packages" / "application"
    application.mkdir(parents=True)
    (tmp_path / "plugin.py").touch()
    (application / "__init__.py").touch()
    (application / "__main__.py").write_text("from application.work import serve\nserve()\n")
    (application / "work.py").write_text(
        "from flatwater_watch.heap import roots\n"
        "def serve():\n"
        f"    {'import plugin' if of_user else 'pass'}\n"
        "    list(roots.named_roots(roots.Roots()))\n"
        "    print(*roots._host_packages)\n"
    )
    path = os.pathsep.join([str(application.parent), str(tmp_path), *sys.path])
    command = [sys.executable, "-S", "-m", "application"]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, check=True, stdout=subprocess.PIPE, text=True)
    assert done.stdout.split() == ["application"] * of_user


def test_what_workers_import_is_no_growth_of_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the workers of `pytest -n 2` import for half of its time."""
    for loads, found in ((True, False), (False, True)):
        workers = Workers()
        for second in range(60):
            libraries = second if loads else 60
            family = FamilyMemory(2, second * 10 * MIB, second * 10 * MIB, libraries * MIB)
            monkeypatch.setattr("flatwater_watch.agent.workers.descendant_memory", lambda family=family: family)
            workers.due = 0.0
            measure_workers_(workers, second)
        assert bool(workers_evidence(workers)) == found


@pytest.mark.parametrize(("newest", "mib"), [(range, 295), (lambda _: range(5), 25)])
def test_children_weigh_as_at_their_beginning(
    monkeypatch: pytest.MonkeyPatch, newest: Callable[[int], range], mib: int
) -> None:
    """So their number is growth: 42 processes that `git` had left behind were "nothing grows"."""
    workers = Workers()
    for second in range(60):
        # Each has 5 MiB when it has started, and grows by its work.
        private = {pid: (5 + 2 * (second - pid)) * MIB if second > pid + 2 else 5 * MIB for pid in newest(second)}
        family = FamilyMemory(len(private), sum(private.values()), 0, 0, private)
        monkeypatch.setattr("flatwater_watch.agent.workers.descendant_memory", lambda family=family: family)
        workers.due = 0.0
        initial_bytes = measure_workers_(workers, second)
    assert initial_bytes == mib * MIB


def test_children_that_take_the_place_of_others_are_no_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = Workers()
    for second in range(60):
        private = dict.fromkeys(range(second, second + 3), 5 * MIB)
        family = FamilyMemory(3, 15 * MIB, 0, 0, private)
        monkeypatch.setattr("flatwater_watch.agent.workers.descendant_memory", lambda family=family: family)
        workers.due = 0.0
        assert measure_workers_(workers, second) == 15 * MIB


def test_numbers_alone_are_a_finding_only_where_they_are_sure_of_much() -> None:
    """Four of 26 runs of `pytest -n 2` told 10 MiB that came while libraries were loaded, and callbacks of `atexit`."""
    little, much = (rows([i * each for i in range(21)]) for each in (MIB, 4 * MIB))
    steps = much[-1].reading.step
    native = replace(GROWING, verdict="native", holders=(), drift=rate_of(MIB, low=60 * MIB / steps))
    behind = replace(native, verdict="leak", owner="atexit's callbacks", outside=True)
    traced = replace(native, made_at=AllocationSite("grow.py", 3, "grow", "native"))
    doubtful = replace(GROWING, owner="train.TEXTS", drift=rate_of(MIB, low=-0.1 * MIB))
    assert drop_unsure([native, behind, traced, doubtful, GROWING], little) == [traced, GROWING]
    assert drop_unsure([doubtful], much) == [doubtful]
    assert drop_unsure([native, behind, traced, GROWING], much) == [native, behind, traced, GROWING]
    vague = replace(native, drift=rate_of(MIB, low=10 * MIB / steps))
    assert drop_unsure([vague], much) == [], "little of it is sure, though much has come"


def test_what_is_a_finding_is_not_said_to_be_unsure_as_well() -> None:
    """Handles are a finding at the end, by the bytes without a cause: the readings alone may be sure of few of them."""
    much = rows([i * 8 * MIB for i in range(21)])
    behind = replace(GROWING, outside=True, drift=rate_of(MIB, low=0.0))
    assert drop_unsure([behind], much) == []

    def known_sentences(told: list[Finding]) -> str:
        summary = build_summary(
            much, told, unit=None, counts={"episode": 20}, unread={}, seconds=20.0, known_causes=[behind]
        )
        return " ".join(summary["outcome"]["known"])

    assert behind.owner in known_sentences([])
    assert behind.owner not in known_sentences([replace(LEAK, share=0.1)])


@given(st.integers(1, 1000))
def test_rows_are_bounded_and_keep_their_ends(count: int) -> None:
    kept: list[Sample] = []
    for i in range(count):
        append_sample_(kept, Sample(float(i), {}, READING))
    assert len(kept) <= 200
    assert (kept[0].seconds, kept[-1].seconds) == (0.0, float(count - 1))
    assert [row.seconds for row in kept] == sorted(row.seconds for row in kept)
