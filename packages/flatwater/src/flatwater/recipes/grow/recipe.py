"""The recipe `grow`: a policy learns when and where networks in training should grow."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flatwater.metrics.short_numbers import format_explained_share, format_percent, short_seconds
from flatwater.metrics.table_layout import SECONDS_COLUMN, Column, TableLayout
from flatwater.recipe import Headline, Number, Recipe, lazy_function
from flatwater.recipes.grow.config import GrowRunConfig

LAYOUT = TableLayout(
    round="batch",
    short_title="batch",
    columns=(
        Column("return", "mean", 6, "return/mean"),
        Column("return", "max", 6, "return/max"),
        Column("return", "min", 6, "return/min"),
        Column("held-out return", "policy", 7, "evaluation/policy"),
        Column("held-out return", "wait", 6, "evaluation/wait"),
        Column("held-out return", "heur", 6, "evaluation/heuristic"),
        Column("", "wait%", 6, "operation/wait", format_percent),
        Column("", "entropy", 8, "train/entropy"),
        Column("", "expl", 6, "critic/explained", format_explained_share),
        Column("seconds", "play", 5, "time/collect", short_seconds),
        Column("seconds", "learn", 6, "time/update", short_seconds),
        Column("seconds", "eval", 5, "time/evaluate", short_seconds),
        SECONDS_COLUMN,
    ),
    dispensable=frozenset({"max", "min", "expl"}),
)


def _task(settings: Mapping[str, Any]) -> str:
    task = str(settings.get("task", "digits"))
    return "the digits that come with scikit-learn" if task == "digits" else task


GROW = Recipe(
    config=GrowRunConfig,
    guide="""Learn when and where networks in training should grow, with PPO over a pool of them, in constant memory.

    Without options: 16 small convolutional networks learn the digits that come with scikit-learn, a few minutes on 2
    cores. `--task module:function` takes your images and classes.
    """,
    plan=lazy_function("flatwater.recipes.grow.run:plan"),
    compose=lazy_function("flatwater.recipes.grow.run:compose"),
    prepare=lambda config: replace(config, learner=config.learner.for_rounds(config.rounds)),
    layout=LAYOUT,
    curves={"return, mean": "return/mean", "held out": "evaluation/policy"},
    journal="episodes",
    players="players",
    trained="policy",
    context_fields=("episodes", "split", "steps", "note"),
    title="{episodes} {split} {episodes:episode} of {steps} {steps:step}, env seeds from {first_seed}",
    headline=Headline("accuracy", "accuracy", "{:.1%}", "wait", "{} if nothing is grown"),
    numbers=(
        Number("return", "return", "{:.2f}"),
        Number("dev", "deviation", "{:.2f}"),
        Number("accuracy", "accuracy", "{:.1%}"),
        Number("capable", "accuracy_capable", "{:.1%}"),
        Number("impaired", "accuracy_impaired", "{:.1%}"),
        Number("grown", "germinated", "{:.1f}"),
        Number("pruned", "pruned", "{:.1f}"),
        Number("fossilised", "fossilised", "{:.1f}"),
    ),
    trained_on=_task,
    picture=lazy_function("flatwater.recipes.grow.sections:growth_picture"),
    sections=lazy_function("flatwater.recipes.grow.sections:growth_sections"),
)
