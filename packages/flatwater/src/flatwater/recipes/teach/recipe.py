"""The recipe `teach`: a student learns from a teacher, then by PPO without one."""

from dataclasses import replace

from flatwater.metrics.short_numbers import format_explained_share, format_percent
from flatwater.metrics.table_layout import SECONDS_COLUMN, Column, TableLayout
from flatwater.recipe import RETURN_NUMBERS, Headline, Number, Recipe, lazy_function
from flatwater.recipes.teach.config import TeachRunConfig

LAYOUT = TableLayout(
    round="block",
    short_title="block",
    columns=(
        Column("return", "train", 6, "return/mean"),
        Column("held-out return", "student", 8, "evaluation/student"),
        Column("held-out return", "teacher", 8, "evaluation/teacher"),
        Column("", "agree%", 7, "train/agreement", format_percent),
        Column("", "led%", 5, "lead/share", format_percent),
        Column("", "expl", 6, "critic/explained", format_explained_share),
        Column("µs a step of an agent", "env", 6, "profile/env_us"),
        Column("µs a step of an agent", "teach", 6, "profile/teacher_us"),
        Column("µs a step of an agent", "act", 6, "profile/policy_us"),
        Column("µs a step of an agent", "store", 6, "profile/store_us"),
        Column("µs a step of an agent", "learn", 6, "profile/update_us"),
        SECONDS_COLUMN,
    ),
    dispensable=frozenset({"expl", "store", "act"}),
)

TEACH = Recipe(
    config=TeachRunConfig,
    guide="""Learn from a teacher in a world of many agents, then without one, in constant memory and at constant speed.

    Without options: 32 levels of BabyAI, taught by the bot that comes with MiniGrid, 125,000 steps. The plan does not
    count simulators.
    """,
    plan=lazy_function("flatwater.recipes.teach.run:plan"),
    compose=lazy_function("flatwater.recipes.teach.run:compose"),
    policy=lazy_function("flatwater.recipes.ppo.policy:make_trained_policy"),
    rebuild=lazy_function("flatwater.recipes.ppo.policy:rebuild_policy"),
    prepare=lambda config: replace(config, learner=config.learner.for_rounds(config.rounds)),
    layout=LAYOUT,
    curves={"return, training": "return/mean", "held out": "evaluation/student"},
    journal="lessons",
    players="players",
    trained="student",
    context_fields=("episodes", "split", "agents", "steps", "note"),
    title="{episodes} {split} {episodes:episode} of {agents} {agents:agent}, {steps} {steps:step}, "
    "seeds from {first_seed}",
    headline=Headline("student's return", "return", "{:.2f}", "teacher", "teacher {}"),
    numbers=(
        *RETURN_NUMBERS,
        Number("of the teacher", "of_teacher", "{:.0%}"),
        Number("x random", "times_random", "{:.1f}"),
    ),
    trained_on=lambda settings: str(settings.get("world")),
    picture=lazy_function("flatwater.recipes.teach.sections:teaching_picture"),
    sections=lazy_function("flatwater.recipes.teach.sections:teaching_sections"),
    tables=lazy_function("flatwater.recipes.teach.sections:profile_tables"),
)
