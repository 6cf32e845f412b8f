"""The frame that all pages share: one file that needs no network, no server and nothing beside it.

plotly.js, the style sheet and the numbers all stand in the file. Charts are data until the browser draws them, in the
colours of the reader's theme.
"""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from importlib.resources import files

from plotly.offline import get_plotlyjs

from flatwater.reports.markup import Chart, Content, Html, Section, embedded_json, for_plotly, paragraph, tag

Tile = tuple[str, str, str, str]
"""Title, value, what stands below it, and its kind: `good`, `bad` or empty."""


def document(title: str, top: Html, sections: Sequence[Section], footer: str) -> str:
    """The whole page.

    Args:
        title: of the browser's window.
        top: what `header` made.
        sections: the parts below it.
        footer: one sentence.
    """
    charts: list[Chart] = []
    parts = [_section(part, charts) for part in sections]
    data = [for_plotly(chart) for chart in charts]
    scripts = [_script(get_plotlyjs()), _script(_asset("page.js"))] if charts else []
    head = [
        Html('<meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'),
        tag("title", f"{title} · Flatwater"),
        tag("style", Html(_asset("page.css"))),
    ]
    body = [
        top,
        tag("main", parts),
        tag("footer", footer),
        *(
            [tag("noscript", "The charts of this page are drawn by JavaScript, which is turned off here.")]
            if charts
            else []
        ),
        *([tag("script", embedded_json(data), type="application/json", id="charts")] if charts else []),
        *(tag("script", script) for script in scripts),
    ]
    return f'<!doctype html>\n<html lang="en">{tag("head", head)}\n{tag("body", body)}</html>\n'


def _script(text: str) -> Html:
    return Html(text.replace("\r\n", "\n").replace("\r", "\n"))  # as a browser reads it, and reckons its hash


def _policy(scripts: Sequence[Html]) -> str:
    """What a browser lets the page do: run these scripts and no others, and ask nothing of any network.

    A second wall behind `markup.text`. Styles may stand anywhere: plotly.js writes them into the charts as it draws.
    """
    hashes = (
        " ".join(f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts) or "'none'"
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def header(title: Content, subtitle: Content, tiles: Iterable[Tile], sections: Sequence[Section]) -> Html:
    """The upper end of a page: links to its parts, its name, and what matters most in a few tiles."""
    links = [tag("a", part.title, href=f"#{part.anchor}") for part in sections]
    return tag(
        "header",
        [
            tag("div", [tag("span", "Flatwater", class_="brand"), tag("nav", links)], class_="top"),
            tag("h1", title),
            paragraph(subtitle, class_="subtitle"),
            tag("div", [_tile(*tile) for tile in tiles], class_="tiles"),
        ],
    )


def _asset(name: str) -> str:
    return files("flatwater.reports").joinpath("assets", name).read_text(encoding="utf-8")


def _section(part: Section, charts: list[Chart]) -> Html:
    """A section's markup; its charts are added to `charts`, and named there by their number."""
    pieces: list[Html] = [tag("h2", part.title)]
    for block in part.blocks:
        if isinstance(block, Chart):
            pieces.append(_chart(block, len(charts)))
            charts.append(block)
        else:
            pieces.append(block)
    return tag("section", pieces, id=part.anchor)


def _chart(chart: Chart, number: int) -> Html:
    plot = tag("div", class_="plot", data_chart=str(number), style=f"height:{chart.height}px")
    legend = tag("div", class_="legend", data_legend=str(number))
    return tag("figure", [tag("h3", chart.title), legend, plot, tag("figcaption", chart.reading)])


def _tile(title: str, value: str, below: str, kind: str) -> Html:
    pieces = [tag("span", title, class_="name"), tag("span", value, class_="value"), tag("span", below, class_="below")]
    return tag("div", pieces, class_=f"tile {kind}".strip())
