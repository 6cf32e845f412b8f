"""`report.html` of a backtest: its result, its tear sheet, its scores and its trades."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from flatwater.description import Description, describe_recipe
from flatwater.recipe import Recipe
from flatwater.reports.result_blocks import result_table
from flatwater.rundir.results import DAMAGE_FAULTS, check_result
from flatwater_trading.panel.calendar import calendar_of_year
from flatwater_trading.recipe.recipe import ERL
from flatwater_trading.recipe.sections import equity_chart, trades_chart
from flatwater_trading.recipe.tables import EQUITY, SHEET, TRADES, read_table
from flatwater_trading.recipe.tear_sheet import score_blocks, tear_sheet
from flatwater_trading.recipe.weights.recipe import WEIGHTS
from flatwater_watch.errors import RunError
from flatwater_watch.files.json_values import is_number, parse_json
from flatwater_watch.files.regular_files import RESULT_BYTES, read_regular
from flatwater_watch.pages.blocks import Block, Paragraph, Section, Tile
from flatwater_watch.pages.document import document
from flatwater_watch.sanitize import short_repr

PAGE = "report.html"


def backtest_report(path: Path) -> tuple[Path, Callable[[], str]]:
    """Return the path at which `flatwater report` writes the page of a backtest, and a function that makes it."""
    return path / PAGE, lambda: backtest_page(path)


def backtest_page(path: Path) -> str:
    """Build the page of a backtest's folder as HTML.

    Raises:
        RunError: a file of the folder is damaged.
    """
    result = read_backtest(path)
    equity = read_table(path / "equity.parquet", EQUITY)
    sheet = read_table(path / "sheet.parquet", SHEET)
    # No column is required here: the trades of target weights have others, and are not drawn below.
    trades = read_table(path / "trades.parquet", columns={})
    trainer_recipe = _trainer_recipe(result)
    recipe = describe_recipe(trainer_recipe, settings={})
    sections = [Section(title="Result", blocks=list(_result_blocks(recipe, result, equity)))]
    if equity is not None:
        sections.append(Section(title="Tear sheet", blocks=list(tear_sheet(equity, sheet, result))))
    sections.append(Section(title="Scores", blocks=list(score_blocks(sheet, result))))
    if trades is not None and len(trades) and TRADES.keys() <= set(trades.columns):
        sections.append(Section(title="Trades", blocks=[trades_chart(trades)]))
    units = calendar_of_year(result["periods_per_year"]).units
    days = f"{result['first_day']} to {result['last_day']}, {result['days']} {units}"
    return document(
        path.resolve().name,
        subtitle=f"backtest of {trainer_recipe.name}, {days}",
        tiles=_figure_tiles(result),
        sections=sections,
        footer=f"Written by Flatwater, {datetime.now().astimezone():%Y-%m-%d %H:%M %Z}.",
    )


def read_backtest(path: Path) -> Mapping[str, Any]:
    """Read the result of a backtest, and check what its page shows.

    Raises:
        RunError: the file is damaged, or holds no backtest.
    """
    file = path / "result.json"
    try:
        result: Mapping[str, Any] = parse_json(read_regular(file, RESULT_BYTES))
        _require_result(result)
    # All errors that a file of any contents can raise: somebody may have edited it.
    except (OSError, *DAMAGE_FAULTS) as error:
        raise RunError(
            f"{file}: expected the result of `flatwater backtest`, got {type(error).__name__} {error}. Play the days "
            "again with: flatwater backtest RUN --force"
        ) from error
    return result


def _trainer_recipe(result: Mapping[str, Any]) -> Recipe:
    """Return the recipe of the run whose policy has played the days."""
    return WEIGHTS if result["trainer"] == WEIGHTS.name else ERL


def _require_result(result: Mapping[str, Any]) -> None:
    """Check every value that the page shows.

    Raises:
        TypeError: a value is not a text or not a number, or a row of a trader has no fields.
        ValueError: a number of a row, or the scores, are damaged.
        KeyError: a value is missing.
    """
    for name in ("trainer", "first_day", "last_day", "verdict", "note", "benchmark"):
        if not isinstance(result[name], str):
            raise TypeError(f"{name} = {short_repr(result[name])}: expected a text")
    check_result(result, _trainer_recipe(result))
    champion = result["traders"]["champion"]
    numbers = {name: champion[name] for name in ("total_return", "sharpe", "drawdown", "beta")}
    for name, value in {"periods_per_year": result["periods_per_year"], "days": result["days"], **numbers}.items():
        if not is_number(value):
            raise TypeError(f"{name} = {short_repr(value)}: expected a number")
    # Built here as a check: damaged scores raise before the page is drawn.
    list(score_blocks(None, result))


def _figure_tiles(result: Mapping[str, Any]) -> Iterator[Tile]:
    """Yield the figures on top: return, Sharpe ratio and drawdown beside the benchmark's, and beta to the benchmark."""
    champion, benchmark = result["traders"]["champion"], result["benchmark"]
    # Empty if the result has no such row: the champion's figures then stand alone.
    benchmark_row = result["traders"].get(benchmark, {})
    for title, name, form in (
        ("return", "total_return", "{:+.1%}"),
        ("Sharpe ratio", "sharpe", "{:.2f}"),
        ("drawdown", "drawdown", "{:.1%}"),
    ):
        comparison = f"{benchmark} {form.format(benchmark_row[name])}" if is_number(benchmark_row.get(name)) else ""
        yield Tile(title, form.format(champion[name]), comparison)
    yield Tile("beta", f"{champion['beta']:.2f}", f"to {benchmark}")


def _result_blocks(recipe: Description, result: Mapping[str, Any], equity: pl.DataFrame | None) -> Iterator[Block]:
    """Yield equity, the table of all traders, and the verdict."""
    if equity is not None and len(equity) > 1:
        yield equity_chart(equity, "played")
    yield result_table(recipe, result)
    yield Paragraph(f"{result['verdict']} Note: {result['note']}.", "reading")
