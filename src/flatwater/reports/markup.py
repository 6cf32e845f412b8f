"""Small pieces of HTML. Whatever comes from a run is escaped here, and nowhere else."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any


class Html(str):
    """Text that is markup already; every other text is escaped when it is put into a page."""

    __slots__ = ()


Content = str | Html | Iterable[str | Html]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart as plotly.js takes it. A colour `--name` is a variable of the style sheet, so that it has two themes."""

    title: str
    reading: str
    """One sentence below the chart: how to read it."""
    data: list[dict[str, Any]]
    layout: dict[str, Any] = field(default_factory=dict)
    height: int = 320
    """Pixels."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """One part of the page, with a heading that the list at the top links to."""

    title: str
    blocks: Sequence[Html | Chart]

    @property
    def anchor(self) -> str:
        """What a link to it names."""
        return self.title.lower().replace(" ", "-")


def tag(name: str, content: Content = "", **attributes: str) -> Html:
    """`<name attribute="...">content</name>`; `class_` stands for `class`, and `_` for `-`."""
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items())
    return Html(f"<{name}{given}>{text(content)}</{name}>")


def text(content: Content) -> Html:
    """The content with everything escaped that is not markup."""
    pieces = (content,) if isinstance(content, str) else content
    return Html("".join(piece if isinstance(piece, Html) else escape(piece) for piece in pieces))


def paragraph(content: Content, **attributes: str) -> Html:
    """One paragraph."""
    return tag("p", content, **attributes)


def table(titles: Sequence[str], rows: Iterable[Sequence[str | Html]], *, words: int = 1) -> Html:
    """A table that scrolls sideways where the page is narrow.

    Args:
        titles: of the columns.
        rows: their cells.
        words: columns on the left that hold words; the others hold numbers and are set to the right.
    """

    def cells(name: str, row: Sequence[str | Html]) -> Html:
        kinds = ("word" if at < words else "number" for at in range(len(row)))
        return tag("tr", [tag(name, cell, class_=kind) for cell, kind in zip(row, kinds, strict=True)])

    body = [cells("td", row) for row in rows]
    return tag("div", tag("table", [tag("thead", cells("th", titles)), tag("tbody", body)]), class_="scroll")


def folded(title: Content, content: Content) -> Html:
    """Content that opens at a click on its title."""
    return tag("details", [tag("summary", title), text(content)])


def for_plotly(chart: Chart) -> dict[str, Any]:
    """The chart as the browser gets it.

    plotly.js reads tags in names, texts, categories and titles, so these are escaped. `meta` has a name as it is, for
    the legend, which is text.
    """
    traces = []
    for trace in chart.data:
        known = {key: [_escaped(item) for item in trace[key]] for key in ("x", "y", "text") if key in trace}
        traces.append(trace | known | {"name": escape(trace["name"]), "meta": trace["name"]})
    return {"data": traces, "layout": _escaped(chart.layout)}


def _escaped(item: object) -> object:
    match item:
        case str():
            return escape(item)
        case dict():
            return {key: _escaped(value) for key, value in item.items()}
        case list():
            return [_escaped(value) for value in item]
    return item


def embedded_json(value: object) -> Html:
    """JSON that can stand in a script element, whatever text it holds: no `<` begins a tag there."""
    return Html(json.dumps(value, separators=(",", ":")).replace("<", "\\u003c").replace("&", "\\u0026"))
