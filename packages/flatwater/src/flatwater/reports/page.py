"""`report.html`: a run as one page, with the result first, then findings, memory, speed and settings."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite, isnan
from pathlib import PurePath
from statistics import fmean, median
from typing import Any

from flatwater.metrics.jsonl_lines import spread_indexes
from flatwater.reports.learning_charts import own_number_charts
from flatwater.reports.memory_charts import (
    memory_chart,
    owned_chart,
    pace_chart,
    resident_chart,
    time_chart,
    transients_chart,
    unaccounted_chart,
)
from flatwater.reports.recipe_parts import installed_parts, own_parts
from flatwater.reports.records import RunRecords
from flatwater.reports.result_blocks import age_blocks, missing_paragraph
from flatwater.rundir.records import OWNER_DEPTH, LedgerLine, WorkerLine, planned_and_held_rows
from flatwater_watch.diagnose.verdicts import VERDICTS
from flatwater_watch.format_strings import fill_format, write_value
from flatwater_watch.pages.blocks import Block, FoldedBlock, Heading, Lines, Paragraph, Piece, Section, Table, Tile
from flatwater_watch.pages.document import document
from flatwater_watch.pages.finding_cards import finding_cards
from flatwater_watch.units import format_bytes, format_duration, short_bytes

PACE_ROUNDS = 8
"""Number of last rounds whose median duration gives the time left."""
MAXIMUM_COLUMNS_OF_TIME = 120
"""Most columns of the chart of times: more would be narrower than a few pixels."""
MAXIMUM_GROUPS = 12
"""Most owners in the short table; the others share a line there, and have lines of their own in the long table."""
THIN_SHARE = 0.15
"""Share of resident memory below which all owners together are too thin to see next to the libraries."""


OwnerSizes = tuple[str, int, int]
"""Path of an owner, the bytes that were planned for it, and the bytes that it holds."""


def run_page(run: RunRecords) -> str:
    """Return the whole page as HTML."""
    name = run.path.resolve().name
    return document(
        name,
        heading=[name, " ", Piece(run.state, kind=f"state {run.state}")],
        subtitle=_page_subtitle(run),
        tiles=_head_tiles(run),
        sections=page_sections(run),
        footer=f"Written by Flatwater from the run's folder alone, {run.read_at:%Y-%m-%d %H:%M %Z}.",
    )


def page_sections(run: RunRecords) -> list[Section]:
    """Return the page's sections: of the recipe, of installed packages, of the user's numbers, then of every run."""
    parts = own_parts(run) | installed_parts(run)
    # Left out without numbers: they are optional, while other empty parts say why.
    if numbers := list(own_number_charts(run)):
        parts["Your numbers"] = numbers
    sections = [Section(title=title, blocks=list(blocks)) for title, blocks in parts.items()]
    sections += [Section(title=title, blocks=list(make_blocks(run))) for title, make_blocks in SECTION_MAKERS.items()]
    # Before all that is shown of the result, whichever recipe shows it.
    sections[0] = replace(sections[0], blocks=[*age_blocks(run, run.result), *sections[0].blocks])
    return sections


def _page_subtitle(run: RunRecords) -> str:
    """Return a line with data, device, seed, versions and the parent of a fork, as far as the folder has them."""
    facts = run.checkpoints[-1].facts if run.checkpoints else {}
    data, versions = facts.get("data"), facts.get("versions")
    phrases = [run.recipe.trained_on]
    if isinstance(data, dict) and "days" in data:
        phrases.append(fill_format("{instruments} {instruments:column} of prices, {days} {days:row}", data))
        phrases.append(f"{data.get('first_day')} to {data.get('last_day')}")
    phrases.append(f"on {run.config.get('device', 'an unknown device')}")
    if run.config.get("threads"):
        phrases.append(fill_format("{threads} {threads:thread}", run.config))
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
    """Return the tiles at the head of the page: result, curve, rounds, memory and findings, up to six."""
    tiles: list[Tile] = [] if run.result is None else [_headline_tile(run, run.result)]
    title, metric = run.recipe.judged_curve
    finite = [value for value in run.metrics.get(metric, []) if isfinite(value)]
    if finite:
        tiles.append(Tile(title, f"{finite[-1]:.4g}", below=f"{finite[0]:.4g} at first"))
    tiles.append(Tile("rounds", f"{run.done} of {run.rounds}", below=_pace_text(run)))
    if run.ledger:
        line = run.ledger[-1]
        budget = (
            f"{line.resident / line.budget:.0%} of the budget of {format_bytes(line.budget)}" if line.budget else ""
        )
        tiles.append(Tile("resident", short_bytes(line.resident), below=budget))
        owned_share = 1 - abs(line.unaccounted) / line.resident if line.resident else 1.0
        tiles.append(Tile("unaccounted", short_bytes(line.unaccounted), below=f"{owned_share:.1%} have an owner"))
    grave_count = sum(VERDICTS[finding.verdict].is_grave for _, finding in run.findings)
    if run.findings or run.ledger:  # else memory was not watched
        judgement = "memory is flat" if not run.findings else f"{grave_count} to act on"
        kind = "bad" if grave_count else "good"
        tiles.append(Tile("findings", str(len(run.findings)), below=judgement, kind=kind))
    return tiles


def _headline_tile(run: RunRecords, result: Mapping[str, Any]) -> Tile:
    """Return a tile with the most important number of the trained policy, and that of the baseline below."""
    recipe, round_ = run.recipe, run.round_if_earlier(result)
    headline, rows = recipe.headline, result[recipe.players]
    numbers = {name: row.get(headline.key) for name, row in rows.items()}
    texts = {name: "-" if number is None else headline.write(number) for name, number in numbers.items()}
    own_text, baseline_text = texts.get(recipe.trained, "-"), texts.get(headline.against, "-")
    comparison = write_value(headline.comparison_form, baseline_text)  # such as `21.40 by chance`
    title = headline.title if round_ is None else f"{headline.title}, {recipe.layout.round} {round_}"
    return Tile(title, own_text, below=comparison)


def _pace_text(run: RunRecords) -> str:
    """Return the time of a round and of all rounds and, in training, the time left; or that no round has ended."""
    times = [run.metrics[name] for name in run.metrics if name.startswith("time/")]  # of each phase, by round
    round_seconds = [sum(value for value in row if isfinite(value)) for row in zip(*times, strict=True)]
    if not round_seconds:
        return "none has ended"
    typical_seconds = median(round_seconds[-PACE_ROUNDS:])
    total_seconds = fmean(round_seconds) * run.done  # by the mean, as not every round of a long run is read
    remaining = (
        f", {format_duration(typical_seconds * (run.rounds - run.done))} left" if run.state == "training" else ""
    )
    return f"{format_duration(typical_seconds)} each, {format_duration(total_seconds)} in all{remaining}"


def findings_section(run: RunRecords) -> Iterator[Block]:
    """Yield a card for each finding, or a paragraph that nothing grows, or that memory was not watched."""
    if run.findings:
        yield finding_cards([(finding, f"found in round {round_}") for round_, finding in run.findings])
    elif run.ledger:
        layout = run.recipe.layout
        rounds = f"1 {layout.round}" if run.done == 1 else f"{run.done} {layout.rounds}"
        yield Paragraph(f"Nothing grows: no finding in {rounds}.", "calm")
    else:
        yield missing_paragraph("watch on memory", "ledger.jsonl", run.state, "after each round")


def memory_section(run: RunRecords) -> Iterator[Block]:
    """Yield charts of memory over the rounds, then bytes planned and held, workers, and the phases' temporary bytes."""
    if run.ledger:
        yield memory_chart(run.ledger, run.plan, run.recipe.layout.round)
        if max(line.owned_bytes / line.resident for line in run.ledger if line.resident) < THIN_SHARE:
            # The owners once more, without the libraries, next to which they cannot be seen.
            yield owned_chart(run.ledger, run.recipe.layout.round)
        yield unaccounted_chart(run.ledger, run.recipe.layout.round)
    elif run.metrics.get("memory/resident"):
        yield resident_chart(run.metrics["round"], run.metrics["memory/resident"], run.recipe.layout.round)
    else:
        yield missing_paragraph("ledger", "ledger.jsonl", run.state, "after each round")
    yield from planned_and_held_section(run)
    if run.ledger and run.ledger[-1].workers:
        yield from workers_section(run.ledger[-1])
    if run.plan is not None:
        yield transients_chart(run.plan, run.ledger)


def planned_and_held_section(run: RunRecords) -> Iterator[Block]:
    """Yield a table of the bytes planned and held by each owner, and whether they are equal; or what is missing."""
    yield Heading("Planned and held")
    if run.plan is None or not run.ledger:
        yield missing_paragraph(
            "plan" if run.plan is None else "ledger", "plan.json and ledger.jsonl", run.state, "by each run"
        )
        return
    line = run.ledger[-1]
    rows = planned_and_held_rows(run.plan, line)
    # Compared by owner, as the sums of a group may hide two owners that differ.
    difference_count = sum(planned_bytes != held_bytes for _, planned_bytes, held_bytes in rows)
    if difference_count:
        gpu_text = ", or state that lies on the GPU" if line.cuda_allocated is not None else ""
        verdict = (
            f"{difference_count} of {len(rows)} owners differ from the plan. Less than planned: pages that are not "
            f"used yet{gpu_text}."
        )
    else:
        verdict = f"Each of the {len(rows)} owners holds what was planned, to the byte."
    yield Paragraph(f"{verdict} Round {line.round}.", "missing" if difference_count else "calm")
    groups = _group_sizes(rows)
    shown_groups, small_groups = groups[:MAXIMUM_GROUPS], groups[MAXIMUM_GROUPS:]
    if small_groups:
        shown_groups.append(_sum_sizes(f"{len(small_groups)} smaller", small_groups))
    yield _planned_table([*shown_groups, _sum_sizes("all owners", rows)], exact=False)
    if len(rows) > len(groups):  # a group has several owners
        yield FoldedBlock(f"All {len(rows)} owners, in bytes", _planned_table(rows, exact=True))


def _group_sizes(rows: Sequence[OwnerSizes]) -> list[OwnerSizes]:
    """Return planned and held bytes by group of owners, the largest plan first.

    Owners whose paths have the same first `OWNER_DEPTH` names are one group.
    """
    groups: dict[str, list[OwnerSizes]] = {}
    for path, planned_bytes, held_bytes in rows:
        name = ".".join(path.split(".")[:OWNER_DEPTH])
        groups.setdefault(name, []).append((path, planned_bytes, held_bytes))
    sizes = [_sum_sizes(name, members) for name, members in groups.items()]
    return sorted(sizes, key=lambda row: row[1], reverse=True)  # by the planned bytes


def _sum_sizes(name: str, rows: Sequence[OwnerSizes]) -> OwnerSizes:
    """Return the sums of planned and of held bytes over the rows, under a name."""
    return name, sum(planned_bytes for _, planned_bytes, _ in rows), sum(held_bytes for _, _, held_bytes in rows)


def workers_section(line: LedgerLine) -> Iterator[Block]:
    """Yield a table of each worker's bytes against the plan, and whether its state is as planned."""
    yield Heading("Workers")
    difference_count = sum(bool(worker.unplanned) for worker in line.workers)
    verdict = (
        f"but {difference_count} holds what was planned" if difference_count else "holds what was planned, to the byte"
    )
    yield Paragraph(
        f"The state of each of {len(line.workers)} workers {verdict}. Private bytes are planned as libraries and "
        f"state, between two steps. Round {line.round}.",
        "missing" if difference_count else "calm",
    )
    rows = [
        (
            f"{number} on {worker.machine}",
            *map(format_bytes, (worker.owned_bytes, worker.planned, worker.private, worker.proportional)),
            # `unplanned` has planned minus held bytes; here a worker that holds too much has a plus.
            ", ".join(f"{path} {-size:+,}" for path, size in worker.unplanned.items()) or "0",
        )
        for number, worker in enumerate(line.workers)
    ]
    titles = ("worker", "state", "private, planned", "private", "with shared pages in parts", "state not as planned")
    yield Table(titles, rows)
    yield from machines_section(line)


def machines_section(line: LedgerLine) -> Iterator[Block]:
    """Yield a table of the workers' bytes by machine of a cluster; nothing if all are on this machine."""
    machines: dict[str, list[WorkerLine]] = {}
    for worker in line.workers:
        machines.setdefault(worker.machine, []).append(worker)
    if line.stores is None and len(machines) == 1:  # no cluster, which has object stores
        return
    rows = [
        (
            name,
            str(len(workers)),
            format_bytes(sum(worker.planned for worker in workers)),
            format_bytes(sum(worker.private for worker in workers)),
            format_bytes(sum(worker.proportional for worker in workers)),
        )
        for name, workers in machines.items()
    ]
    yield Table(("machine", "workers", "private, planned", "private", "with shared pages once"), rows)
    if line.stores is not None:
        store_bytes = format_bytes(line.stores)
        yield Paragraph(f"The object stores of all machines hold {store_bytes} between two rounds.", "calm")


def _planned_table(rows: Sequence[OwnerSizes], *, exact: bool) -> Table:
    """Return a table of planned and held bytes; `exact` writes every byte, else sizes are rounded."""
    cells = list[Sequence[str | Piece]]()
    for name, planned_bytes, held_bytes in rows:
        sizes = [f"{size:,}" if exact else format_bytes(size) for size in (planned_bytes, held_bytes)]
        difference = held_bytes - planned_bytes
        difference_text = f"{difference:+,}" if difference else "0"  # `+0` would look like a difference
        cells.append((name, *sizes, Piece(difference_text, kind="off" if difference else "same")))
    return Table(("owner", "planned", "held", "difference, bytes"), cells)


def speed_section(run: RunRecords) -> Iterator[Block]:
    """Yield charts of steps per second and of the phases' seconds."""
    round_name = run.recipe.layout.round
    if run.ledger and any(line.phases for line in run.ledger):
        yield pace_chart(run.ledger, round_name)
    # From the metrics, which have each round: a line of the ledger sums up all rounds since the line before.
    rounds = run.metrics.get("round", [])
    indexes = spread_indexes(len(rounds), MAXIMUM_COLUMNS_OF_TIME)
    times = {
        # A phase may be left out of a round, such as an evaluation.
        name.removeprefix("time/"): [0.0 if isnan(values[index]) else values[index] for index in indexes]
        for name, values in run.metrics.items()
        if name.startswith("time/")
    }
    if times:
        yield time_chart([rounds[index] for index in indexes], times, round_name)
    else:
        yield missing_paragraph("pace", "ledger.jsonl", run.state, "after each round")


def alarms_section(run: RunRecords) -> Iterator[Block]:
    """Yield a table with a row for each kind of alarm that the run raised; or that it raised none."""
    if not run.alarms:
        yield Paragraph("The run raised no alarms.", "calm")
        return
    rows = [
        (alarm.kind, alarm.last_message, *map(str, (alarm.count, alarm.first_round, alarm.last_round)))
        for alarm in run.alarms
    ]
    # The first two columns are text, the others numbers.
    yield Table(("alarm", "last message", "times", "first", "last"), rows, text_columns=2)


def checkpoints_section(run: RunRecords) -> Iterator[Block]:
    """Yield a table of the checkpoints, newest first, and the command that resumes the run; or that there are none."""
    if not run.checkpoints:
        yield missing_paragraph("checkpoint", "checkpoints/", run.state, "after each round")
        return
    has_damage = any(manifest.damage for manifest in run.checkpoints)  # then the table has a column for it
    rows = [
        (
            manifest.file.name,
            manifest.saved.replace("T", " ").replace("+00:00", " UTC"),
            str(manifest.round),
            str(manifest.step),
            format_bytes(manifest.bytes),
            *([manifest.damage] if has_damage else []),
        )
        for manifest in reversed(run.checkpoints)
    ]
    titles = ("file", "saved", "round", "step of the next", "size", *(["damage"] if has_damage else []))
    yield Table(titles, rows)
    exactness = ": with new episodes, as it is not exact." if run.doubts else ": bit for bit from the newest."
    yield Paragraph(("Go on with ", Piece(f"flatwater resume {PurePath(run.path)}"), exactness), "reading")
    for doubt in run.doubts:
        yield Paragraph(f"Not exact: {doubt}.", "missing")


def configuration_section(run: RunRecords) -> Iterator[Block]:
    """Yield the text of config.toml, folded: with this file a run is repeated."""
    lines = run.config_text.splitlines(keepends=True)
    title = (Piece("config.toml"), ": every setting with its description")
    yield FoldedBlock(title, Lines([Piece(line, "comment") if line.startswith("#") else line for line in lines]))


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
