"""The result of `flatwater watch` as one web page, of the same kind as a run's.

Its charts show resident memory with the way to the limit, and growth by kind of memory.
"""

import signal
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from flatwater_watch.agent.outcome import explained_shares
from flatwater_watch.diagnose.finding_text import growth_statement
from flatwater_watch.faces.runner import SIGNAL_EXIT_BASE
from flatwater_watch.faces.summary_lines import MINIMUM_KEPT_SHARE
from flatwater_watch.faces.watch_result import ReadingColumns, WatchResult
from flatwater_watch.pages.blocks import Block, Listing, Paragraph, Piece, Section, Tile
from flatwater_watch.pages.chart import Axis, Chart, Line
from flatwater_watch.pages.chart_values import byte_unit
from flatwater_watch.pages.document import document
from flatwater_watch.pages.finding_cards import finding_cards, is_grave
from flatwater_watch.phrases import unit_plural
from flatwater_watch.thresholds import ENDING
from flatwater_watch.units import format_bytes, format_duration, short_bytes

MAXIMUM_NAME_LETTERS = 60
"""Maximum letters of a command line in the heading; a longer one is printed whole below it."""
WELL_EXPLAINED_SHARE = 0.9
"""Explained share from which on its tile is green."""
FORECAST_RATIO = 2.0
"""Maximum time of the limit, in durations of the watch, for drawing it; a later one is given in words only."""
FORECAST_SHARE = 0.25
"""Length of the forecast's line, in durations of the watch, if the limit is not drawn."""
MINIMUM_SPAN_SHARE = 0.05
"""Minimum span of the axis, as a share of the highest value: noise of a flat program must look flat."""
AXIS_MARGIN_SHARE = 0.06
"""Margin beyond the lowest and the highest value of an axis, as a share of its range: lines do not touch the frame."""
MINIMUM_SPAN_BYTES = 1 << 20
"""Minimum bytes that the axis of changes covers, up and down."""
CLOCK_UNITS = (("h", 3600.0), ("min", 60.0))
"""Units of long times with their seconds, largest first."""
MINIMUM_CLOCK_UNITS = 3.0
"""Minimum duration of the watch, in a clock's unit, for an axis in that unit; else it is in seconds."""


def watch_page(watch: WatchResult, written_at: datetime) -> str:
    """Return the HTML of the whole page."""
    sections = [
        Section(title="Findings", blocks=list(_finding_blocks(watch))),
        Section(title="Memory", blocks=list(_memory_blocks(watch))),
        Section(title="Not seen", blocks=list(_unseen_blocks(watch))),
    ]
    name = watch.program if len(watch.program) <= MAXIMUM_NAME_LETTERS else f"{watch.program[:MAXIMUM_NAME_LETTERS]}…"
    return document(
        name,
        heading=[name, *_state_badge(watch)],
        subtitle=list(_subtitle_texts(watch, name)),
        tiles=_figure_tiles(watch),
        sections=sections,
        footer=f"Written by flatwater watch, {written_at:%Y-%m-%d %H:%M %Z}.",
    )


def _state_badge(watch: WatchResult) -> list[str | Piece]:
    """Return a blank and a badge that says how the program ended; nothing for a process that was attached.

    The badge is green only if the program ended with 0 and nothing was found.
    """
    code = watch.exit_code
    if code is None:
        return []
    if code == 0:
        is_flat = not watch.findings and watch.outcome.state != "unexplained"
        kind = "finished" if is_flat else "stopped"
        word = "ended" if is_flat else f"ended, {watch.outcome.first_words(findings=len(watch.findings))}"
    elif code == SIGNAL_EXIT_BASE + signal.SIGINT:
        kind, word = "stopped", "stopped by Ctrl-C"
    else:
        signal_names = {SIGNAL_EXIT_BASE + number: number.name for number in signal.Signals}  # by exit code
        kind, word = "failed", f"killed by {signal_names[code]}" if code in signal_names else f"exit code {code}"
    return [" ", Piece(word, f"state {kind}")]  # the second argument are classes of the page's style


def _subtitle_texts(watch: WatchResult, name: str) -> Iterator[str | Piece]:
    """Yield the text below the heading: first finding, command if `name` is not all of it, its end, readings."""
    if watch.findings:
        yield f"{growth_statement(watch.findings[0])} · "  # its card below has the instruction
    if name != watch.program:
        yield Piece(watch.program)
        yield " · "
    if watch.exit_code is None:
        yield "the watch ended before the program · "
    elif watch.exit_code == SIGNAL_EXIT_BASE + signal.SIGKILL:
        yield "SIGKILL is what the system sends where memory has run out · "
    readings = "1 reading" if watch.readings == 1 else f"{watch.readings} readings"
    worker_count = watch.processes - 1
    plural = "" if worker_count == 1 else "es"
    workers = "" if worker_count < 1 else f" · {worker_count} worker process{plural} below it"
    yield f"{readings} of memory{workers}"


def _figure_tiles(watch: WatchResult) -> Iterator[Tile]:
    """Yield the tiles at the top of the page: duration, memory, explained share, findings, and the watch's own cost.

    If nothing was read, only the tile of the duration is yielded.
    """
    if watch.unit == "second":  # the number of steps would be the duration once more
        yield Tile("duration", format_duration(watch.seconds), f"{watch.readings} readings")
    else:
        yield Tile(
            unit_plural(watch.unit), f"{watch.steps:,}", f"in {format_duration(watch.seconds)}{_pace_words(watch)}"
        )
    if not watch.readings:
        return
    # Not the last value: at its very end a program has often freed everything.
    highest = max(watch.series.resident, default=watch.resident)
    yield Tile("resident", short_bytes(highest), "at its highest")
    if watch.outcome.state == "settled":
        yield Tile("grown", short_bytes(watch.outcome.bytes), "at the beginning")
    else:
        yield Tile("grown", short_bytes(watch.grown), "since warm-up")
        yield _explained_tile(watch)
    yield _findings_tile(watch)
    yield Tile("the watch took", watch.cost_time, f"and {short_bytes(watch.cost_bytes)}")


def _explained_tile(watch: WatchResult) -> Tile:
    """Return the tile with the share of the growth that has a cause; green if that is nearly all."""
    # The findings explain a share of the growth; memory that the allocator keeps, and mapped files, the other share.
    findings_share, kept_share = explained_shares(watch.explained, watch.findings)
    note = "of the growth has a cause"
    if watch.findings and kept_share >= MINIMUM_KEPT_SHARE:
        note = f"{findings_share:.0%} found, {kept_share:.0%} freed memory and files"
    kind = "good" if watch.explained >= WELL_EXPLAINED_SHARE else ""
    return Tile("explained", f"{watch.explained:.0%}", below=note, kind=kind)


def _findings_tile(watch: WatchResult) -> Tile:
    """Return the tile with the number of findings; red if one is grave, or if growth has no cause."""
    grave_count = sum(is_grave(finding) for finding in watch.findings)
    # Without a finding the outcome's words: memory is flat, or its growth has no cause.
    note = f"{grave_count} to act on" if watch.findings else watch.outcome.first_words(findings=0)
    is_bad = grave_count or watch.outcome.state == "unexplained"
    return Tile("findings", str(len(watch.findings)), below=note, kind="bad" if is_bad else "good")


def _pace_words(watch: WatchResult) -> str:
    """Return the seconds per unit, or the units per second, as the end of a sentence; empty without a step."""
    if not watch.steps or not watch.seconds:
        return ""
    unit_seconds = watch.seconds / watch.steps
    return f", {format_duration(unit_seconds)} each" if unit_seconds >= 1 else f", {1 / unit_seconds:.3g} a second"


def _finding_blocks(watch: WatchResult) -> Iterator[Block]:
    """Yield the cards of the findings, or a sentence without findings; then unexplained growth, facts and advice."""
    if watch.findings:
        yield finding_cards([(finding, "") for finding in watch.findings])  # "": without a remark
    elif watch.readings:
        steps = f"1 {watch.unit}" if watch.steps == 1 else f"{watch.steps:,} {unit_plural(watch.unit)}"
        head = watch.outcome.first_words(findings=0).capitalize()
        kind = "missing" if watch.outcome.state == "unexplained" else "calm"
        yield Paragraph(f"{head}: no finding in {steps}.", kind)
    else:
        yield Paragraph("Nothing was read, so nothing is known. See below for why.", "missing")
    if watch.outcome.unexplained_growth_sentence():
        yield Paragraph(watch.outcome.unexplained_growth_sentence())
    for label, sentences in (("What is known", watch.outcome.known), ("What to try", watch.outcome.next)):
        if sentences:
            yield Paragraph(f"{label}:")
            yield Listing(sentences)


def _memory_blocks(watch: WatchResult) -> Iterator[Block]:
    """Yield the charts of memory over time, or a sentence if the result has no series."""
    if watch.series.seconds:
        yield resident_chart(watch)
        yield kinds_chart(watch.series)
        return
    yield Paragraph("There is nothing to draw: this result has no series of readings.", "missing")


def _unseen_blocks(watch: WatchResult) -> Iterator[Block]:
    """Yield what the watch could not see, or a sentence that there is nothing."""
    if watch.unseen:
        yield Listing(watch.unseen, "reading")
    else:
        yield Paragraph("Nothing is known to have been out of sight.", "reading")


def resident_chart(watch: WatchResult) -> Chart:
    """Draw resident memory over time, with a dashed line towards the limit if a finding says when it is reached."""
    series = watch.series
    clock, clock_seconds = _clock_unit(series.seconds[-1])
    unit, unit_bytes = byte_unit(series.resident)
    drawn_bytes: list[float] = list(series.resident)  # all values, with those of the forecast, for the axis
    step_labels = [] if watch.unit == "second" else [f"{watch.unit} {step}" for step in series.steps]
    x, y = _in_unit(series.seconds, clock_seconds), _in_unit(drawn_bytes, unit_bytes)
    marks = [Line(name="resident", x=x, y=y, colour="--owner-1", width=2.2, hover_text=step_labels)]
    warm_up = format_duration(series.seconds[_warm_up_index(series)])
    warm_up_note = (
        f"The first {warm_up}, a fifth of the readings, are taken for warm-up: growth is measured from there."
    )
    sentences = ["Bytes in RAM, without the watch's own.", warm_up_note]
    end = forecast_memory_end(watch)
    if end is not None:  # a finding says when the limit is reached
        line = _forecast_line(series, end)
        sentences.append(line.sentence)
        drawn_bytes += line.bytes
        line_x, line_y = _in_unit(line.seconds, clock_seconds), _in_unit(line.bytes, unit_bytes)
        marks.append(Line(name="forecast", x=line_x, y=line_y, colour="--quiet", width=1.6, dashed=True))
        if line.reaches_limit:  # a level line across the whole picture
            limit_x, limit_y = [series.seconds[0] / clock_seconds, line_x[-1]], [end.bytes / unit_bytes] * 2
            marks.append(Line(name="limit", x=limit_x, y=limit_y, colour="--budget", width=1.6, dashed=True))
    return Chart(
        title="Resident memory",
        reading=" ".join(sentences),
        marks=marks,
        x=Axis(unit=f" {clock}"),
        y=Axis(unit=f" {unit}", span=_axis_range(_in_unit(drawn_bytes, unit_bytes))),
        height=360,
    )


def kinds_chart(series: ReadingColumns) -> Chart:
    """Draw the kinds of memory over time: files, in use, freed and kept; each as its change since warm-up."""
    clock, clock_seconds = _clock_unit(series.seconds[-1])
    kinds = _memory_kinds(series)
    start = _warm_up_index(series)
    changes = {name: [value - values[start] for value in values] for name, values, _ in kinds}
    all_changes = [change for column in changes.values() for change in column]
    unit, unit_bytes = byte_unit([*all_changes, MINIMUM_SPAN_BYTES])
    low, high = min(*all_changes, -MINIMUM_SPAN_BYTES), max(*all_changes, MINIMUM_SPAN_BYTES)
    span = (1 + AXIS_MARGIN_SHARE) * low / unit_bytes, (1 + AXIS_MARGIN_SHARE) * high / unit_bytes
    x = _in_unit(series.seconds, clock_seconds)
    return Chart(
        title="Which kind of memory grows",
        reading="Each line is a kind's bytes against those at the end of warm-up. In use: objects and native memory; "
        "freed: pages that the program gave back and the allocator keeps; files: pages that the system can take back.",
        marks=[
            Line(name=name, x=x, y=_in_unit(changes[name], unit_bytes), colour=colour, form="+,.2f")
            for name, _, colour in kinds
        ],
        x=Axis(unit=f" {clock}"),
        y=Axis(unit=f" {unit}", span=span),
        height=260,
    )


def _memory_kinds(series: ReadingColumns) -> list[tuple[str, Sequence[int], str]]:
    """Return the kinds of memory: the name of each, its bytes by reading, and its colour."""
    files = "mapped files", series.files, "--owner-2"
    freed_column = series.freed or (0,) * len(series.resident)  # bytes that are not known count as in use
    rows = zip(series.resident, series.files, freed_column, strict=True)
    in_use = [resident - file_bytes - freed_bytes for resident, file_bytes, freed_bytes in rows]
    if not series.freed:  # the C library does not say which bytes are free
        return [files, ("in use, or freed and kept", in_use, "--owner-1")]
    return [files, ("freed, kept by the allocator", freed_column, "--owner-7"), ("in use", in_use, "--owner-1")]


class MemoryEnd(NamedTuple):
    """The point at which memory ends, as a forecast."""

    seconds: float
    """Seconds since the beginning of the watch."""
    bytes: int
    """Resident bytes at the limit."""
    step: int
    """Step of the program at which it comes."""


def forecast_memory_end(watch: WatchResult) -> MemoryEnd | None:
    """Forecast when and where memory ends, from the finding that comes to its limit first.

    Findings count in steps, which are turned into seconds at their pace since warm-up. None if no finding forecasts
    its limit, if the pace is not known, or if the limit is reached already.
    """
    ends = [
        (finding.limit_step, finding.limit_bytes)
        for finding in watch.findings
        if finding.has_date and finding.limit_step is not None and finding.limit_bytes is not None
    ]
    series = watch.series
    if not ends or not series.seconds:
        return None
    step, limit = min(ends)  # by step, the first of each pair
    start = _warm_up_index(series)
    steps_passed = series.steps[-1] - series.steps[start]
    seconds_passed = series.seconds[-1] - series.seconds[start]
    seconds_per_step = seconds_passed / steps_passed if steps_passed > 0 else 0.0
    if watch.unit == "second":  # exactly: steps are rounded seconds, which give a pace near 1 only
        seconds_per_step = 1.0
    seconds_left = (step - series.steps[-1]) * seconds_per_step
    if seconds_left <= 0 or limit <= series.resident[-1]:
        return None
    return MemoryEnd(series.seconds[-1] + seconds_left, limit, step)


class _ForecastLine(NamedTuple):
    """The line from the last reading towards the end of memory."""

    seconds: list[float]
    """Seconds since the beginning of the watch, of both ends of the line."""
    bytes: list[float]
    """Resident bytes of both ends."""
    reaches_limit: bool
    """Whether the limit is within the picture."""
    sentence: str
    """Text below the chart."""


def _forecast_line(series: ReadingColumns, end: MemoryEnd) -> _ForecastLine:
    """Return the line from the last reading to the limit, or its beginning if the limit lies beyond the picture."""
    last_seconds, last_bytes = series.seconds[-1], float(series.resident[-1])
    seconds_left = end.seconds - last_seconds
    forecast = (
        f"The dashed line goes on at this pace: the limit of {format_bytes(end.bytes)} is reached "
        f"{format_duration(seconds_left)} after the last reading"
    )
    if end.seconds <= FORECAST_RATIO * last_seconds:
        drawn_seconds, drawn_bytes = [last_seconds, end.seconds], [last_bytes, end.bytes]
        return _ForecastLine(drawn_seconds, drawn_bytes, reaches_limit=True, sentence=f"{forecast}.")
    drawn_share = FORECAST_SHARE * last_seconds / seconds_left  # of the line from the last reading to the limit
    drawn_seconds = [last_seconds, last_seconds * (1 + FORECAST_SHARE)]
    drawn_bytes = [last_bytes, last_bytes + drawn_share * (end.bytes - last_bytes)]
    return _ForecastLine(drawn_seconds, drawn_bytes, reaches_limit=False, sentence=f"{forecast}, beyond the picture.")


def _warm_up_index(series: ReadingColumns) -> int:
    return len(series.seconds) // ENDING.warm_up_divisor


def _clock_unit(seconds: float) -> tuple[str, float]:
    """Return the unit for an axis of so many seconds, such as `("min", 60.0)`."""
    units = ((name, size) for name, size in CLOCK_UNITS if seconds >= MINIMUM_CLOCK_UNITS * size)
    return next(units, ("s", 1.0))


def _in_unit(values: Sequence[float], unit_size: float) -> list[float]:
    return [value / unit_size for value in values]


def _axis_range(values: Sequence[float]) -> tuple[float, float]:
    """Return the range of an axis from below the lowest value to above the highest, with a minimum span."""
    low, high = min(values), max(values)
    missing_span = MINIMUM_SPAN_SHARE * high - (high - low)  # below 0 if the values span enough
    margin = max(AXIS_MARGIN_SHARE * (high - low), missing_span / 2)  # at each end
    return max(0.0, low - margin), high + margin
