"""The parts of a run's page, in the order in which a person asks: what was learned, what is wrong, where memory is."""

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from flatwater.reports.finding_cards import finding_cards
from flatwater.reports.markup import Chart, Html, Section, folded, paragraph, table, tag, text
from flatwater.reports.memory_charts import (
    memory_chart,
    owned_chart,
    pace_chart,
    resident_chart,
    seconds_by_phase,
    time_chart,
    transients_chart,
    unaccounted_chart,
)
from flatwater.reports.missing import missing
from flatwater.reports.records import RunRecords
from flatwater.rundir.statements import DEPTH, held_against
from flatwater.units import format_bytes

MOST_COLUMNS_OF_TIME = 120
"""Columns of the chart of times: more would be narrower than a few pixels."""
MOST_GROUPS = 12
"""Owners in the short table; the others are one line there, and have their own in the long one."""
THIN = 0.15
"""Owners that have less of the resident memory than that together are too thin to see beside the libraries."""


def sections(run: RunRecords) -> list[Section]:
    """All parts of the page. One that has nothing to show says why."""
    trained = run.recipe.sections(run)
    return [
        *(Section(title=title, blocks=list(blocks)) for title, blocks in trained.items()),
        Section(title="Findings", blocks=list(findings(run))),
        Section(title="Memory", blocks=list(memory(run))),
        Section(title="Speed", blocks=list(speed(run))),
        Section(title="Alarms", blocks=list(alarms(run))),
        Section(title="Checkpoints", blocks=list(checkpoints(run))),
        Section(title="Configuration", blocks=[configuration(run)]),
    ]


def findings(run: RunRecords) -> Iterator[Html]:
    """What grows, who holds it, where it was made, when memory ends, and what to do."""
    if run.findings:
        yield finding_cards([(finding, f"found in round {round_}") for round_, finding in run.findings])
    elif run.ledger:
        layout = run.recipe.layout
        rounds = f"1 {layout.round}" if run.done == 1 else f"{run.done} {layout.rounds}"
        yield paragraph(f"Nothing grows: no finding in {rounds}.", class_="calm")
    else:
        yield missing("watch on memory", "ledger.jsonl", run, "after each round")


def memory(run: RunRecords) -> Iterator[Html | Chart]:
    """The ledger against the plan."""
    if run.ledger:
        yield memory_chart(run.ledger, run.plan)
        if max(line.owned_bytes / line.resident for line in run.ledger if line.resident) < THIN:
            yield owned_chart(run.ledger)
        yield unaccounted_chart(run.ledger)
    elif run.metrics.get("memory/resident"):
        yield resident_chart(run.metrics["round"], run.metrics["memory/resident"])
    else:
        yield missing("ledger", "ledger.jsonl", run, "after each round")
    yield from planned_and_held(run)
    if run.plan is not None:
        yield transients_chart(run.plan, run.ledger)


def planned_and_held(run: RunRecords) -> Iterator[Html]:
    """Bytes planned and held by owner: the difference must be 0."""
    yield tag("h3", "Planned and held")
    if run.plan is None or not run.ledger:
        yield missing("plan" if run.plan is None else "ledger", "plan.json and ledger.jsonl", run, "by each run")
        return
    line = run.ledger[-1]
    rows = held_against(run.plan, line)
    groups: dict[str, tuple[int, int]] = {}
    for path, planned, held in rows:
        name = ".".join(path.split(".")[:DEPTH])
        before = groups.get(name, (0, 0))
        groups[name] = (before[0] + planned, before[1] + held)
    total = sum(row[1] for row in rows), sum(row[2] for row in rows)
    off = sum(planned != held for _, planned, held in rows)
    verdict = (
        f"Each of the {len(rows)} owners holds what was planned, to the byte."
        if not off
        else f"{off} of {len(rows)} owners differ from the plan. Less than planned: pages that nothing has touched yet"
        + (", or state that lies on the GPU." if line.cuda_allocated is not None else ".")
    )
    yield paragraph(f"{verdict} Round {line.round}.", class_="calm" if not off else "missing")
    sizes = sorted(((name, *sums) for name, sums in groups.items()), key=lambda row: -row[1])
    small = sizes[MOST_GROUPS:]
    if small:
        sizes[MOST_GROUPS:] = [(f"{len(small)} smaller", sum(row[1] for row in small), sum(row[2] for row in small))]
    yield _against([*sizes, ("all owners", *total)], exact=False)
    if len(rows) > len(groups):
        yield folded(f"All {len(rows)} owners, in bytes", _against(rows, exact=True))


def _against(rows: Sequence[tuple[str, int, int]], *, exact: bool) -> Html:
    def cells() -> Iterator[Sequence[str | Html]]:
        for name, planned, held in rows:
            shown = [f"{size:,}" if exact else format_bytes(size) for size in (planned, held)]
            off = held - planned
            yield name, *shown, tag("span", f"{off:+,}" if off else "0", class_="off" if off else "same")

    return table(("owner", "planned", "held", "difference, bytes"), cells())


def speed(run: RunRecords) -> Iterator[Html | Chart]:
    """Steps per second, and where the time goes."""
    if run.ledger and any(line.phases for line in run.ledger):
        yield pace_chart(run.ledger)
        yield time_chart(*seconds_by_phase(run.ledger, MOST_COLUMNS_OF_TIME))
        return
    times = {name.removeprefix("time/"): run.metrics[name] for name in run.metrics if name.startswith("time/")}
    if times:
        yield time_chart(run.metrics["round"], times)
    else:
        yield missing("pace", "ledger.jsonl", run, "after each round")


def alarms(run: RunRecords) -> Iterator[Html]:
    """What the run warned of, once for each kind."""
    told = run.alarms
    if not told:
        yield paragraph("The run warned of nothing.", class_="calm")
        return
    kinds: dict[str, list[tuple[int, str]]] = {}
    for round_, alarm in told:
        kind, _, message = alarm.partition(": ")
        kinds.setdefault(kind, []).append((round_, message))
    rows = [
        (kind, found[-1][1], str(len(found)), str(found[0][0]), str(found[-1][0]))
        for kind, found in sorted(kinds.items(), key=lambda item: -len(item[1]))
    ]
    yield table(("alarm", "said last", "times", "first", "last"), rows, words=2)


def checkpoints(run: RunRecords) -> Iterator[Html]:
    """What the run can be resumed from."""
    if not run.checkpoints:
        yield missing("checkpoint", "checkpoints/", run, "after each round")
        return
    damaged = any(saved.damage for saved in run.checkpoints)
    rows = [
        (
            saved.file.name,
            saved.saved.replace("T", " ").replace("+00:00", " UTC"),
            str(saved.round),
            str(saved.step),
            format_bytes(saved.bytes),
            *([saved.damage] if damaged else []),
        )
        for saved in reversed(run.checkpoints)
    ]
    titles = ("file", "saved", "round", "step of the next", "size", *(["damage"] if damaged else []))
    yield table(titles, rows, words=2)
    said = ["Go on with ", tag("code", f"flatwater resume {PurePath(run.path)}"), ": bit for bit from the newest."]
    yield paragraph(said, class_="reading")


def configuration(run: RunRecords) -> Html:
    """The file that repeats the run."""
    lines = [
        tag("span", line, class_="comment") if line.startswith("#") else text(line)
        for line in run.config_text.splitlines(keepends=True)
    ]
    said = [tag("code", "config.toml"), ": every setting, under what it means"]
    return folded(said, tag("pre", lines))
