"""Makes the HTML of a page: one file that needs no network, no server and no other file.

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

from flatwater_watch.files.regular_files import read_regular
from flatwater_watch.pages.asset_files import read_asset
from flatwater_watch.pages.blocks import Block, FoldedBlock, Section, Text, Tile
from flatwater_watch.pages.chart import Chart, Grid
from flatwater_watch.pages.plotly_charts import plotly_figure

PLOTLYJS_BYTES = 64 << 20
"""Maximum bytes of plotly.js, which has 5 MB."""


def document(
    title: str, *, heading: Text = "", subtitle: Text, tiles: Iterable[Tile], sections: Sequence[Section], footer: str
) -> str:
    """Return the HTML of a whole page.

    Args:
        title: title of the browser's window.
        heading: heading at the top of the page; by default the title.
        subtitle: text below the heading.
        tiles: the most important figures.
        sections: parts of the page below the tiles.
        footer: one sentence at the end.
    """
    charts = [chart for section in sections for block in section.blocks for chart in _charts_of_block(block)]
    numbers = {id(chart): number for number, chart in enumerate(charts)}  # by identity: equal charts are drawn twice
    scripts = list[Markup]()
    if charts:  # else a page has no plotly.js, which would be most of its bytes
        scripts = [_normalize_line_ends(_read_plotlyjs()), _normalize_line_ends(read_asset("page.js"))]
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
            number=lambda chart: numbers[id(chart)],  # by which the page finds the data of a chart
        )
    )


def fragment(block: Block) -> str:
    """Return the HTML of one block without a page around it, for a notebook; the block may hold no chart."""
    # Macros of a template are attributes of its module. The second argument would number charts, and there are none.
    blocks: Any = _load_templates().get_template("blocks.j2").module
    return str(blocks.block(block, None))


@cache
def _load_templates() -> Environment:
    """Return the templates of pages, which escape every text and refuse a name that is not defined."""
    return Environment(
        loader=PackageLoader("flatwater_watch.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _charts_of_block(block: Block) -> Sequence[Chart]:
    """Return the charts in a block, those in grids and folded blocks included."""
    match block:
        case Chart():
            return [block]
        case Grid():
            return block.charts
        case FoldedBlock():
            return _charts_of_block(block.content)
    return []


def _read_plotlyjs() -> str:
    """Return the text of plotly.js from the installed package plotly.

    Raises:
        ModuleNotFoundError: plotly is not installed.
    """
    spec = find_spec("plotly")  # without an import, which takes 0.1 to 0.6 CPU s
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(name="plotly")
    path = Path(spec.submodule_search_locations[0], "package_data", "plotly.min.js")
    return read_regular(path, PLOTLYJS_BYTES).decode()


def _normalize_line_ends(text: str) -> Markup:
    """Return a script with a line feed as its only line end."""
    # A browser normalises line ends before it computes the hash that the policy names.
    return Markup(text.replace("\r\n", "\n").replace("\r", "\n"))  # noqa: S704  (our own, and plotly's)


def _content_security_policy(scripts: Sequence[Markup]) -> str:
    """Return the content security policy of a page: only these scripts run, and no network is used."""
    # It protects readers if an escape is missing in a template. Styles are allowed, as plotly.js writes them to draw.
    digests = [b64encode(sha256(script.encode()).digest()).decode() for script in scripts]
    allowed_scripts = " ".join(f"'sha256-{digest}'" for digest in digests) if digests else "'none'"
    return (
        f"default-src 'none'; script-src {allowed_scripts}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _embed_json(value: object) -> Markup:
    """Return a value as JSON that is safe within a script element, whatever its texts are."""
    # No `<` may begin a tag there. It is escaped as JSON, as a script element does not decode escapes of HTML.
    text = json.dumps(value, separators=(",", ":")).replace("<", "\\u003c").replace("&", "\\u0026")
    return Markup(text)  # noqa: S704  (the line above)
