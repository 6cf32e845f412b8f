"""Blocks of a page come back from a file as they were; whatever else a file holds is refused, and runs nothing."""

import json
from datetime import date
from typing import Any

import numpy as np
import pytest
from markupsafe import Markup

from flatwater_watch.pages.block_json import from_plain, to_plain
from flatwater_watch.pages.blocks import FoldedBlock, Heading, Listing, Paragraph, Piece, Section, Table
from flatwater_watch.pages.chart import Axis, Band, Bars, Chart, Dots, Grid, Line, Spans
from flatwater_watch.pages.document import document

X = [date(2024, 1, 1), date(2024, 1, 2)]
MARKS = [
    Line(name="a", x=[1, 2], y=[1.0, None], colour="--champion", hover_text=["x", "y"]),
    Band(name="b", x=[1, 2], low=[0.0, 1.0], high=[1.0, 2.0]),
    Dots(name="c", x=[1, 2], y=[1.0, 2.0], colour="#12ab34", symbol="up"),
    Bars(name="d", at=["p", "q"], values=[1.0, 2.0], colour=["--bad", "--quiet"], low=[0.0, 1.0], high=[2.0, 3.0]),
    Spans(name="e", rows=["p", "q"], starts=X, ends=X, colour="--bad"),
]
CHART = Chart(title="t", marks=MARKS[:3], x=Axis(kind="round", span=(1.0, 2.0)), vertical_lines=[1])
BLOCKS = [
    Paragraph(["a ", Piece("b"), Piece("c", "calm", "https://example.org")], "reading"),
    Heading("h"),
    Listing(["one", ["two", Piece("x")]]),
    Table(("a", "b"), [("1", Piece("2", "off"))], text_columns=2),
    FoldedBlock("open", Table(("a",), [("x",)])),
    CHART,
    Grid(title="g", charts=[Chart(title="s", marks=[mark], y=Axis(rows=["p", "q"])) for mark in MARKS]),
    "a text",
]


def again(block: object) -> Any:
    return from_plain(json.loads(json.dumps(to_plain(block))))


def lists(value: Any) -> Any:
    """With lists for tuples, as JSON has them."""
    return json.loads(json.dumps(to_plain(value)))


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: type(block).__name__)
def test_a_block_comes_back_as_it_was_and_is_drawn(block: Any) -> None:
    found = again(block)
    assert lists(found) == lists(block)
    assert type(found) is type(block)
    assert document("t", subtitle="", tiles=[], sections=[Section(title="s", blocks=[found])], footer="")


def test_numbers_of_arrays_are_numbers_and_markup_is_its_text() -> None:
    line = Line(name="a", x=np.arange(2), y=np.array([1.5, np.nan], np.float32), colour="--bad")
    assert again(Chart(title="t", marks=[line])).marks[0].y == [1.5, None]
    assert again(Markup("<b onclick='x()'>bold</b><script>evil()</script>")) == "boldevil()"
    with pytest.raises(TypeError, match="expected a block"):
        to_plain(object())


def changed_block(block: object, **fields: object) -> dict[str, Any]:
    found: dict[str, Any] = to_plain(block)
    return found | fields


HOSTILE: list[object] = [
    3,
    None,
    [],
    {},
    {"is": "Recipe"},
    {"is": "os:system"},
    {"is": ["Line"]},
    changed_block(MARKS[0]),
    changed_block(BLOCKS[1], text=3),
    changed_block(BLOCKS[1], strange=1),
    {"is": "Heading"},
    changed_block(CHART, height=10**9),
    changed_block(CHART, height=True),
    changed_block(CHART, weight=-1.0),
    changed_block(CHART, x={"is": "Axis", "kind": "other"}),
    changed_block(BLOCKS[4], content={"is": "FoldedBlock"}),
    *(
        changed_block(CHART, marks=[changed_block(MARKS[0], **fields)])
        for fields in (
            {"colour": "red;background:url(//x)"},
            {"colour": "--x);background:url(//x"},
            {"form": "{x}<script>"},
            {"x": [1]},
            {"y": ["a", "b"]},
            {"y": [10**400, 1]},
            {"said": ["x"]},
            {"x": [{"date": "never"}, 1]},
        )
    ),
    *(
        changed_block(BLOCKS[0], text=[{"is": "Piece", "text": "x", "href": link}])
        for link in (
            "javascript:alert(1)",
            " javascript:alert(1)",
            "data:text/html,x",
            "JaVaScRiPt:x",
            "java\tscript:x",
            "vbscript:x",
        )
    ),
    changed_block(CHART, marks=[changed_block(MARKS[4], starts=["a", "b"])]),
    changed_block(CHART, marks=[changed_block(MARKS[3], low=[])]),
]


@pytest.mark.parametrize("content", HOSTILE, ids=str)
def test_whatever_else_is_refused(content: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (each says what is wrong in words of its own)
        from_plain(content)


def test_fields_and_classes_keep_their_names_in_files() -> None:
    """A run of an earlier version has them so in its `sections.json`."""
    bars = Bars(name="a", at=["x"], values=[1.0], colour="--ink", horizontal=True)
    assert (to_plain(MARKS[0])["said"], to_plain(bars)["across"], to_plain(CHART)["uprights"]) == (
        ["x", "y"],
        True,
        [1],
    )
    assert (to_plain(BLOCKS[3])["words"], to_plain(BLOCKS[4])["is"]) == (2, "Folded")
