"""The live screen, driven as a person would: it fits 80 columns, follows the run, scrolls, and ends at `q`.

`python packages/flatwater/tests/tui/test_app.py` draws `top.svg` anew.
"""

import asyncio
import re
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

sys.path.append(str(Path(__file__).parents[1] / "reports"))

from synthetic_run import append_line, ledger_line, make_run, metrics

from flatwater.tui.app import Top
from flatwater.tui.followed_run import follow_run
from flatwater_watch.errors import RunError

PICTURE = Path(__file__).with_name("top.svg")
STILL = 3
"""Pictures in a row that are the same when nothing moves any more."""
Act = Callable[[Top, Pilot[RunError]], Awaitable[None]]


def drive(run: Path, act: Act, size: tuple[int, int] = (80, 24)) -> Top:
    """The screen of a run, acted upon as soon as it stands."""
    screen = Top(follow_run(run), clock=lambda: 1.8e9)

    async def main() -> None:
        async with screen.run_test(size=size) as pilot:
            await pilot.pause()
            await act(screen, pilot)

    asyncio.run(main())
    return screen


def text_of(screen: Top) -> str:
    """What stands on the screen, line by line."""
    strips = screen.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


def draw_screen(run: Path) -> str:
    """The screen as a picture, once it stands still, without the number that keeps several pictures of a page apart."""
    kept: list[str] = []

    async def act(screen: Top, pilot: Pilot[RunError]) -> None:
        while len(kept) < STILL or len({*kept[-STILL:]}) > 1:  # a busy machine draws later than it lays out
            await pilot.pause(0.1)
            kept.append(re.sub(r"terminal-\d+", "terminal", screen.export_screenshot()))

    drive(run, act)
    return kept[-1]


def test_the_screen_looks_as_it_did(tmp_path: Path) -> None:
    assert draw_screen(make_run(tmp_path / "run")) == PICTURE.read_text()


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
def test_every_number_fits(tmp_path: Path, size: tuple[int, int]) -> None:
    async def act(screen: Top, _pilot: Pilot[RunError]) -> None:
        shown = text_of(screen)
        for part in (
            "run  finished  generation 60/60",
            "memory · 945 MiB resident, 70% of the budget of 1.32 GiB",
            "unaccounted 120 MiB",
            "12 files",
            "183 MiB",
            "945 MiB  825 MiB to 945 MiB",
            "leak  train.HALL grows by 3.00 MiB a round, and nothing ends it",
            "findings · 2",
            "q quit",
        ):
            assert part in shown
        assert len(shown.splitlines()) == size[1]

    drive(make_run(tmp_path / "run"), act, size)


def test_lines_that_come_are_shown_within_two_seconds(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 3, wanted=9)

    async def act(screen: Top, pilot: Pilot[RunError]) -> None:
        assert "generation 3/9" in text_of(screen)
        append_line(run / "metrics.jsonl", metrics(4)[3])
        append_line(run / "ledger.jsonl", ledger_line(44))
        for _ in range(20):
            await pilot.pause(0.1)
            if "generation 4/9" in text_of(screen):
                break
        shown = text_of(screen)
        assert "generation 4/9" in shown
        assert "unaccounted 72.1 MiB" in shown

    drive(run, act)


def test_arrows_scroll_the_part_that_tab_chose(tmp_path: Path) -> None:
    async def act(screen: Top, pilot: Pilot[RunError]) -> None:
        assert "eval_env.history" not in text_of(screen)
        await pilot.press("down", "down", "down")
        await pilot.pause(0.3)
        assert "eval_env.history" in text_of(screen)
        assert screen.focused is not None
        assert screen.focused.id == "owners"
        await pilot.press("tab", "tab")
        assert screen.focused.id == "findings"
        assert "2 alarms  " not in text_of(screen)
        await pilot.press("end")
        await pilot.pause(0.3)
        assert "2 alarms  " in text_of(screen)

    drive(make_run(tmp_path / "run"), act)


def test_a_short_screen_has_the_last_alarm_before_the_gravest_finding(tmp_path: Path) -> None:
    async def act(screen: Top, _pilot: Pilot[RunError]) -> None:
        *_, title, first, second, _keys = text_of(screen).splitlines()
        assert "findings · 2 · 2 alarms" in title
        assert first.startswith(" 2 alarms  constant policy")
        assert second.startswith(" leak  train.HALL")

    drive(make_run(tmp_path / "run"), act, (60, 18))


def test_q_ends_it(tmp_path: Path) -> None:
    async def act(screen: Top, pilot: Pilot[RunError]) -> None:
        assert screen.is_running
        await pilot.press("q")
        await pilot.pause()
        assert not screen.is_running

    assert drive(make_run(tmp_path / "run", 2), act).return_value is None


def test_a_file_that_is_damaged_meanwhile_ends_it_with_the_reason(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 2)

    async def act(screen: Top, pilot: Pilot[RunError]) -> None:
        with (run / "ledger.jsonl").open("a") as file:
            file.write("damaged\n{}\n")
        screen.refresh_files()
        await pilot.pause()

    assert isinstance(drive(run, act).return_value, RunError)


def test_a_run_that_has_nothing_yet_has_a_screen(tmp_path: Path) -> None:
    async def act(screen: Top, _pilot: Pilot[RunError]) -> None:
        assert "The ledger begins with the first generation." in text_of(screen)

    drive(make_run(tmp_path / "run", 0, wanted=5), act)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        PICTURE.write_text(draw_screen(make_run(Path(place) / "run")))
