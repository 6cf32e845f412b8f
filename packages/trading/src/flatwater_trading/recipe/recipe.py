"""The recipe `erl`: traders that evolve on a market panel."""

from flatwater.metrics.short_numbers import format_percent, format_share, format_whole, short_seconds, signed_percent
from flatwater.metrics.table_layout import BUFFER_COLUMN, SECONDS_COLUMN, Column, TableLayout
from flatwater.recipe import Headline, Number, Recipe, lazy_function
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_trading.recipe.result_layout import DAYS_TITLE, account_numbers, panel_title

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
    recipe_in_other_envs="evolve",
    home="trading",
    layout=LAYOUT,
    curves={"fitness, mean": "fitness/mean", "champion": "validation/champion"},
    journal="lineage",
    players="traders",
    trained="champion",
    context_fields=("split", "first_day", "last_day", "days", "note"),
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
    following_commands=("orders",),
)
