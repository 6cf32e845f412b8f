"""What `flatwater watch` found in somebody's program, as one page of the same kind as a run's."""

import signal
from collections.abc import Iterator
from datetime import datetime

from flatwater.memory.watch.runner import KILLED
from flatwater.reports.document import Tile, document, header
from flatwater.reports.finding_cards import finding_cards
from flatwater.reports.markup import Chart, Html, Section, paragraph, tag
from flatwater.reports.watch_charts import kinds_chart, resident_chart
from flatwater.reports.watch_records import WatchRecords
from flatwater.rundir.findings import GRAVE
from flatwater.units import format_duration, short_bytes

MOST_LETTERS = 60
"""Of a command line in the heading; a longer one stands below it whole."""
WELL_EXPLAINED = 0.9


def watch_page(watch: WatchRecords, written: datetime) -> str:
    """The whole page."""
    sections = [
        Section(title="Findings", blocks=list(_findings(watch))),
        Section(title="Memory", blocks=list(_memory(watch))),
        Section(title="Not seen", blocks=list(_unseen(watch))),
    ]
    name = watch.program if len(watch.program) <= MOST_LETTERS else f"{watch.program[:MOST_LETTERS]}…"
    top = header([name, *_state(watch.exit_code)], list(_subtitle(watch, name)), _tiles(watch), sections)
    return document(name, top, sections, f"Written by flatwater watch, {written:%Y-%m-%d %H:%M %Z}.")


def _state(code: int | None) -> list[str | Html]:
    """How the program ended, as a word on a coloured ground."""
    if code is None:
        return []
    if code == 0:
        kind, word = "finished", "ended"
    elif code == KILLED + signal.SIGINT:
        kind, word = "stopped", "stopped by Ctrl-C"
    else:
        names = {KILLED + number: f"killed by {number.name}" for number in signal.Signals}
        kind, word = "failed", names.get(code, f"exit code {code}")
    return [" ", tag("span", word, class_=f"state {kind}")]


def _subtitle(watch: WatchRecords, name: str) -> Iterator[str | Html]:
    if name != watch.program:
        yield tag("code", watch.program)
        yield " · "
    if watch.exit_code is None:
        yield "looked at from outside · "
    elif watch.exit_code == KILLED + signal.SIGKILL:
        yield "SIGKILL is what the system sends where memory has run out · "
    readings = "1 reading" if watch.readings == 1 else f"{watch.readings} readings"
    below = watch.processes - 1
    workers = "" if below < 1 else f" · {below} worker process{'' if below == 1 else 'es'} below it"
    yield f"{readings} of memory{workers}"


def _tiles(watch: WatchRecords) -> Iterator[Tile]:
    yield _units(watch.unit), f"{watch.steps:,}", f"in {format_duration(watch.seconds)}{_pace(watch)}", ""
    if not watch.readings:
        return
    # At the very end a program has often let go of everything already.
    highest = max(watch.series.resident, default=watch.resident)
    yield "resident", short_bytes(highest), "at its highest", ""
    yield "grown", short_bytes(watch.grown), "since warm-up", ""
    kind = "good" if watch.explained >= WELL_EXPLAINED else ""
    yield "explained", f"{watch.explained:.0%}", "of the growth has a cause", kind
    grave = sum(found.verdict in GRAVE for found in watch.findings)
    said = f"{grave} to act on" if watch.findings else watch.outcome.head(0)
    bad = grave or watch.outcome.state == "unexplained"
    yield "findings", str(len(watch.findings)), said, "bad" if bad else "good"
    yield "the watch took", f"{watch.cost_share:.1%}", f"of the CPU, and {short_bytes(watch.cost_bytes)}", ""


def _pace(watch: WatchRecords) -> str:
    if watch.unit == "second" or not watch.steps or not watch.seconds:
        return ""
    each = watch.seconds / watch.steps
    return f", {format_duration(each)} each" if each >= 1 else f", {1 / each:.3g} a second"


def _units(unit: str) -> str:
    return {"batch": "batches"}.get(unit, f"{unit}s")


def _findings(watch: WatchRecords) -> Iterator[Html]:
    if watch.findings:
        yield finding_cards([(found, "") for found in watch.findings])
    elif watch.readings:
        steps = f"1 {watch.unit}" if watch.steps == 1 else f"{watch.steps:,} {_units(watch.unit)}"
        head = watch.outcome.head(0).capitalize()
        kind = "missing" if watch.outcome.state == "unexplained" else "calm"
        yield paragraph(f"{head}: no finding in {steps}.", class_=kind)
    else:
        yield paragraph("Nothing was read, so nothing is known. See below for why.", class_="missing")
    if watch.outcome.sentence():
        yield paragraph(watch.outcome.sentence())
    for label, sentences in (("What is known", watch.outcome.known), ("What to try", watch.outcome.next)):
        if sentences:
            yield paragraph(f"{label}:")
            yield tag("ul", [tag("li", sentence) for sentence in sentences])


def _memory(watch: WatchRecords) -> Iterator[Html | Chart]:
    if watch.series.seconds:
        yield resident_chart(watch)
        yield kinds_chart(watch.series)
        return
    yield paragraph("There is nothing to draw: this result has no series of readings.", class_="missing")


def _unseen(watch: WatchRecords) -> Iterator[Html]:
    if watch.unseen:
        yield tag("ul", [tag("li", sentence) for sentence in watch.unseen], class_="reading")
    else:
        yield paragraph("Nothing is known to have been out of sight.", class_="reading")
