"""A part of a page is one file, and for a part of all pages one line of a table besides."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flatwater.cli.main import main
from flatwater.reports import page as pages
from flatwater.reports.page import run_page
from flatwater.reports.records import RunRecords, read_run
from flatwater_watch.pages.blocks import Block, Paragraph, Table
from flatwater_watch.pages.chart import Chart, Line

ROOT = Path(__file__).parents[4]
OWN = '''
from dataclasses import replace
from typing import Literal

from cross_entropy import SEARCH, SearchConfig
from flatwater_watch.options.declare import config
from flatwater_watch.pages.blocks import Table
from flatwater_watch.pages.chart import Bars, Axis, Chart, Line, round_axis
from flatwater.reports.learning_charts import course_sections


@config
class OwnConfig(SearchConfig):
    """The same, shown otherwise."""

    trainer: Literal["own_section:OWN"] = "own_section:OWN"
    """Its name."""


def best(run):
    rounds = run.metrics["round"]
    line = Line(name="best <b>", x=rounds, y=run.metrics["return/best"], colour="--champion", dots=True)
    return Chart(title="The best candidate", marks=[line], x=round_axis(rounds), y=Axis(unit=" steps"))


def sections(run):
    table = Table(("number", "value"), [("rounds <i>", str(run.done))])
    return {**course_sections(run), "Candidates": [best(run), table]}


OWN = replace(SEARCH, config=OwnConfig, sections=sections, picture=lambda run: [[best(run)]])
'''


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The folder of a user: the example, and beside it one file that gives it a part of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cross_entropy.py").write_text((ROOT / "examples" / "flatwater" / "cross_entropy.py").read_text())
    (tmp_path / "own_section.py").write_text(OWN)
    yield
    for name in ("cross_entropy", "own_section"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("own", "painted")
def test_a_users_part_with_a_chart_and_a_table_is_one_file() -> None:
    small = ["--candidates", "4", "--elites", "2", "--rounds", "2", "--threads", "1", "--quiet", "--run", "run"]
    assert main(["train", "own_section:OWN", *small]) == 0
    assert main(["report", "run"]) == 0
    found = Path("run/report.html").read_text()
    assert '<a href="#candidates">Candidates</a>' in found
    assert "<h3>The best candidate</h3>" in found
    assert '"meta":"best \\u003cb>"' in found
    assert "rounds &lt;i&gt;" in found
    assert "What was learned" in found, "what it builds on is there as well"
    assert Path("run/result.png").stat().st_size > 10_000


def _weather(run: RunRecords) -> Iterator[Block]:
    """A part that ships: one function, in a file of its own."""
    rounds = run.metrics["round"]
    yield Paragraph(f"It rained in {run.done} rounds.")
    yield Chart(title="Rain", marks=[Line(name="rain", x=rounds, y=rounds, colour="--good")])
    yield Table(("day", "rain"), [("first", "1 mm")])


@pytest.mark.usefixtures("own")
def test_a_part_of_all_pages_is_one_line_of_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    small = ["--candidates", "4", "--elites", "2", "--rounds", "2", "--threads", "1", "--quiet", "--run", "run"]
    assert main(["train", "cross_entropy:SEARCH", *small]) == 0
    before = run_page(read_run(Path("run")))
    monkeypatch.setitem(pages.SECTION_MAKERS, "Weather", _weather)
    after = run_page(read_run(Path("run")))
    assert "Weather" not in before
    for part in ('<a href="#weather">Weather</a>', '<section id="weather"><h2>Weather</h2>', "<h3>Rain</h3>", "1 mm"):
        assert part in after
    assert after.count("data-chart=") == before.count("data-chart=") + 1
