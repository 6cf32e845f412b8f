"""Studies side by side: the settings that differ, pooled numbers, and whether the champions' returns differ."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl

from flatwater.comparisons.named import NamedComparison
from flatwater.comparisons.page import rows_table, run_colour, settings_block
from flatwater.comparisons.side_by_side import EMPTY_CELL, PARTIAL_SETTINGS_NOTE, Rows, differing_rows
from flatwater.config.mappings import flat_settings, from_mapping, to_mapping
from flatwater.config.toml import read_toml
from flatwater.metrics.short_numbers import nonzero_percent
from flatwater.recipe import NoDifferenceError
from flatwater_trading.recipe.return_difference import (
    INTERVAL_COVERAGE,
    MINIMUM_PERIODS,
    OTHER_MARKET_NOTE,
    ReturnDifference,
    estimate_difference,
    is_same_market,
    period_returns,
)
from flatwater_trading.recipe.run_comparison import equity_charts
from flatwater_trading.recipe.trader_names import BUY_AND_HOLD, CHAMPION, EQUAL_WEIGHT
from flatwater_trading.study.config import StudyConfig
from flatwater_trading.study.folder import StudyFolder
from flatwater_trading.study.records import StudyRecords, read_study
from flatwater_trading.study.table_rows import calendar_of_study, number_cell, percent_cell
from flatwater_watch.files.json_values import plain_json_value
from flatwater_watch.pages.blocks import Block, Paragraph, Section
from flatwater_watch.pages.document import document
from flatwater_watch.phrases import count_phrase

FINGERPRINT_LETTERS = 12
"""Letters of a panel's fingerprint that are shown: the whole would fill a column."""
CERTAINTY_NOTE = (
    "If an interval contains 0, neither study is better with certainty. The best of several studies looks better than "
    "it is: days on which studies are chosen are no longer untouched."
)
"""Text below the result, on how to read it."""


@dataclass(frozen=True)
class StudyDifference:
    """How the champions' returns of a study differ from those of the first, on the days that both tested."""

    difference: ReturnDifference
    count: int
    """Number of days that both tested."""
    units: str
    """Name of the periods: days, weeks."""
    is_same_market: bool
    """Whether buy and hold earned the same in both studies on each of these days."""


def compare_studies(folders: Mapping[str, Path]) -> NamedComparison:
    """Return the studies in `folders`, by letter, side by side: their settings, their numbers, and whether they differ.

    Raises:
        RunError: a study has not ended, or a file of it is damaged.
    """
    studies = {letter: read_study(path) for letter, path in folders.items()}
    settings = {letter: study_settings(study) for letter, study in studies.items()}
    first_letter, *other_letters = studies
    differences = {letter: _find_difference(studies[letter], studies[first_letter]) for letter in other_letters}
    has_several_recipes = len({study_values.get("trainer") for study_values in settings.values()}) > 1
    names = _compared_settings([*settings.values()], only_shared=has_several_recipes)
    settings_rows = differing_rows(names, [*settings.values()])
    number_rows = _number_rows([*studies.values()])
    sentences = [PARTIAL_SETTINGS_NOTE] if has_several_recipes else []
    sentences += [_difference_sentence(letter, first_letter, outcome) for letter, outcome in differences.items()]
    values = _json_values(studies, settings, [name for name, _ in settings_rows], differences)
    return NamedComparison(
        settings=settings_rows,
        numbers=number_rows,
        sentences=sentences,
        values=cast("Mapping[str, Any]", plain_json_value(values)),
        draw_page=lambda written_at: _page_html(studies, settings_rows, number_rows, sentences, written_at),
    )


def _json_values(
    studies: Mapping[str, StudyRecords],
    settings: Mapping[str, Mapping[str, Any]],
    names: Sequence[str],
    differences: Mapping[str, StudyDifference | NoDifferenceError],
) -> dict[str, Any]:
    """Return the comparison as values for JSON.

    Args:
        studies: the studies by letter.
        settings: settings of each study, by letter and name.
        names: names of the settings that differ.
        differences: difference of each later study from the first, by letter.
    """
    first_letter = next(iter(studies))
    return {
        "studies": [
            {
                "letter": letter,
                "study": str(study.path),
                "settings": {name: settings[letter].get(name) for name in names},
                "pooled": study.pooled_numbers,
            }
            for letter, study in studies.items()
        ],
        "differences": [
            {"study": letter, "against": first_letter, **_difference_values(outcome)}
            for letter, outcome in differences.items()
        ],
    }


def study_settings(study: StudyRecords) -> dict[str, Any]:
    """Return the settings of a study's runs, of the study itself and of its search, by dotted name.

    Raises:
        ConfigError: a file of settings is missing, damaged, or a link.
    """
    folder = StudyFolder(study.path)
    # Through `StudyConfig`, which checks them and adds defaults.
    setup = to_mapping(from_mapping(StudyConfig, read_toml(folder.study, follow_links=False), str(folder.study)))
    setup["data"] = setup["data"][:FINGERPRINT_LETTERS]
    settings = flat_settings(setup, "study") | flat_settings(read_toml(folder.base, follow_links=False))
    if setup["trials"]:
        settings |= flat_settings(read_toml(folder.space, follow_links=False), "search")
    return settings


def _compared_settings(settings: Sequence[Mapping[str, Any]], *, only_shared: bool) -> list[str]:
    """Return the names of the settings that are compared, in their first order, each once.

    Args:
        settings: settings of each study by name.
        only_shared: whether only those are compared that all have, as settings of different recipes differ anyway.
    """
    # The keys of a dictionary: each name once, in order.
    names = list(dict.fromkeys(name for study_values in settings for name in study_values))
    if only_shared:
        names = [name for name in names if all(name in study_values for study_values in settings)]
    return names


def _number_rows(studies: Sequence[StudyRecords]) -> Rows:
    """Return a row for each number: its title and a cell for each study; a study without a complete fold has dashes."""

    def row(title: str, make_cell: Callable[[Mapping[str, Any]], str]) -> tuple[str, list[str]]:
        """Return the title, and the text that `make_cell` makes of each study's pooled numbers."""
        cells = ["" if study.pooled_numbers is None else make_cell(study.pooled_numbers) for study in studies]
        return title, [cell or EMPTY_CELL for cell in cells]

    def trader_cell(name: str, key: str, format_: Callable[[Any], str]) -> Callable[[Mapping[str, Any]], str]:
        """Return a `make_cell` for a trader's number `key`: its text by `format_`, which gets None if it is missing."""
        return lambda pooled: format_(pooled["traders"].get(name, {}).get(key))

    return [
        row("folds", lambda pooled: str(len(pooled["by_fold"]))),
        row("seeds", lambda pooled: str(len(pooled["by_seed"]))),
        row("first test day", lambda pooled: pooled["first_day"]),
        row("last test day", lambda pooled: pooled["last_day"]),
        row("test days", lambda pooled: f"{int(pooled['days']):,}"),
        row("champions: a year", trader_cell(CHAMPION, "annual_return", percent_cell)),
        row("in all", trader_cell(CHAMPION, "total_return", percent_cell)),
        row("Sharpe", trader_cell(CHAMPION, "sharpe", number_cell)),
        row("drawdown", trader_cell(CHAMPION, "drawdown", lambda value: percent_cell(value, "{:.1%}"))),
        row("turnover a year", trader_cell(CHAMPION, "turnover", number_cell)),
        row("equal weight: a year", trader_cell(EQUAL_WEIGHT, "annual_return", percent_cell)),
        row("lead over equal weight", lambda pooled: _interval_cell(pooled["against_equal_weight"])),
        row("best simple rule", lambda pooled: str(pooled["comparison"]["best"])),
        row("lead over it", lambda pooled: _interval_cell(pooled["comparison"])),
        row("tries", lambda pooled: f"{int(pooled['deflated']['tries']):,}"),
        row("deflated, above 0", lambda pooled: f"{pooled['deflated']['probability']:.0%}"),
    ]


def _interval_cell(numbers: Mapping[str, float]) -> str:
    return f"{nonzero_percent(numbers['low'])} to {nonzero_percent(numbers['high'])}"


def _find_difference(study: StudyRecords, first: StudyRecords) -> StudyDifference | NoDifferenceError:
    """Return a study's difference from the first, or the error that says why there is none."""
    try:
        return study_difference(study, first)
    except NoDifferenceError as error:
        return error


def study_difference(study: StudyRecords, first: StudyRecords) -> StudyDifference:
    """Estimate the yearly difference of the champions' returns of two studies, over the days that both tested.

    Raises:
        NoDifferenceError: a study has no complete fold or a curve with gaps, or both tested too few of the same days.
    """
    returns, first_returns = _returns_by_day(study), _returns_by_day(first)
    try:
        # Joined by both ends of a period: a weekly and a daily study share dates, and no period.
        shared = returns.join(first_returns, on=["previous", "date"], suffix=" of first", validate="1:1").sort("date")
    except pl.exceptions.PolarsError as error:
        raise NoDifferenceError("their tables of equity have other types of days, or a day twice") from error
    calendar = calendar_of_study(cast("Mapping[str, Any]", study.pooled_numbers))
    if len(shared) < MINIMUM_PERIODS:
        raise NoDifferenceError(
            f"they tested {count_phrase(len(shared), calendar.unit)} in common, and {MINIMUM_PERIODS} are needed"
        )
    champion_returns = shared[CHAMPION].to_numpy()
    first_champion_returns = shared[f"{CHAMPION} of first"].to_numpy()
    if not (np.isfinite(champion_returns).all() and np.isfinite(first_champion_returns).all()):
        raise NoDifferenceError(f"an equity curve has {calendar.units} without a number")
    return StudyDifference(
        estimate_difference(champion_returns, first_champion_returns, a_year=calendar.a_year),
        count=len(shared),
        units=calendar.units,
        is_same_market=is_same_market(shared[BUY_AND_HOLD].to_numpy(), shared[f"{BUY_AND_HOLD} of first"].to_numpy()),
    )


def _returns_by_day(study: StudyRecords) -> pl.DataFrame:
    """Return a row for each day: the date before it, its date, and what champions and buy and hold earned in between.

    Raises:
        NoDifferenceError: no fold of the study is complete, or its equity is missing.
    """
    if study.pooled_numbers is None:
        raise NoDifferenceError(f"no fold of {study.path} is complete")
    if study.equity is None:
        raise NoDifferenceError(f"{StudyFolder(study.path).equity} is missing")
    returns = {name: period_returns(study.equity[name].to_numpy()) for name in (CHAMPION, BUY_AND_HOLD)}
    dates = study.equity["date"]
    return pl.DataFrame({"previous": dates[:-1], "date": dates[1:], **returns})


def _difference_sentence(letter: str, first: str, outcome: StudyDifference | NoDifferenceError) -> str:
    """Return a sentence on how a study differs from the first, or on why there is no interval."""
    if isinstance(outcome, NoDifferenceError):
        return f"{letter} and {first}: no interval, {outcome}."
    sentence = (
        f"{letter} {outcome.difference.comparison_phrase(first)}, over the same {outcome.count:,} {outcome.units}."
    )
    return sentence if outcome.is_same_market else f"{sentence} {OTHER_MARKET_NOTE}"


def _difference_values(outcome: StudyDifference | NoDifferenceError) -> dict[str, Any]:
    """Return a difference as values for JSON; if there is none, the reason, and None for the interval."""
    if isinstance(outcome, NoDifferenceError):
        return {"count": 0, "units": None, "same_market": None, "reason": str(outcome), "interval": None}
    return {
        "count": outcome.count,
        "units": outcome.units,
        "same_market": outcome.is_same_market,
        "reason": None,
        "interval": asdict(outcome.difference) | {"coverage": INTERVAL_COVERAGE},
    }


def _page_html(
    studies: Mapping[str, StudyRecords],
    settings_rows: Rows,
    number_rows: Rows,
    sentences: Sequence[str],
    written_at: datetime,
) -> str:
    """Return the page of the comparison as HTML.

    Args:
        studies: the studies by letter.
        settings_rows: table of the settings that differ.
        number_rows: table of the studies' numbers.
        sentences: how the studies differ.
        written_at: time in the footer.
    """
    letters = [*studies]
    colours = {letter: run_colour(index) for index, letter in enumerate(letters)}
    equity = {
        letter: study.equity.select("date", champion=CHAMPION)
        for letter, study in studies.items()
        if study.equity is not None
    }
    charts = equity_charts(equity, colours, "study")
    result: list[Block] = [*map(Paragraph, sentences), *charts, rows_table(letters, number_rows)]
    result.append(Paragraph(CERTAINTY_NOTE, "reading"))
    return document(
        f"{len(studies)} studies",
        subtitle=" · ".join(f"{letter}: {study.path}" for letter, study in studies.items()),
        tiles=[],
        sections=[
            Section(title="Result", blocks=result),
            Section(title="Settings that differ", blocks=[settings_block(letters, settings_rows)]),
        ],
        footer=f"Written by Flatwater from the studies' folders, {written_at:%Y-%m-%d %H:%M %Z}.",
    )
