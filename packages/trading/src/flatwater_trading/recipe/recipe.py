"""The recipe `erl`, and the layout of results that all recipes on a panel share."""

from collections.abc import Mapping
from typing import Any

from flatwater.metrics.short_numbers import format_percent, format_share, format_whole, short_seconds, signed_percent
from flatwater.metrics.table_layout import BUFFER_COLUMN, SECONDS_COLUMN, Column, TableLayout
from flatwater.recipe import Headline, Number, Recipe, lazy_function
from flatwater_trading.recipe.config import ErlRunConfig

LAYOUT = TableLayout(
    round="generation",
    short_title="gen",
    columns=(
        Column("fitness", "mean", 6, "fitness/mean"),
        Column("fitness", "max", 6, "fitness/max"),
        Column("fitness", "min", 6, "fitness/min"),
        Column("champion, validation", "score", 7, "validation/champion"),
        Column("champion, validation", "return", 8, "validation/return", signed_percent),
        Column("champion, validation", "holding", 8, "validation/holding", signed_percent),
        Column("", "trades", 7, "trades/count", format_whole),
        Column("", "win%", 5, "trades/win_rate", format_percent),
        Column("", "loss", 6, "train/actor_loss"),
        Column("seconds", "eval", 5, "time/evaluate", short_seconds),
        Column("seconds", "val", 4, "time/validate", short_seconds),
        Column("seconds", "learn", 6, "time/learn", short_seconds),
        SECONDS_COLUMN,
    ),
    dispensable=frozenset({"min", "loss", "eval", "val"}),
    live_columns=(
        Column("", "return", 8, "validation/return", signed_percent),
        Column("", "holding", 8, "validation/holding", signed_percent),
        Column("", "members' drawdown", 8, "account/drawdown", format_share),
        Column("", "trades", 7, "trades/count", format_whole),
        BUFFER_COLUMN,
    ),
)

DAYS_TITLE = "{split} days {first_day} to {last_day} ({days} {days:row})"
"""Title of a result on a panel."""


def account_numbers(*recipe_numbers: Number) -> tuple[Number, ...]:
    """Return the numbers that a result shows of an account; in the middle `recipe_numbers`, which only a recipe has."""
    # Title, name in result.json, and format.
    return (
        Number("return", "total_return", "{:+.1%}"),
        Number("Sharpe", "sharpe", "{:.2f}"),
        Number("drawdown", "drawdown", "{:.1%}"),
        Number("exposure", "exposure", "{:.0%}"),
        Number("trades", "trades", "{:.0f}"),
        *recipe_numbers,
        Number("Sortino", "sortino", "{:.2f}"),
        Number("Calmar", "calmar", "{:.2f}"),
        Number("alpha a year", "alpha", "{:+z.1%}"),
        Number("beta", "beta", "{:.2f}"),
    )


def panel_title(settings: Mapping[str, Any]) -> str:
    """Return the name of the panel that a run learned from."""
    return str(settings.get("panel") or "the panel that comes with Flatwater")


ERL = Recipe(
    config=ErlRunConfig,
    guide="""Evolve a population of traders on a market panel, in constant memory.

    Without options: 16 traders on the panel that comes with Flatwater, a few minutes on 2 cores. --env X evolves
    DDPG, TD3, SAC or DQN members in another environment, such as Pendulum-v1 or package.module:Class: it has
    settings of its own, which `--env X --help` shows (also as `flatwater train evolve`).
    """,
    prepare=lazy_function("flatwater_trading.recipe.run:prepare"),
    plan=lazy_function("flatwater_trading.recipe.run:plan"),
    compose=lazy_function("flatwater_trading.recipe.run:compose"),
    begun_on=lazy_function("flatwater_trading.recipe.run_panel:with_first_days"),
    policy=lazy_function("flatwater_trading.recipe.trader:make_trader"),
    rebuild=lazy_function("flatwater_trading.recipe.trader:rebuild_trader"),
    elsewhere="evolve",
    home="trading",
    layout=LAYOUT,
    curves={"fitness, mean": "fitness/mean", "champion": "validation/champion"},
    journal="lineage",
    players="traders",
    trained="champion",
    said=("split", "first_day", "last_day", "days", "note"),
    title=DAYS_TITLE,
    headline=Headline("champion's return", "total_return", "{:+.1%}", "buy and hold", "buy and hold {}"),
    numbers=account_numbers(
        Number("wins", "win_rate", "{:.0%}"),
        Number("gain/trade", "mean_gain", "{:+.2f}%"),
        Number("turnover", "turnover", "{:.1f} x"),
    ),
    trained_on=panel_title,
    picture=lazy_function("flatwater_trading.recipe.sections:trading_picture"),
    sections=lazy_function("flatwater_trading.recipe.sections:trading_sections"),
    difference=lazy_function("flatwater_trading.recipe.run_comparison:champion_difference"),
    comparison=lazy_function("flatwater_trading.recipe.run_comparison:comparison_charts"),
)
