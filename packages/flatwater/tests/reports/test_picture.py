"""The picture of a run: drawn from its folder alone, whole or not at all, also where little happened."""

import json
from collections.abc import Callable
from datetime import date
from math import nan
from pathlib import Path

import matplotlib as mpl
import plotly.graph_objects as go
import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from seen_page import HOSTILE, filled_in
from synthetic_run import make_run

from flatwater.reports.metric_lines import join_equal_lines
from flatwater.reports.picture import draw_run, paint_figure, write_picture
from flatwater.reports.recipe_parts import own_picture
from flatwater.reports.records import read_run
from flatwater_watch.errors import RunError
from flatwater_watch.pages.chart import Axis, Band, Bars, Chart, Dots, Grid, Line, Mark, Picture, Spans
from flatwater_watch.pages.plotly_charts import plotly_figure

Folder = Callable[[int, int], Path]
DAYS = [date(2020, 1, day) for day in (1, 2, 4)]
ROWS = ("a", "b", HOSTILE)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A finished run with so many generations and trades."""

    def make(rounds: int, trades: int) -> Path:
        run = make_run(tmp_path / f"{rounds}-{trades}", rounds)
        pl.read_parquet(run / "trades.parquet")[:trades].write_parquet(run / "trades.parquet")
        return run

    return make


@pytest.mark.long
@pytest.mark.parametrize(("rounds", "trades"), [(1, 0), (1, 1), (12, 9)])
def test_any_run_can_be_drawn(rounds: int, trades: int, folder: Folder) -> None:
    run = folder(rounds, trades)
    draw_run(run)
    assert (run / "result.png").read_bytes().startswith(b"\x89PNG")
    assert not [path for path in run.iterdir() if path.name.startswith(".")]


@pytest.mark.long
def test_drawing_changes_no_setting_and_keeps_no_figure(folder: Folder) -> None:
    before = dict(mpl.rcParams)
    run = folder(2, 2)
    draw_run(run)
    first = (run / "result.png").read_bytes()
    draw_run(run)
    assert dict(mpl.rcParams) == before
    assert first == (run / "result.png").read_bytes()


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"result\.png: "):
        write_picture(tmp_path / "file" / "result.png", [[every_mark()["lines"]]])


def every_mark() -> dict[str, Chart]:
    """Charts with each kind of mark and axis."""
    rounds = [1.0, 2.0, 3.0]
    band = Band(name="band", x=rounds, low=[-9.0, 0, nan], high=[1.0, None, 3])
    dots: list[Mark] = [
        Dots(name=way, x=rounds, y=[1.0, nan, 2], colour="--bad", symbol=way, hover_text=["x", HOSTILE, "z"])
        for way in ("circle", "up", "down")
    ]
    line = Line(name=HOSTILE, x=rounds, y=[1.0, nan, None], colour="--champion", in_front=True, dots=True)
    level = Line(name="level", x=rounds, y=[2.0] * 3, colour="#123456", dashed=True)
    areas = [Line(name=name, x=DAYS, y=[1.0, 2, nan], colour=f"--owner-{name}", stacked=True) for name in "123"]
    piled = [Bars(name=name, at=rounds, values=[1.0, 2, 3], colour="--good", stacked=True) for name in "ab"]
    beside = [
        Bars(name=name, at=ROWS, values=[1.0, -2, None], low=[0.0, -3, None], high=[2.0, 0, None], colour="--bad")
        for name in "ab"
    ]
    across = Bars(
        name="across", at=ROWS, values=[1.0, 2, 3], colour=["--bad", "--good", "--ink"], horizontal=True, labels=ROWS
    )
    spans = Spans(name="held", rows=ROWS, starts=DAYS, ends=[DAYS[-1]] * 3, colour="--good", hover_text=ROWS)
    return {
        "lines": Chart(title="lines", marks=[band, *dots, line, level], y=Axis(span=(-10, 4), zero=True, unit="%")),
        "areas": Chart(
            title="areas", marks=areas, x=Axis(kind="date"), vertical_lines=[DAYS[1]], y=Axis(from_zero=True)
        ),
        "piled": Chart(title="piled", marks=piled, x=Axis(kind="round", title="round", span=(0.5, 3.5))),
        "beside": Chart(title="beside", marks=beside, x=Axis(rows=ROWS)),
        "across": Chart(title="across", marks=[across], y=Axis(rows=ROWS)),
        "spans": Chart(title=HOSTILE, marks=[spans], x=Axis(kind="date"), y=Axis(rows=ROWS)),
        "alone": Chart(title="alone", marks=[Line(name="a", x=[1], y=[5.0], colour="--ink", stacked=True)]),
        "log": Chart(title="log", marks=[level], y=Axis(kind="log")),
    }


@pytest.mark.parametrize("name", every_mark())
def test_each_mark_is_drawn_by_both(name: str) -> None:
    """What plotly takes is checked by plotly; that the picture has it is seen from what matplotlib has drawn."""
    chart = every_mark()[name]
    made = plotly_figure(chart)
    go.Figure(filled_in(made))
    assert {trace["meta"] for trace in made["data"]} == {mark.name for mark in chart.marks}
    kept = json.dumps([[{key: trace[key] for key in trace if key != "meta"} for trace in made["data"]], made["layout"]])
    assert "<img" not in kept
    assert "NaN" not in kept
    (axes,) = Drawn([[chart]]).axes_of
    assert len(axes.lines) + len(axes.patches) + len(axes.collections) >= len(chart.marks)


class Drawn:
    """A picture, laid out."""

    def __init__(self, rows: Picture) -> None:
        self.figure: Figure = paint_figure(rows)
        self.figure.draw_without_rendering()
        self.axes_of: list[Axes] = [axes for axes in self.figure.axes if axes.get_visible()]

    def boxes(self) -> list[tuple[str, Bbox]]:
        """Legends and the areas of curves."""
        legends = [legend for part in self._parts(self.figure) for legend in part.legends]
        return [("legend", legend.get_window_extent()) for legend in legends] + [
            ("axes", axes.get_window_extent()) for axes in self.axes_of
        ]

    def _parts(self, figure: Figure) -> list[Figure]:
        return [figure, *(inner for part in figure.subfigs for inner in self._parts(part))]


@pytest.mark.long
def test_no_legend_lies_over_a_curve_and_nothing_leaves_the_picture(folder: Folder) -> None:
    charts = every_mark()
    small = Grid(title="small", charts=[charts["lines"]] * 5)
    run = read_run(folder(12, 9))
    for rows in (
        [[charts["lines"], charts["beside"]], [charts["areas"], charts["across"]], [small]],
        own_picture(run),
    ):
        found = Drawn(rows)
        legends = [box for kind, box in found.boxes() if kind == "legend"]
        areas = [box for kind, box in found.boxes() if kind == "axes"]
        assert legends
        assert not [1 for legend in legends for area in areas if legend.overlaps(area)]
        whole = found.figure.bbox
        assert all(whole.x0 <= box.x0 and box.x1 <= whole.x1 and whole.y0 <= box.y0 for box in legends + areas)


def test_a_band_stays_within_the_axes_that_were_asked_for() -> None:
    (axes,) = Drawn([[every_mark()["lines"]]]).axes_of
    assert axes.get_ylim() == (-10, 4)


def test_intervals_are_seen_whole() -> None:
    (axes,) = Drawn([[every_mark()["beside"]]]).axes_of
    low, high = axes.get_ylim()
    assert low < -3
    assert high > 2


@pytest.mark.parametrize("top", [1.75, 4000.0])
def test_a_logarithmic_axis_has_several_marks_within_its_range(top: float) -> None:
    line = Line(name="a", x=[1, 2], y=[0.6, top], colour="--ink")
    chart = Chart(title="a", marks=[line], y=Axis(kind="log"))
    (axes,) = Drawn([[chart]]).axes_of
    low, high = axes.get_ylim()
    assert sum(low <= tick <= high for tick in axes.get_yticks()) >= 4
    assert ("dtick" in plotly_figure(chart)["layout"]["yaxis"]) == (top > 1000)


def test_a_name_is_no_formula(tmp_path: Path) -> None:
    """Between two dollars matplotlib reads TeX, and refuses what is none."""
    name = r"$\frac{$"
    bars = Bars(name=name, at=[name], values=[1.0], colour="--ink", horizontal=True, labels=[name])
    line = Line(name=f"{name} too", x=[1, 2], y=[1.0, 2.0], colour="--ink")
    chart = Chart(title=name, marks=[bars, line], y=Axis(rows=[name]), x=Axis(title=name, unit=name))
    write_picture(tmp_path / "a.png", [[chart], [Grid(title=name, charts=[chart])]])
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_lines_that_lie_on_each_other_are_one_with_all_names() -> None:
    """Four equal weights were one line under a legend of four, and looked like the last of them."""
    points = {"a": [25.0, 25.0], "b": [25.0, 25.0], "c": [25.0, 20.0]}
    lines = [Line(name=name, x=[1, 2], y=y, colour=f"--{name}") for name, y in points.items()]
    assert [(line.name, line.y, line.colour) for line in join_equal_lines(lines)] == [
        ("a, b", [25.0, 25.0], "--a"),
        ("c", [25.0, 20.0], "--c"),
    ]
