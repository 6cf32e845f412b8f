"""The recipe `ppo`: a policy learns in any environment by PPO."""

from dataclasses import replace

from flatwater.metrics.short_numbers import format_explained_share, format_small, short_seconds, whole_share
from flatwater.metrics.table_layout import SECONDS_COLUMN, Column, TableLayout
from flatwater.recipe import RETURN_NUMBERS, Headline, Recipe, lazy_function
from flatwater.recipes.ppo.config import PpoRunConfig

LAYOUT = TableLayout(
    round="block",
    short_title="block",
    columns=(
        Column("return", "train", 7, "return/mean"),
        Column("", "length", 8, "episode/length", repeats="return/mean"),
        Column("held-out return", "policy", 8, "evaluation/policy"),
        Column("held-out return", "random", 8, "evaluation/random"),
        Column("", "entropy", 8, "train/entropy"),
        Column("", "kl", 8, "train/kl", format_small),
        Column("", "expl", 6, "critic/explained", format_explained_share),
        Column("", "steps/s", 8, "train/sps"),
        Column("seconds", "play", 5, "time/collect", short_seconds),
        Column("seconds", "learn", 6, "time/update", short_seconds),
        SECONDS_COLUMN,
    ),
    dispensable=frozenset({"length", "kl", "expl"}),
    live_columns=(
        Column("", "policy loss", 12, "train/policy_loss", format_small),
        Column("", "value loss", 12, "train/value_loss", format_small),
        Column("", "clip fraction", 14, "train/clip_fraction", whole_share),
    ),
)

PPO = Recipe(
    config=PpoRunConfig,
    guide="""Learn to act in any environment with PPO, in constant memory and at constant speed.

    Without options: CartPole, 100 blocks of 128 steps in 8 copies, a minute on one core. --env takes any environment of
    Gymnasium or PettingZoo by its name, and your class as package.module:Class. Actions are a choice from a list
    or a vector of numbers. `policy.memory` above 0 gives the policy an LSTM. `--preset zoo` takes the settings of RL
    Baselines3 Zoo for the environment.
    """,
    plan=lazy_function("flatwater.recipes.ppo.run:plan"),
    compose=lazy_function("flatwater.recipes.ppo.run:compose"),
    policy=lazy_function("flatwater.recipes.ppo.policy:make_trained_policy"),
    rebuild=lazy_function("flatwater.recipes.ppo.policy:rebuild_policy"),
    prepare=lambda config: replace(config, learner=config.learner.for_rounds(config.rounds)),
    layout=LAYOUT,
    curves={"return, training": "return/mean", "held out": "evaluation/policy"},
    journal="episodes",
    players="players",
    trained="policy",
    title="{episodes} {split} {episodes:episode} of at most {steps} {steps:step}, seeds from {first_seed}",
    context_fields=("episodes", "split", "agents", "steps", "note"),
    headline=Headline("policy's return", "return", "{:.2f}", "random", "{} by chance"),
    numbers=RETURN_NUMBERS,
    trained_on=lambda settings: str(settings.get("env")),
)
