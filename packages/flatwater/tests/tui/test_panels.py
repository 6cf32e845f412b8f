"""The parts of the screen: bars as long as their bytes, curves as high as their values, in any width."""

import json
from dataclasses import replace
from math import nan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from synthetic_run import append_line, ledger_line, make_run, metrics

from flatwater.rundir.records import parse_ledger_line
from flatwater.tui import panels
from flatwater.tui.followed_run import follow_run, read_new_lines_

SIZES = st.lists(st.integers(0, 1 << 40), min_size=5, max_size=5)


@given(sizes=SIZES, free=st.integers(0, 1 << 40), width=st.integers(1, 200))
def test_each_segment_is_within_a_character_of_its_share(sizes: list[int], free: int, width: int) -> None:
    named = dict(zip(panels.PART_COLOURS, sizes, strict=True))
    full = sum(sizes) + free
    drawn = panels.segment_bar(named, full, width, panels.PART_GLYPHS).plain
    assert len(drawn) == width
    for name, size in named.items():
        assert abs(drawn.count(panels.PART_GLYPHS[name]) - (width * size / full if full else 0)) <= 1


@given(values=st.lists(st.floats(-1e9, 1e9) | st.just(nan), max_size=300), width=st.integers(1, 120))
def test_a_curve_is_as_wide_as_asked_and_rises_with_its_values(values: list[float], width: int) -> None:
    drawn = panels.sparkline(values, width)
    assert len(drawn) == (width if any(value == value for value in values) else 0)  # noqa: PLR0124  (NaN)
    rising = panels.sparkline(sorted(value for value in values if value == value), width)  # noqa: PLR0124
    assert list(rising) == sorted(rising)


def test_a_curve_shows_its_lowest_and_highest_value() -> None:
    assert panels.sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert panels.sparkline([0, nan, 7], 3) == "▁ █"
    assert panels.sparkline([0, 0, 7, 7], 2) == "▁█"
    assert panels.sparkline([5, 5], 4) == "▁▁▁▁"


@pytest.mark.parametrize("width", [20, 37, 78, 160])
def test_no_line_is_wider_than_its_place(tmp_path: Path, width: int) -> None:
    followed = follow_run(make_run(tmp_path / "run"))
    assert followed.line is not None
    console = Console(width=width, record=True, file=(tmp_path / "out").open("w"))
    for part in (
        panels.header_panel(followed, width, 0.0),
        panels.memory_panel(followed.line, width),
        panels.owners_table(followed, width),
        panels.phase_table(followed.line, width),
    ):
        before = len(console.export_text(clear=False).splitlines())
        console.print(part)
        lines = console.export_text(clear=False).splitlines()[before:]
        assert lines
        assert max(map(len, lines)) <= width
    assert len(panels.memory_panel(followed.line, width).plain.splitlines()) == 3
    console.file.close()


def test_a_gpu_is_shown_where_there_is_one() -> None:
    record = ledger_line(3) | {"cuda": {"allocated": 3 << 30, "reserved": 4 << 30}}
    assert (
        "GPU 3 GiB of 4 GiB reserved" in panels.memory_panel(parse_ledger_line(record, Path("ledger.jsonl")), 160).plain
    )


def test_workers_are_shown_where_there_are_some() -> None:
    worker = {"machine": "a", "private": 1 << 30, "planned": 1 << 30, "unplanned": {"replay.row": 8}}
    record = ledger_line(3) | {"exchange": {"workers": [worker, worker | {"unplanned": {}}]}}
    assert (
        "2 workers 2 GiB, 1 not as planned"
        in panels.memory_panel(parse_ledger_line(record, Path("ledger.jsonl")), 160).plain
    )


def test_what_is_off_plan_is_told(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 3)
    followed = follow_run(run)
    line = ledger_line(4)
    line["owned"]["replay.action"] -= 1 << 20
    append_line(run / "ledger.jsonl", line)
    read_new_lines_(followed)
    console = Console(width=100, record=True, file=(tmp_path / "out").open("w"))
    console.print(panels.owners_table(followed, 100))
    shown = {line.split()[0]: line.split()[-2:] for line in console.export_text().splitlines()}
    console.file.close()
    assert shown["replay.action"] == ["-1", "MiB"]
    assert shown["learner.actor"][-1] == "0"


def test_single_numbers_are_not_off_plan(tmp_path: Path) -> None:
    """The ledger does not list them, so a group that has some must not look smaller than planned."""
    run = make_run(tmp_path / "run", 3)
    plan = json.loads((run / "plan.json").read_text())
    plan["owners"]["learner.actor.count"] = 8
    (run / "plan.json").write_text(json.dumps(plan))
    console = Console(width=100, record=True, file=(tmp_path / "out").open("w"))
    console.print(panels.owners_table(follow_run(run), 100))
    last = [line.split()[-1] for line in console.export_text().splitlines()[1:]]
    console.file.close()
    assert last == ["0"] * 7


def test_the_smallest_owners_are_one_line_where_room_is_short(tmp_path: Path) -> None:
    followed = follow_run(make_run(tmp_path / "run", 3))
    console = Console(width=100, record=True, file=(tmp_path / "out").open("w"))
    console.print(panels.owners_table(followed, 100, 5))
    lines = console.export_text().splitlines()
    console.file.close()
    assert len(lines) == 1 + 5 + 1
    assert lines[-1].split() == ["2", "smaller", "21", "MiB"]


def test_before_the_first_generation_every_part_says_so(tmp_path: Path) -> None:
    followed = follow_run(make_run(tmp_path / "run", 0, wanted=5))
    assert panels.missing_ledger_text(followed).plain == "The ledger begins with the first generation."
    assert str(panels.owners_table(followed, 80)) == "The ledger begins with the first generation."
    assert str(panels.phase_table(None, 80)) == "No phase has ended yet."
    assert panels.curves_panel(followed, 80).plain == "No generation has ended yet."
    assert "generation 0/5" in panels.header_panel(followed, 80, 0.0).plain


def test_a_blank_stands_between_the_longest_name_and_its_curve(tmp_path: Path) -> None:
    followed = follow_run(make_run(tmp_path / "run", 3, wanted=5))
    *_, judged = followed.recipe.curves.values()
    followed.recipe = replace(followed.recipe, curves={"the longest name of a curve": judged})
    drawn = panels.curves_panel(followed, 100).plain.splitlines()[0]
    assert drawn.startswith("the longest name of a curve ")
    assert drawn[28] in panels.LEVEL_CHARACTERS


def test_trading_numbers_and_the_time_of_a_generation_stand_beside_the_curves(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 3, wanted=5)
    assert panels.phases_title(follow_run(run)) == "phases · last 11 s, mean 11 s"
    numbers = metrics(4)[3] | {"account/drawdown": 0.034, "buffer/fill": 0.5, "time/learn": 49.2}
    append_line(run / "metrics.jsonl", numbers)
    followed = follow_run(run)
    drawn = panels.curves_panel(followed, 80).plain.splitlines()
    assert drawn[-1] == "return +4.2%  holding +2.7%  members' drawdown 3.4%  trades 1204  buffer 50%"
    assert panels.phases_title(followed) == "phases of generation 3 · last 51 s, mean 21 s", "memory was measured there"
    append_line(run / "ledger.jsonl", ledger_line(6))
    assert panels.phases_title(follow_run(run)) == "phases of generations 4 to 6 · last 51 s, mean 21 s"
    assert len(panels.curves_panel(followed, 30).plain.splitlines()[-1]) == 30
