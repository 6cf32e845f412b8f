"""The table on the terminal: narrow enough for any number, and its forecast steady."""

import io
from collections.abc import Callable
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from flatwater.metrics.console import ConsoleTable
from flatwater.metrics.short_numbers import (
    format_explained_share,
    format_percent,
    format_small,
    format_whole,
    short_duration,
    short_number,
    short_seconds,
)
from flatwater.metrics.table_layout import RESIDENT_COLUMN, group_line, row_line, title_line
from flatwater.named_imports import SHIPPED_PERMIT
from flatwater.recipe import find_recipe, recipe_names
from flatwater_trading.recipe.recipe import LAYOUT

COLUMNS = LAYOUT.columns
TITLES = title_line(COLUMNS, LAYOUT.short_title)

WIDTH = 100


@pytest.mark.parametrize("recipe", recipe_names())
def test_a_row_of_every_recipe_fits_into_80_characters(recipe: str) -> None:
    layout = find_recipe(recipe, SHIPPED_PERMIT).layout
    assert len(title_line(layout.fitting_columns(80), layout.short_title)) <= 80
    assert len(title_line(layout.fitting_columns(WIDTH), layout.short_title)) <= WIDTH


@pytest.mark.parametrize(("length", "shown"), [(17.25, False), (9.5, True)])
def test_a_length_that_repeats_the_return_has_no_column(length: float, *, shown: bool) -> None:
    out = io.StringIO()
    console = ConsoleTable(2, Console(file=out, width=WIDTH), find_recipe("ppo", SHIPPED_PERMIT).layout)
    for _ in range(2):
        console.print_row_(console.end_round_(), {"return/mean": 17.25, "episode/length": length})
    assert ("length" in out.getvalue()) == shown
    assert ("9.5" in out.getvalue()) == shown


def table(
    total: int, clock: Callable[[], float], *, done: int = 0, terminal: bool = False
) -> tuple[ConsoleTable, io.StringIO]:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=WIDTH)
    return ConsoleTable(total, console, LAYOUT, rounds_done=done, clock=clock), out


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0, "0"), (0.00124, "0.00124"), (0.000491, "4.9e-04"), (1.5e-9, "1.5e-09")]
)
def test_a_small_number_leaves_a_space_in_a_column_of_eight(value: float, shown: str) -> None:
    assert format_small(value) == shown
    assert len(shown) < 8


@given(st.floats(allow_nan=True, allow_infinity=True).filter(lambda x: not 999.5e18 <= abs(x) < inf))
def test_a_short_number_fits_and_is_right_to_one_part_in_ten(value: float) -> None:
    shown = short_number(value)
    assert len(shown) <= 5
    if abs(value) < inf and abs(value) >= 0.1:
        factor = 1000 ** (" kMGTPE".index(shown[-1])) if shown[-1].isalpha() else 1
        assert float(shown.rstrip("kMGTPE")) * factor == pytest.approx(value, rel=0.1)


@pytest.mark.parametrize(("share", "shown"), [(-0.004, "0"), (-0.006, "-1"), (0.996, "100"), (float("nan"), "nan")])
def test_a_share_that_rounds_to_nothing_has_no_sign(share: float, shown: str) -> None:
    assert format_percent(share) == shown
    assert format_whole(-0.4) == "0"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (-9.994, "-9.99"),
        (9.995, "10.0"),
        (-99.96, "-100"),
        (999.5, "1.0k"),
        (-10_000, "-10k"),
        (999_500, "1.0M"),
        (nan, "nan"),
    ],
)
def test_numbers_are_rounded_into_the_next_form(value: float, shown: str) -> None:
    assert short_number(value) == shown


@given(st.floats(0, 80 * 86_400))
def test_times_fit(seconds: float) -> None:
    assert len(short_seconds(seconds)) <= 3
    assert len(short_duration(seconds)) <= 5


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (59.4, "59s"),
        (59.6, "1m"),
        (3569, "59m"),
        (3571, "1h00"),
        (86_369, "23h59"),
        (86_371, "1d0h"),
        (100 * 3600, "4d4h"),
    ],
)
def test_durations_are_rounded_into_the_next_unit(seconds: float, shown: str) -> None:
    assert short_duration(seconds) == shown


numbers = st.one_of(st.floats(-1e12, 1e12), st.sampled_from([nan, inf, -inf]))


@given(
    st.fixed_dictionaries(
        {column.name: numbers for column in COLUMNS if column.name[:4] not in {"time", "repl", "trad", "seco"}}
    )
)
def test_a_row_stands_under_its_titles_within_100_columns(metrics: dict[str, float]) -> None:
    rest = {"time/learn": 86_000.0, "buffer/fill": 1.0, "trades/count": 12_345.0, "trades/win_rate": 0.5}
    row = row_line("1000/1000", metrics | rest | {RESIDENT_COLUMN.name: 99_999e6}, 86_369.0, COLUMNS)
    assert len(row) == len(TITLES) <= WIDTH
    assert len(group_line(COLUMNS)) <= WIDTH
    ends = [at for at, mark in enumerate(TITLES + " ") if mark == " " and TITLES[at - 1] != " "]
    assert all(row[end - 1] != " " for end in ends if end)


def test_without_a_terminal_the_rows_are_plain_text_under_a_header_every_20() -> None:
    shown, out = table(50, lambda: 0.0)
    with shown:
        for _ in range(41):
            shown.show_phase_("learn", 1, 2)
            shown.print_row_(shown.end_round_(), {"fitness/mean": 1.25})
    lines = out.getvalue().splitlines()
    assert "\x1b" not in out.getvalue()
    assert [at for at, line in enumerate(lines) if line == TITLES] == [1, 23, 45]
    assert len(lines) == 41 + 3 * 2 + 1
    assert lines[2].split()[:2] == ["1/50", "1.25"]


def test_on_a_terminal_a_bar_shows_the_phase_and_goes_away() -> None:
    now = [0.0]
    shown, out = table(3, lambda: now[0], terminal=True)
    with shown:
        shown.show_phase_("evaluate", 0, 10)
        now[0] = 2.0
        shown.show_phase_("evaluate", 2, 10)
        assert "generation 1/3" in out.getvalue()
        assert "phase: 8s left" in out.getvalue()
        now[0] = 10.0
        shown.print_row_(shown.end_round_(), {})
        now[0] = 12.0
        shown.show_phase_("evaluate", 1, 10)
        assert "run: 18s left" in out.getvalue()
    assert "\x1b[2K" in out.getvalue()
    assert out.getvalue().endswith("1 generation in 10 s, 10 s each on average\x1b[0m\n")


def test_the_bar_is_not_drawn_more_than_ten_times_a_second() -> None:
    now = [0.0]
    shown, out = table(3, lambda: now[0], terminal=True)
    with shown:
        shown.show_phase_("learn", 0, 10_000)
        before = len(out.getvalue())
        for step in range(1, 1000):
            now[0] = step * 1e-5
            shown.show_phase_("learn", step, 10_000)
        assert len(out.getvalue()) == before


@given(slow=st.floats(0, 1e5))
def test_one_slow_round_does_not_move_the_forecast(slow: float) -> None:
    now = [0.0]
    shown, _ = table(100, lambda: now[0], done=90)
    for took in (10.0, 10.0, slow, 10.0, 10.0):
        now[0] += took
        shown.print_row_(shown.end_round_(), {})
    assert shown.seconds_left(now[0]) == pytest.approx(5 * 10.0)
    assert shown.seconds_left(now[0] + 4) == pytest.approx(5 * 10.0 - 4)


def test_the_time_of_a_phase_that_may_end_early_is_an_upper_bound() -> None:
    """Episodes end before the most steps that they may have: the first evaluation seemed to take an hour."""
    out, now = io.StringIO(), 0.0
    console = Console(file=out, force_terminal=True, width=WIDTH)
    shown = ConsoleTable(3, console, LAYOUT, early_phases={"evaluate"}, clock=lambda: now)
    with shown:
        shown.show_phase_("evaluate", 0, 10)
        now = 2.0
        shown.show_phase_("evaluate", 2, 10)
    assert "phase: at most 8s left" in out.getvalue()


def test_the_time_of_each_round_and_their_mean_are_told() -> None:
    now = [0.0]
    shown, out = table(12, lambda: now[0], done=10)
    assert shown.pace_text() == ""
    for took in (2.0, 7.0):
        now[0] += took
        shown.print_row_(shown.end_round_(), {})
    assert [line.split()[-3] for line in out.getvalue().splitlines()[2:]] == ["2.0", "7.0"]
    assert shown.pace_text() == "2 generations in 9.0 s, 4.5 s each on average"


def test_a_long_round_says_every_10_seconds_how_far_it_has_come() -> None:
    now = 0.0
    shown, out = table(3, lambda: now)
    for second in range(240):
        now = float(second)
        if second % 20 == 0:
            shown.show_phase_("learn", second // 20 + 1, 12)
        shown.report_progress_()
    lines = out.getvalue().splitlines()
    assert len(lines) == 23, "one for each 10 seconds"
    assert lines[2].strip() == "generation 1/3: 30 s so far, learn 2/12, phase: 2m left"
    shown.print_row_(shown.end_round_(), {})
    assert len(out.getvalue().splitlines()) == 26
    now = 245.0
    shown.report_progress_()
    assert len(out.getvalue().splitlines()) == 26, "a round that has just ended has said enough"


def test_a_terminal_has_a_bar_instead() -> None:
    now = 0.0
    shown, out = table(3, lambda: now, terminal=True)
    with shown:
        now = 60.0
        shown.show_phase_("learn", 1, 12)
        shown.report_progress_()
    assert "so far" not in out.getvalue()


@pytest.mark.parametrize(
    ("value", "shown"), [(1.0, "1.00"), (-0.001, "0.00"), (-0.5, "-0.50"), (-1491.0, "-1.00"), (float("nan"), "nan")]
)
def test_an_explained_variance_stays_within_its_column(value: float, shown: str) -> None:
    assert format_explained_share(value) == shown
