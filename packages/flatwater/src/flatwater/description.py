"""Names, forms and texts of a recipe, as values, for lists, pages and the live screen.

A run folder describes itself by them (`description.json`), so that a reader of a run imports no recipe that is not
installed. Recipes of installed packages are described by these, whatever a folder says of them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, astuple, dataclass
from typing import Any

from flatwater.metrics.short_numbers import (
    format_percent,
    format_share,
    format_small,
    format_whole,
    short_number,
    short_seconds,
    signed_percent,
    whole_share,
)
from flatwater.metrics.table_layout import Column, TableLayout
from flatwater.recipe import SECTIONS, Headline, Number, Recipe, check_formats
from flatwater_watch.errors import ConfigError
from flatwater_watch.files.json_values import convert_to_type, parse_json
from flatwater_watch.format_strings import fill_format
from flatwater_watch.sanitize import escape_controls, short_repr

MAXIMUM_BYTES = 256 << 10
"""Most bytes of a description's file."""
MAXIMUM_TEXT, MAXIMUM_ENTRIES = 200, 64
"""Most characters of a text, and most entries of a list."""
NUMBER_FORMATS: Mapping[str, Callable[[float], str]] = {
    "short": short_number,
    "small": format_small,
    "whole": format_whole,
    "percent": format_percent,
    "share": format_share,
    "whole share": whole_share,
    "signed percent": signed_percent,
    "seconds": short_seconds,
}
"""Functions that write a number on the live screen, by name; a recipe's own function cannot be written down."""


@dataclass(frozen=True)
class LiveNumber:
    """A number of the last round that the live screen shows."""

    title: str
    name: str
    """Name of the metric."""
    way: str
    """Name, in `NUMBER_FORMATS`, of the function that writes it."""


@dataclass(frozen=True, kw_only=True)
class Description:
    """A recipe as readers know it; the fields are those of `Recipe`, where nothing else is said."""

    name: str
    round: str
    """Name of a round."""
    short: str
    """Name of a round in at most 8 characters."""
    glance: tuple[LiveNumber, ...]
    """Numbers of the last round on the live screen."""
    curves: dict[str, str]
    """Title of a curve -> name of its metric; one or more."""
    journal: str
    players: str
    trained: str
    title: str
    headline: Headline
    numbers: tuple[Number, ...]
    context_fields: tuple[str, ...]
    trained_on: str
    """The data or environment, in a few words."""
    own_parts: bool = False
    """Whether the page has parts of the recipe's own, which a run of it writes into its folder."""

    @property
    def layout(self) -> TableLayout:
        """Layout of the recipe's rounds on the live screen; without the terminal's columns, which training has."""
        live_columns = tuple(
            # The screen has no groups of columns, and chooses widths itself.
            Column(group="", title=number.title, width=0, name=number.name, show=NUMBER_FORMATS[number.way])
            for number in self.glance
        )
        return TableLayout(
            round=self.round, short_title=self.short, columns=(), dispensable=frozenset(), live_columns=live_columns
        )

    @property
    def judged_curve(self) -> tuple[str, str]:
        """Title and metric of the curve that a run is judged by: the last one."""
        return list(self.curves.items())[-1]

    def result_title(self, result: Mapping[str, Any]) -> str:
        """Return the title above the table of a result."""
        return fill_format(self.title, result)

    def to_json(self) -> dict[str, Any]:
        """Return the content of description.json."""
        content = asdict(self)
        content["headline"] = _rename_keys(content["headline"], {"comparison_form": "said"})
        return _rename_keys(content, {"context_fields": "said"})


def measured_numbers(recipe: Recipe | Description, result: Mapping[str, Any]) -> tuple[Number, ...]:
    """Return the numbers of a recipe that at least one player's row of the result has."""
    rows = result[recipe.players].values()
    return tuple(number for number in recipe.numbers if any(row.get(number.key) is not None for row in rows))


def describe_recipe(recipe: Recipe, settings: Mapping[str, Any]) -> Description:
    """Return the description of a recipe, as a run with these settings is shown.

    Raises:
        ConfigError: a text cannot be shown in one line, a format string has more than plain fields, or there is no
            curve.
    """
    layout = recipe.layout
    description = Description(
        name=recipe.name,
        round=layout.round,
        short=layout.short_title,
        glance=tuple(
            LiveNumber(title=column.title, name=column.name, way=_format_name(column)) for column in layout.live_columns
        ),
        curves=dict(recipe.curves),
        journal=recipe.journal,
        players=recipe.players,
        trained=recipe.trained,
        title=recipe.title,
        headline=recipe.headline,
        numbers=tuple(recipe.numbers),
        context_fields=tuple(recipe.context_fields),
        trained_on=escape_controls(str(recipe.trained_on(settings)))[:MAXIMUM_TEXT],
        own_parts=recipe.sections is not SECTIONS,
    )
    # Checked when it is written as well as when it is read: a recipe's author learns of it while the run begins.
    try:
        _require_showable(description)
    except ValueError as error:
        raise ConfigError(f"recipe {short_repr(recipe.name)}: {error}") from error
    return description


def _format_name(column: Column) -> str:
    # "short" stands for a recipe's own function, which has no name in the table.
    return next((name for name, function in NUMBER_FORMATS.items() if function is column.show), "short")


def parse_description(raw: bytes) -> Description:
    """Return the description that a folder holds, whoever made it.

    Raises:
        ValueError: the content is not a description, or holds something that cannot be shown.
    """
    content = parse_json(raw)
    if isinstance(content, dict):  # whoever made it; anything else is refused below
        content = _rename_keys(content, {"said": "context_fields"})
        if isinstance(headline := content.get("headline"), dict):
            content["headline"] = _rename_keys(headline, {"said": "comparison_form"})
    description = convert_to_type(content, Description)
    _require_showable(description)
    return description


def _rename_keys(values: Mapping[str, Any], new_names: Mapping[str, str]) -> dict[str, Any]:
    """Return the values in their order, some under new names: description.json calls two fields `said`."""
    return {new_names.get(key, key): value for key, value in values.items()}


def _require_showable(description: Description) -> None:
    """Refuse a description with too many entries, a text of several lines, or an unknown or unsafe format.

    Raises:
        ValueError: the description cannot be shown; the message says why.
    """
    entries = (description.glance, description.curves, description.numbers, description.context_fields)
    if not description.curves or max(map(len, entries)) > MAXIMUM_ENTRIES:
        raise ValueError(f"expected 1 to {MAXIMUM_ENTRIES} curves, numbers and texts, got {[*map(len, entries)]}")
    # One line of printable text: nothing in it may move a terminal's cursor, or end a table's row.
    for text in _shown_texts(description):
        if len(text) > MAXIMUM_TEXT or escape_controls(text) != text or len(text.splitlines()) > 1:
            raise ValueError(f"{short_repr(text)}: expected one line of at most {MAXIMUM_TEXT} printable characters")
    if not description.journal.isidentifier():  # a part of a file's name: no slash, no dot
        raise ValueError(f"journal = {short_repr(description.journal)}: expected a name such as lineage")
    for live_number in description.glance:
        if live_number.way not in NUMBER_FORMATS:
            raise ValueError(f"{short_repr(live_number.way)}: expected one of {', '.join(NUMBER_FORMATS)}")
    check_formats(description.title, description.headline, description.numbers)


def _shown_texts(description: Description) -> Iterator[str]:
    """Yield every text of a description that a list, a page or a screen shows."""
    yield from (
        description.name,
        description.round,
        description.short,
        description.players,
        description.trained,
        description.title,
        description.trained_on,
    )
    yield from (text for pair in description.curves.items() for text in pair)
    yield from description.context_fields
    specs: tuple[Number | LiveNumber, ...] = (description.headline, *description.numbers, *description.glance)
    yield from (text for spec in specs for text in astuple(spec))  # all their fields are texts
