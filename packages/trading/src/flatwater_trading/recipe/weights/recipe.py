"""The recipe `weights`."""

from flatwater.metrics.short_numbers import format_share
from flatwater.metrics.table_layout import SECONDS_COLUMN, Column, TableLayout
from flatwater.recipe import Headline, Number, Recipe, lazy_function
from flatwater_trading.recipe.result_layout import DAYS_TITLE, account_numbers, panel_title
from flatwater_trading.recipe.weights.config import WeightsRunConfig

LAYOUT = TableLayout(
    round="round",
    short_title="round",
    columns=(
        Column("growth, bps", "learned", 8, "train/growth"),
        Column("growth, bps", "unseen", 7, "unseen/growth"),
        Column("growth, bps", "resting", 8, "unseen/resting"),
        Column("growth, bps", "lead", 6, "unseen/lead"),
        Column("growth, bps", "+-", 5, "unseen/deviation"),
        Column("", "held", 7, "champion/held", format_share),
        SECONDS_COLUMN,
    ),
    dispensable=frozenset({"+-"}),
    live_columns=(
        Column("", "unseen", 8, "unseen/growth"),
        Column("", "lead", 8, "unseen/lead"),
        Column("", "held", 7, "champion/held", format_share),
    ),
)

WEIGHTS = Recipe(
    config=WeightsRunConfig,
    guide="""Learn target weights on a market panel: which part of the money is in which instrument on each day.

    Prices do not answer, so the account can be differentiated: members learn by the gradient of its log growth after
    costs. How much of what they learned is held is judged on days that they did not learn from; the rest is equal
    weights or cash. Long only, or with --account.shorts. Without options: the panel that comes with Flatwater, less
    than a minute on 2 cores.
    """,
    prepare=lazy_function("flatwater_trading.recipe.weights.run:prepare"),
    plan=lazy_function("flatwater_trading.recipe.weights.run:plan"),
    compose=lazy_function("flatwater_trading.recipe.weights.run:compose"),
    begun_on=lazy_function("flatwater_trading.recipe.run_panel:cut_to_days"),
    policy=lazy_function("flatwater_trading.recipe.weights.run:make_trader"),
    rebuild=lazy_function("flatwater_trading.recipe.weights.trader:rebuild_trader"),
    layout=LAYOUT,
    curves={"unseen, bps": "unseen/growth", "champion, bps": "validation/champion"},
    journal="held",
    players="traders",
    trained="champion",
    context_fields=("split", "first_day", "last_day", "days", "weights", "note"),
    title=DAYS_TITLE,
    headline=Headline("champion's return", "total_return", "{:+.1%}", "equal weight", "equal weight {}"),
    numbers=account_numbers(Number("turnover", "turnover", "{:.1f} x"), Number("costs", "costs", "{:.1%}")),
    trained_on=panel_title,
    picture=lazy_function("flatwater_trading.recipe.weights.sections:weights_picture"),
    sections=lazy_function("flatwater_trading.recipe.weights.sections:weights_sections"),
    difference=lazy_function("flatwater_trading.recipe.run_comparison:champion_difference"),
    comparison=lazy_function("flatwater_trading.recipe.run_comparison:comparison_charts"),
    following_commands=("orders",),
)
