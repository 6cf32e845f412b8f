"""The parts of a page that only growing networks have: what the policy learned, and what became of each slot."""

from collections.abc import Iterator, Mapping

import polars as pl

from flatwater.recipes.grow.charts import life, operations_chart, returns_chart, stages_legend
from flatwater.reports.markup import Chart, Html, paragraph, tag
from flatwater.reports.missing import missing
from flatwater.reports.records import RunRecords
from flatwater.reports.results import result_table

LIVES = 8
"""Episodes that are drawn."""


def growth_parts(run: RunRecords) -> Mapping[str, Iterator[Html | Chart]]:
    """Title -> blocks."""
    return {"Learning": learning(run), "Growth": growth(run)}


def learning(run: RunRecords) -> Iterator[Html | Chart]:
    """Returns against the baselines, and what the policy does."""
    if not run.metrics.get("round"):
        yield missing("batch", "metrics.jsonl", run, "after each batch")
        return
    yield returns_chart(run.metrics)
    yield operations_chart(run.metrics)


def growth(run: RunRecords) -> Iterator[Html | Chart]:
    """The policy against the baselines, and its episodes slot by slot."""
    if run.result is None:
        yield missing("result", "result.json", run)
        return
    yield result_table(run.recipe, run.result)
    episodes = f"{run.result['episodes']} {run.result['split']} episodes of {run.result['steps']} steps"
    yield paragraph(f"{episodes}; seeds per episode. Note: {run.result['note']}.", class_="reading")
    if run.lives is not None and len(run.lives):
        yield from lives(run.lives)


def lives(table: pl.DataFrame) -> Iterator[Html]:
    """Each slot's life in the policy's first episodes."""
    played, kinds = table.filter(pl.col("player") == "policy"), bool(table["impaired"].any())
    seeds = played["env_seed"].unique(maintain_order=True).to_list()[:LIVES]
    yield tag("h3", "What the policy grows")
    yield stages_legend()
    yield tag("div", [life(played.filter(pl.col("env_seed") == seed), kinds=kinds) for seed in seeds], class_="lives")
    yield paragraph(
        "An episode each: a row is a slot of the host, from its first step to its last; the line is the host's "
        "accuracy, 0 to 100 %." + " Capable hosts see 3 x 3 pixels, impaired ones single pixels." * kinds,
        class_="reading",
    )
