"""The frame that all pages share: one file that needs no network, no server and no other file.

plotly.js, the style sheet and the numbers are all in the file. Charts are data until the browser draws them, in the
colours of the reader's theme. The looks of a page are in `templates/` and `assets/page.css`.
"""

import json
from base64 import b64encode
from collections.abc import Iterable, Sequence
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from flatwater_watch.files.safe_read import read_regular
from flatwater_watch.pages.blocks import Block, Folded, Section, Text, Tile
from flatwater_watch.pages.chart import Chart, Grid, read_asset
from flatwater_watch.pages.plotly_charts import plotly_figure

PLOTLYJS_BYTES = 64 << 20
"""Most bytes that plotly.js may have; it has 5 MB."""


def document(
    title: str, *, heading: Text = "", subtitle: Text, tiles: Iterable[Tile], sections: Sequence[Section], footer: str
) -> str:
    """The HTML of the whole page.

    Args:
        title: title of the browser's window.
        heading: heading at the top of the page; by default the title.
        subtitle: text below the heading.
        tiles: the most important figures.
        sections: parts of the page below the tiles.
        footer: one sentence at the end.
    """
    charts = [chart for part in sections for block in part.blocks for chart in _charts_of_block(block)]
    numbers = {id(chart): number for number, chart in enumerate(charts)}  # by identity: equal charts are drawn twice
    # Without a chart plotly.js is left out, which is most of a page's bytes.
    scripts = [_normalize_line_ends(_read_plotlyjs()), _normalize_line_ends(read_asset("page.js"))] if charts else []
    return (
        _load_templates()
        .get_template("page.j2")
        .render(
            title=title,
            heading=heading or title,
            subtitle=subtitle,
            tiles=list(tiles),
            sections=sections,
            footer=footer,
            policy=_content_security_policy(scripts),
            style=Markup(read_asset("page.css")),  # noqa: S704  (our own)
            charts=_embed_json([plotly_figure(chart) for chart in charts]) if charts else "",
            scripts=scripts,
            number=lambda chart: numbers[id(chart)],
        )
    )


def fragment(block: Block) -> str:
    """The HTML of one block without a page around it, as a notebook shows it; charts are not possible."""
    blocks: Any = _load_templates().get_template("blocks.j2").module
    return str(blocks.block(block, None))


@cache
def _load_templates() -> Environment:
    """The templates of pages, which escape every text and refuse a name that is not defined."""
    return Environment(
        loader=PackageLoader("flatwater_watch.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _charts_of_block(block: Block) -> Sequence[Chart]:
    """The charts in a block, folded charts included."""
    if isinstance(block, Chart):
        return [block]
    return (
        block.charts
        if isinstance(block, Grid)
        else _charts_of_block(block.content)
        if isinstance(block, Folded)
        else []
    )


def _read_plotlyjs() -> str:
    """plotly.js, as the package plotly has it; nothing of the package is imported, which takes 0.1 to 0.6 CPU s."""
    spec = find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(name="plotly")
    path = Path(spec.submodule_search_locations[0], "package_data", "plotly.min.js")
    return read_regular(path, PLOTLYJS_BYTES).decode()


def _normalize_line_ends(text: str) -> Markup:
    """A script with the line ends of a browser."""
    # A browser normalises them before it computes the hash that the policy names.
    return Markup(text.replace("\r\n", "\n").replace("\r", "\n"))  # noqa: S704  (our own, and plotly's)


def _content_security_policy(scripts: Sequence[Markup]) -> str:
    """The content security policy of a page: these scripts run and no others, and no network is used."""
    # A second wall behind the templates' escaping. Styles are allowed, as plotly.js writes them when it draws.
    hashes = (
        " ".join(f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts) or "'none'"
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _embed_json(value: object) -> Markup:
    """JSON for a script element, safe for any text."""
    # Escaped as JSON, not as HTML, which a script element does not decode: no `<` may begin a tag there.
    text = json.dumps(value, separators=(",", ":")).replace("<", "\\u003c").replace("&", "\\u0026")
    return Markup(text)  # noqa: S704  (the line above)
