"""The frame that all pages share: one file that needs no network, no server and nothing beside it.

plotly.js, the style sheet and the numbers all stand in the file. Charts are data until the browser draws them, in the
colours of the reader's theme. How a page looks is in `templates/` and `assets/page.css`.
"""

import json
from base64 import b64encode
from collections.abc import Iterable, Sequence
from functools import cache
from hashlib import sha256
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from flatwater_watch.pages.blocks import Block, Folded, Section, Text, Tile
from flatwater_watch.pages.chart import Chart, Grid, read_asset
from flatwater_watch.pages.plotly_charts import for_plotly


def document(
    title: str, *, heading: Text = "", subtitle: Text, tiles: Iterable[Tile], sections: Sequence[Section], footer: str
) -> str:
    """The whole page.

    Args:
        title: of the browser's window.
        heading: at the top of the page. Left out: the title.
        subtitle: below it.
        tiles: what matters most.
        sections: the parts below them.
        footer: one sentence.
    """
    charts = [chart for part in sections for block in part.blocks for chart in _charts(block)]
    numbers = {id(chart): number for number, chart in enumerate(charts)}
    scripts = [_script(get_plotlyjs()), _script(read_asset("page.js"))] if charts else []
    return (
        _templates()
        .get_template("page.j2")
        .render(
            title=title,
            heading=heading or title,
            subtitle=subtitle,
            tiles=list(tiles),
            sections=sections,
            footer=footer,
            policy=_policy(scripts),
            style=Markup(read_asset("page.css")),  # noqa: S704  (our own)
            charts=_embed_json([for_plotly(chart) for chart in charts]) if charts else "",
            scripts=scripts,
            number=lambda chart: numbers[id(chart)],
        )
    )


def fragment(block: Block) -> str:
    """One block without a page around it, as a notebook shows it. Not a chart."""
    blocks: Any = _templates().get_template("blocks.j2").module
    return str(blocks.block(block, None))


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("flatwater_watch.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _charts(block: Block) -> Sequence[Chart]:
    if isinstance(block, Chart):
        return [block]
    return block.charts if isinstance(block, Grid) else _charts(block.content) if isinstance(block, Folded) else []


def _script(text: str) -> Markup:
    """The script as a browser reads it, and reckons its hash."""
    return Markup(text.replace("\r\n", "\n").replace("\r", "\n"))  # noqa: S704  (our own, and plotly's)


def _policy(scripts: Sequence[Markup]) -> str:
    """What a browser lets the page do: run these scripts and no others, and ask nothing of any network.

    A second wall behind the templates' escaping. Styles may stand anywhere: plotly.js writes them into the charts as it
    draws.
    """
    hashes = (
        " ".join(f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts) or "'none'"
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _embed_json(value: object) -> Markup:
    """JSON that can stand in a script element, whatever text it holds: no `<` begins a tag there."""
    text = json.dumps(value, separators=(",", ":")).replace("<", "\\u003c").replace("&", "\\u0026")
    return Markup(text)  # noqa: S704  (the line above)
