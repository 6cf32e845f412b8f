"""The recipe `evolve`: a population of members in any environment that its algorithm can learn in."""

from dataclasses import replace

from flatwater.metrics.short_numbers import format_whole, short_seconds
from flatwater.metrics.table_layout import BUFFER_COLUMN, SECONDS_COLUMN, Column, TableLayout
from flatwater.recipe import RETURN_NUMBERS, Headline, Recipe, lazy_function
from flatwater.recipes.evolve.config import EvolveRunConfig

LAYOUT = TableLayout(
    round="generation",
    short_title="gen",
    columns=(
        Column("fitness", "mean", 8, "fitness/mean"),
        Column("fitness", "max", 8, "fitness/max"),
        Column("fitness", "dev", 7, "fitness/deviation"),
        Column("return", "champ", 8, "champion/return"),
        Column("return", "train", 8, "return/mean"),
        Column("", "q", 7, "train/q"),
        Column("", "steps", 9, "transitions", format_whole),
        Column("seconds", "train", 6, "time/train", short_seconds),
        Column("seconds", "eval", 5, "time/evaluate", short_seconds),
        SECONDS_COLUMN,
    ),
    dispensable=frozenset({"dev", "q"}),
    live_columns=(Column("", "transitions", 9, "transitions", format_whole), BUFFER_COLUMN),
)

EVOLVE = Recipe(
    config=EvolveRunConfig,
    guide="""Evolve DDPG, TD3, SAC or DQN members in any environment, in constant memory.

    Without options: 4 members of TD3 in Pendulum, 10 generations, two minutes on one core. --env takes any
    environment of Gymnasium by its name, and your class as package.module:Class.
    """,
    plan=lazy_function("flatwater.recipes.evolve.run:plan"),
    compose=lazy_function("flatwater.recipes.evolve.run:compose"),
    policy=lazy_function("flatwater.recipes.evolve.policy:make_trained_policy"),
    rebuild=lazy_function("flatwater.recipes.evolve.policy:rebuild_champion"),
    prepare=lambda config: replace(config, learner=config.learner.for_updates(config.total_updates)),
    layout=LAYOUT,
    curves={"fitness, mean": "fitness/mean", "champion": "champion/return"},
    journal="lineage",
    players="players",
    trained="champion",
    title="{episodes} {split} {episodes:episode} of at most {steps} {steps:step} in {env}",
    context_fields=("episodes", "split", "env", "steps", "note"),
    headline=Headline("champion's return", "return", "{:.2f}", "random", "{} by chance"),
    numbers=RETURN_NUMBERS,
    trained_on=lambda settings: str(settings.get("env")),
)
