"""`report.html`: a run as one page, in the order of a reader's questions: first the result, then the faults."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from pathlib import PurePath
from statistics import fmean, median
from typing import Any

from flatwater.description import Description
from flatwater.reports.course import own_numbers
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
from flatwater.reports.recipe_parts import installed_parts, own_parts
from flatwater.reports.records import RunRecords
from flatwater.reports.result_blocks import missing_paragraph
from flatwater.rundir.statements import OWNER_DEPTH, LedgerLine, WorkerLine, planned_and_held_rows
from flatwater_watch.diagnose.verdicts import VERDICTS
from flatwater_watch.forms import fill_form, write_value
from flatwater_watch.pages.blocks import (
    Block,
    Folded,
    Heading,
    Lines,
    Paragraph,
    Piece,
    Section,
    Table,
    Tile,
    finding_cards,
)
from flatwater_watch.pages.document import document
from flatwater_watch.units import format_bytes, format_duration, short_bytes

PACE_ROUNDS = 8
"""Number of rounds whose median duration tells how long the rest will take."""
MAXIMUM_COLUMNS_OF_TIME = 120
"""Most columns of the chart of times: more would be narrower than a few pixels."""
MAXIMUM_GROUPS = 12
"""Most owners in the short table; the others share a line there, and have lines of their own in the long table."""
THIN_SHARE = 0.15
"""Share of resident memory below which all owners together are too thin to see next to the libraries."""


def run_page(run: RunRecords) -> str:
    """Return the whole page."""
    name = run.path.resolve().name
    return document(
        name,
        heading=[name, " ", Piece(run.state, f"state {run.state}")],
        subtitle=_page_subtitle(run),
        tiles=_head_tiles(run),
        sections=page_sections(run),
        footer=f"Written by Flatwater from the run's folder alone, {run.read_at:%Y-%m-%d %H:%M %Z}.",
    )


def page_sections(run: RunRecords) -> list[Section]:
    """Return all parts of the page, of the recipe and of installed packages first; an empty part says why."""
    parts = own_parts(run) | installed_parts(run) | {"Your numbers": own_numbers(run)}
    sections = {title: shown for title, blocks in parts.items() if (shown := list(blocks)) or title != "Your numbers"}
    return [Section(title=title, blocks=blocks) for title, blocks in sections.items()] + [
        Section(title=title, blocks=list(part(run))) for title, part in SECTION_MAKERS.items()
    ]


def _page_subtitle(run: RunRecords) -> str:
    """Return data, device, seed and versions, as far as the folder says."""
    facts = run.checkpoints[-1].facts if run.checkpoints else {}
    data, versions = facts.get("data"), facts.get("versions")
    phrases = [run.recipe.trained_on]
    if isinstance(data, dict) and "days" in data:
        phrases.append(fill_form("{instruments} {instruments:instrument}, {days} {days:row} of prices", data))
        phrases.append(f"{data.get('first_day')} to {data.get('last_day')}")
    phrases.append(f"on {run.config.get('device', 'an unknown device')}")
    if run.config.get("threads"):
        phrases.append(fill_form("{threads} {threads:thread}", run.config))
    phrases.append(f"seed {run.config.get('seed', '?')}")
    if isinstance(versions, dict):
        phrases.append(", ".join(f"{name} {version}" for name, version in versions.items()))
    if isinstance(machines := facts.get("machines"), list):
        phrases.append(
            f"computed with several arithmetics ({', '.join(map(str, machines))}): not bit-equal to one machine"
        )
    if run.origin:
        phrases.append(run.origin)
    return " · ".join(phrases)


def _head_tiles(run: RunRecords) -> list[Tile]:
    """Return at most six numbers for the head of the page: result, curve, rounds, memory and findings."""
    tiles: list[Tile] = [] if run.result is None else [_headline(run.recipe, run.result)]
    title, metric = run.recipe.judged_curve
    finite = [value for value in run.metrics.get(metric, []) if isfinite(value)]
    if finite:
        tiles.append(Tile(title, f"{finite[-1]:.4g}", f"{finite[0]:.4g} at first", ""))
    tiles.append(Tile("rounds", f"{run.done} of {run.rounds}", _pace_text(run), ""))
    if run.ledger:
        line = run.ledger[-1]
        budget = (
            f"{line.resident / line.budget:.0%} of the budget of {format_bytes(line.budget)}" if line.budget else ""
        )
        tiles.append(Tile("resident", short_bytes(line.resident), budget, ""))
        share = 1 - abs(line.unaccounted) / line.resident if line.resident else 1.0
        tiles.append(Tile("unaccounted", short_bytes(line.unaccounted), f"{share:.1%} have an owner", ""))
    grave_count = sum(VERDICTS[finding.verdict].is_grave for _, finding in run.findings)
    if run.findings or run.ledger:
        judgement = "memory is flat" if not run.findings else f"{grave_count} to act on"
        tiles.append(Tile("findings", str(len(run.findings)), judgement, "bad" if grave_count else "good"))
    return tiles


def _headline(recipe: Description, result: Mapping[str, Any]) -> Tile:
    """Return the most important number of the trained policy, and the baseline that it is compared with."""
    headline, rows = recipe.headline, result[recipe.players]
    numbers = {name: row.get(headline.key) for name, row in rows.items()}
    own_text, baseline_text = (
        "-" if (number := numbers.get(name)) is None else headline.write(number)
        for name in (recipe.trained, headline.against)
    )
    return Tile(headline.title, own_text, write_value(headline.said, baseline_text))


def _pace_text(run: RunRecords) -> str:
    """Return the time of a round, of all rounds, and in training the time left; `none has ended` before the first."""
    times = [run.metrics[name] for name in run.metrics if name.startswith("time/")]
    sums = [sum(value for value in row if isfinite(value)) for row in zip(*times, strict=True)]
    if not sums:
        return "none has ended"
    pace, total_seconds = median(sums[-PACE_ROUNDS:]), fmean(sums) * run.done  # of thinned rounds
    remaining = f", {format_duration(pace * (run.rounds - run.done))} left" if run.state == "training" else ""
    return f"{format_duration(pace)} each, {format_duration(total_seconds)} in all{remaining}"


def findings_section(run: RunRecords) -> Iterator[Block]:
    """Yield the findings: growing objects, owner, line of allocation, time to the limit, and advice."""
    if run.findings:
        yield finding_cards([(finding, f"found in round {round_}") for round_, finding in run.findings])
    elif run.ledger:
        layout = run.recipe.layout
        rounds = f"1 {layout.round}" if run.done == 1 else f"{run.done} {layout.rounds}"
        yield Paragraph(f"Nothing grows: no finding in {rounds}.", "calm")
    else:
        yield missing_paragraph("watch on memory", "ledger.jsonl", run.state, "after each round")


def memory_section(run: RunRecords) -> Iterator[Block]:
    """Yield memory by owner over the rounds, then planned and held, workers and the phases' efforts."""
    if run.ledger:
        yield memory_chart(run.ledger, run.plan, run.recipe.layout.round)
        if max(line.owned_bytes / line.resident for line in run.ledger if line.resident) < THIN_SHARE:
            yield owned_chart(run.ledger, run.recipe.layout.round)
        yield unaccounted_chart(run.ledger, run.recipe.layout.round)
    elif run.metrics.get("memory/resident"):
        yield resident_chart(run.metrics["round"], run.metrics["memory/resident"], run.recipe.layout.round)
    else:
        yield missing_paragraph("ledger", "ledger.jsonl", run.state, "after each round")
    yield from planned_and_held(run)
    if run.ledger and run.ledger[-1].workers:
        yield from workers_section(run.ledger[-1])
    if run.plan is not None:
        yield transients_chart(run.plan, run.ledger)


def planned_and_held(run: RunRecords) -> Iterator[Block]:
    """Yield bytes planned and held by owner: the difference must be 0."""
    yield Heading("Planned and held")
    if run.plan is None or not run.ledger:
        yield missing_paragraph(
            "plan" if run.plan is None else "ledger", "plan.json and ledger.jsonl", run.state, "by each run"
        )
        return
    line = run.ledger[-1]
    rows = planned_and_held_rows(run.plan, line)
    groups: dict[str, tuple[int, int]] = {}
    for path, planned_bytes, held_bytes in rows:
        name = ".".join(path.split(".")[:OWNER_DEPTH])
        sums_before = groups.get(name, (0, 0))
        groups[name] = (sums_before[0] + planned_bytes, sums_before[1] + held_bytes)
    total = sum(row[1] for row in rows), sum(row[2] for row in rows)
    # By owner, as the sums of a group may hide two owners that differ.
    off = sum(planned_bytes != held_bytes for _, planned_bytes, held_bytes in rows)
    verdict = (
        f"Each of the {len(rows)} owners holds what was planned, to the byte."
        if not off
        else f"{off} of {len(rows)} owners differ from the plan. Less than planned: pages that are not used yet"
        + (", or state that lies on the GPU." if line.cuda_allocated is not None else ".")
    )
    yield Paragraph(f"{verdict} Round {line.round}.", "calm" if not off else "missing")
    sizes = sorted(((name, *sums) for name, sums in groups.items()), key=lambda row: -row[1])
    small_groups = sizes[MAXIMUM_GROUPS:]
    if small_groups:
        sizes[MAXIMUM_GROUPS:] = [
            (f"{len(small_groups)} smaller", sum(row[1] for row in small_groups), sum(row[2] for row in small_groups))
        ]
    yield _planned_table([*sizes, ("all owners", *total)], exact=False)
    if len(rows) > len(groups):
        yield Folded(f"All {len(rows)} owners, in bytes", _planned_table(rows, exact=True))


def workers_section(line: LedgerLine) -> Iterator[Block]:
    """Yield the private bytes of each process that computes for the run, against the plan."""
    yield Heading("Workers")
    differing = [worker for worker in line.workers if worker.unplanned]
    verdict = "holds what was planned, to the byte" if not differing else f"but {len(differing)} holds what was planned"
    yield Paragraph(
        f"The state of each of {len(line.workers)} workers {verdict}. Private bytes are planned as libraries and "
        f"state, between two steps. Round {line.round}.",
        "missing" if differing else "calm",
    )
    rows = [
        (
            f"{number} on {worker.machine}",
            *map(format_bytes, (worker.owned_bytes, worker.planned, worker.private, worker.proportional)),
            ", ".join(f"{path} {-size:+,}" for path, size in worker.unplanned.items()) or "0",
        )
        for number, worker in enumerate(line.workers)
    ]
    titles = ("worker", "state", "private, planned", "private", "with shared pages in parts", "state not as planned")
    yield Table(titles, rows)
    yield from machines_section(line)


def machines_section(line: LedgerLine) -> Iterator[Block]:
    """Yield the workers of each machine of a cluster together: a mapped file counts once there, as readers share it."""
    machines: dict[str, list[WorkerLine]] = {}
    for worker in line.workers:
        machines.setdefault(worker.machine, []).append(worker)
    if line.stores is None and len(machines) == 1:
        return
    rows = [
        (
            name,
            str(len(on_machine)),
            format_bytes(sum(worker.planned for worker in on_machine)),
            format_bytes(sum(worker.private for worker in on_machine)),
            format_bytes(sum(worker.proportional for worker in on_machine)),
        )
        for name, on_machine in machines.items()
    ]
    yield Table(("machine", "workers", "private, planned", "private", "with shared pages once"), rows)
    if line.stores is not None:
        store_bytes = format_bytes(line.stores)
        yield Paragraph(f"The object stores of all machines hold {store_bytes} between two rounds.", "calm")


def _planned_table(rows: Sequence[tuple[str, int, int]], *, exact: bool) -> Table:
    """Return planned and held bytes of owners as a table; to the byte where `exact`."""
    cells = list[Sequence[str | Piece]]()
    for name, planned_bytes, held_bytes in rows:
        sizes = [f"{size:,}" if exact else format_bytes(size) for size in (planned_bytes, held_bytes)]
        difference = held_bytes - planned_bytes
        cells.append((name, *sizes, Piece(f"{difference:+,}" if difference else "0", "off" if difference else "same")))
    return Table(("owner", "planned", "held", "difference, bytes"), cells)


def speed_section(run: RunRecords) -> Iterator[Block]:
    """Yield steps per second, and where the time goes."""
    if run.ledger and any(line.phases for line in run.ledger):
        yield pace_chart(run.ledger, run.recipe.layout.round)
        yield time_chart(*seconds_by_phase(run.ledger, MAXIMUM_COLUMNS_OF_TIME), run.recipe.layout.round)
        return
    times = {name.removeprefix("time/"): run.metrics[name] for name in run.metrics if name.startswith("time/")}
    if times:
        yield time_chart(run.metrics["round"], times, run.recipe.layout.round)
    else:
        yield missing_paragraph("pace", "ledger.jsonl", run.state, "after each round")


def alarms_section(run: RunRecords) -> Iterator[Block]:
    """Yield the run's alarms, once for each kind."""
    if not run.alarms:
        yield Paragraph("The run raised no alarms.", "calm")
        return
    rows = [
        (alarm.kind, alarm.last_message, *map(str, (alarm.count, alarm.first_round, alarm.last_round)))
        for alarm in run.alarms
    ]
    yield Table(("alarm", "last message", "times", "first", "last"), rows, words=2)


def checkpoints_section(run: RunRecords) -> Iterator[Block]:
    """Yield the checkpoints from which the run can be resumed."""
    if not run.checkpoints:
        yield missing_paragraph("checkpoint", "checkpoints/", run.state, "after each round")
        return
    damaged = any(manifest.damage for manifest in run.checkpoints)
    rows = [
        (
            manifest.file.name,
            manifest.saved.replace("T", " ").replace("+00:00", " UTC"),
            str(manifest.round),
            str(manifest.step),
            format_bytes(manifest.bytes),
            *([manifest.damage] if damaged else []),
        )
        for manifest in reversed(run.checkpoints)
    ]
    titles = ("file", "saved", "round", "step of the next", "size", *(["damage"] if damaged else []))
    yield Table(titles, rows)
    exactness = ": with new episodes, as it is not exact." if run.doubts else ": bit for bit from the newest."
    yield Paragraph(("Go on with ", Piece(f"flatwater resume {PurePath(run.path)}"), exactness), "reading")
    for doubt in run.doubts:
        yield Paragraph(f"Not exact: {doubt}.", "missing")


def configuration_section(run: RunRecords) -> Iterator[Block]:
    """Yield the file that repeats the run."""
    lines = run.config_text.splitlines(keepends=True)
    title = (Piece("config.toml"), ": every setting with its description")
    yield Folded(title, Lines([Piece(line, "comment") if line.startswith("#") else line for line in lines]))


SECTION_MAKERS: dict[str, Callable[[RunRecords], Iterator[Block]]] = {
    "Findings": findings_section,
    "Memory": memory_section,
    "Speed": speed_section,
    "Alarms": alarms_section,
    "Checkpoints": checkpoints_section,
    "Configuration": configuration_section,
}
"""Parts of every run's page below those of its recipe: title -> function that yields its blocks. A further part of
all pages is a line here."""
