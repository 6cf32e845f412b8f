"""The parts of a page that only teaching has: what the student learned, and where the time of a step goes."""

from collections.abc import Iterator, Mapping

from flatwater.recipes.teach.charts import handover_chart, learned_chart, profile_chart, profile_rows
from flatwater.reports.markup import Chart, Html, paragraph, table, tag
from flatwater.reports.missing import missing
from flatwater.reports.records import RunRecords
from flatwater.reports.results import result_table


def teaching_parts(run: RunRecords) -> Mapping[str, Iterator[Html | Chart]]:
    """Title -> blocks."""
    return {"Learning": learning(run), "Profile": profile(run)}


def learning(run: RunRecords) -> Iterator[Html | Chart]:
    """Returns against teacher and random actions, and the hand-over."""
    if not run.metrics.get("round"):
        yield missing("block", "metrics.jsonl", run, "after each block")
        return
    yield learned_chart(run.metrics)
    yield handover_chart(run.metrics)
    if run.result is None:
        yield missing("result", "result.json", run)
        return
    yield tag("h3", "Against the teacher")
    yield result_table(run.recipe, run.result)
    episodes = "{episodes} {split} episodes of {agents} agents and {steps} steps".format(**run.result)
    yield paragraph(f"{episodes}; one number for each agent. Note: {run.result['note']}.", class_="reading")


def profile(run: RunRecords) -> Iterator[Html | Chart]:
    """The parts of a step: medians over the run, and their course."""
    rows = profile_rows(run.metrics)
    if not rows:
        yield missing("profile", "metrics.jsonl", run, "after each block")
        return
    yield table(("part of a step", "µs an agent step", "share"), rows)
    yield profile_chart(run.metrics)
