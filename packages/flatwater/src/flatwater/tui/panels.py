"""The parts of the screen as rich text, for the live screen and for `flatwater top --once`."""

from collections.abc import Sequence
from math import isfinite

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from flatwater.memory.planner import group_bytes
from flatwater.metrics.figures import WHOLE_SECONDS_LIMIT, short_duration, short_number, short_seconds
from flatwater.rundir.statements import (
    BASE,
    FILES,
    OWNER_DEPTH,
    REST,
    SLACK,
    LedgerLine,
    listed_owners,
    resident_parts,
    steps_per_second,
)
from flatwater.tui.follow import FollowedRun, seconds_left
from flatwater_watch.diagnose.finding_text import growth_end, headline
from flatwater_watch.diagnose.verdicts import VERDICTS
from flatwater_watch.forms import count_phrase
from flatwater_watch.units import format_bytes, short_bytes

OWNED = "owned by the run"
QUIET, EMPTY, GOOD, WARNING, BAD = "#94a3b8", "#334155", "#2dd4bf", "#fbbf24", "#f87171"
COLOURS = {FILES: "#475569", BASE: QUIET, OWNED: "#3b82f6", SLACK: "#eab308", REST: "#ef4444"}
GLYPHS = {FILES: "░", BASE: "▒", OWNED: "█", SLACK: "▓", REST: "#"}
"""Characters that tell the parts of the bar apart where there are no colours."""
SHORT = {FILES: "files", BASE: "libraries", OWNED: "owned", SLACK: "slack", REST: "unaccounted"}
STATES = {"training": "bold #60a5fa", "finished": "bold #2dd4bf", "stopped": "bold #fbbf24"}
BLOCKS = "▁▂▃▄▅▆▇█"
BUDGET_AS_WIDTH = 0.25
"""Share of the budget from which the bar is as wide as the budget; below it all would be in one corner."""
WIDE = 46
"""Columns from which the table of owners also has their shares."""
NUMBERS = 30
"""Characters of the numbers beside a curve."""
HUNDREDS = 100
"""Value from which a size has no decimals: its three digits tell enough."""


def header_panel(followed: FollowedRun, width: int, now: float) -> Text:
    """Return two lines: the run, its state and the time left; and how much of it is done."""
    progress = f"{followed.recipe.layout.round} {followed.done}/{followed.rounds}"
    first_line = Text.assemble(
        (followed.folder.path.resolve().name, "bold"), "  ", (followed.state, STATES[followed.state]), f"  {progress}"
    )
    if followed.state == "training" and isfinite(seconds := seconds_left(followed, now)):
        first_line.append(f"  {short_duration(seconds)} left", style="bold")
    if followed.state == "training" and isfinite(followed.changed):
        first_line.append(f"  last {short_duration(max(0.0, now - followed.changed))} ago", style=QUIET)
    first_line.append(f"  {followed.what}", style=QUIET)
    first_line.truncate(width, overflow="ellipsis")
    filled = round(width * followed.done / followed.rounds) if followed.rounds else 0
    line = Text.assemble(("━" * filled, STATES[followed.state]), ("─" * (width - filled), EMPTY))
    return Text("\n").join([first_line, line])


def memory_title(line: LedgerLine | None) -> str:
    """Return the title above the bar."""
    if line is None:
        return "memory"
    if not line.budget:
        return f"memory · {short_bytes(line.resident)} resident"
    share = line.resident / line.budget
    return f"memory · {short_bytes(line.resident)} resident, {share:.0%} of the budget of {short_bytes(line.budget)}"


def missing_ledger_text(followed: FollowedRun) -> Text:
    """Return why there is nothing to show about memory."""
    sentence = (
        "This run has no ledger."
        if followed.done
        else f"The ledger begins with the first {followed.recipe.layout.round}."
    )
    return Text(sentence, style=QUIET)


def memory_panel(line: LedgerLine, width: int, *, coloured: bool = True) -> Text:
    """Return the resident memory as a bar, its parts, and the process in numbers.

    Args:
        line: last line of the ledger.
        width: number of columns.
        coloured: whether parts are told apart by colour; otherwise each has its own character.
    """
    parts = resident_parts(line, ())
    sizes = {FILES: parts[FILES], BASE: parts[BASE], OWNED: line.owned_bytes, SLACK: parts[SLACK], REST: parts[REST]}
    width_bytes = line.budget if line.resident >= BUDGET_AS_WIDTH * line.budget else line.resident
    glyphs = dict.fromkeys(sizes, "█") if coloured else GLYPHS
    marks = dict.fromkeys(sizes, "■") if coloured else GLYPHS
    legend = [
        Text.assemble(
            (f"{marks[name]} ", COLOURS[name]), (f"{SHORT[name]} ", QUIET), _text_in_unit(size, line.resident)
        )
        for name, size in sizes.items()
    ]
    legend[-1].append(f" {format_bytes(line.resident).split()[1]}", style=QUIET)
    gap = 2 if sum(len(entry) + 2 for entry in legend) - 2 <= width else 1
    lines = [
        # The larger of both: a run may be above its budget, until it has saved.
        segment_bar(sizes, max(width_bytes, line.resident), width, glyphs),
        Text(" " * gap).join(legend),
        Text(_process_line(line), style=QUIET),
    ]
    for text in lines:
        text.truncate(width, overflow="ellipsis")
    return Text("\n").join(lines)


def _text_in_unit(size: int, total: int) -> str:
    """Return a size in the unit of the whole, so that the parts can be compared."""
    scale = total / float(format_bytes(total).split()[0]) if total else 1.0
    value = size / scale
    return f"{value:.0f}" if abs(value) >= HUNDREDS else f"{value:.2f}" if abs(value) < 1 else f"{value:.1f}"


def _process_line(line: LedgerLine) -> str:
    """Return one line about the run's processes: private bytes, allocator, GPU, workers, and counts."""
    phrases = [f"private {short_bytes(line.private)}"] if line.private else []
    phrases += [f"allocator {short_bytes(line.in_use)}"] if line.in_use is not None else []
    if line.cuda_reserved is not None:
        phrases.append(f"GPU {short_bytes(line.cuda_allocated or 0)} of {short_bytes(line.cuda_reserved)} reserved")
    if line.workers:
        off = sum(bool(worker.unplanned) for worker in line.workers)
        private_text = short_bytes(sum(worker.private for worker in line.workers))
        phrases.append(
            f"{count_phrase(len(line.workers), 'worker')} {private_text}{f', {off} not as planned' if off else ''}"
        )
    counts = ((line.processes, "process"), (line.envs, "env"), (line.threads, "thread"), (line.files, "file"))
    phrases.append(", ".join(count_phrase(count, name) for count, name in counts))
    return " · ".join(phrases)


def segment_bar(sizes: dict[str, int], full: int, width: int, glyphs: dict[str, str]) -> Text:
    """Return a bar of one segment for each size; each ends where its sum does, so that rounding errors never add up.

    Args:
        sizes: bytes by name; less than 0 is drawn as 0.
        full: bytes of the whole width.
        width: number of columns.
        glyphs: character of each name's segment.
    """
    text = Text()
    filled = 0
    total = 0
    for name, size in sizes.items():
        total += max(0, size)  # what is unaccounted may be below 0
        end = min(width, round(width * total / full)) if full else 0
        text.append(glyphs[name] * (end - filled), style=COLOURS[name])
        filled = max(filled, end)
    return text.append("·" * (width - filled), style=EMPTY)


def owners_table(followed: FollowedRun, width: int, most: int | None = None) -> Table | Text:
    """Return bytes by owner, most first, and how far each is from the plan; the `most` largest, or all."""
    if followed.line is None:
        return missing_ledger_text(followed)
    held_bytes = group_bytes(followed.line.owned, depth=OWNER_DEPTH)
    planned_bytes = group_bytes(listed_owners(followed.plan), depth=OWNER_DEPTH) if followed.plan is not None else {}
    has_shares = width >= WIDE
    table = _table(width, "owner", "held", *(["share"] if has_shares else []), "off plan")
    ordered = sorted(held_bytes.items(), key=lambda item: (-item[1], item[0]))
    for name, size in ordered[:most]:
        difference = size - planned_bytes[name] if name in planned_bytes else None
        difference_text = (
            ""
            if difference is None
            else "0"
            if difference == 0
            else f"{'+' if difference > 0 else '-'}{short_bytes(abs(difference))}"
        )
        share = size / followed.line.owned_bytes if followed.line.owned_bytes else 0.0
        # WARNING below the plan: not all pages are touched yet.
        style = GOOD if not difference else BAD if difference > 0 else WARNING
        table.add_row(
            name, short_bytes(size), *([f"{share:.0%}"] if has_shares else []), Text(difference_text, style=style)
        )
    smaller = ordered[len(ordered[:most]) :]
    if smaller:
        table.add_row(f"{len(smaller)} smaller", short_bytes(sum(size for _, size in smaller)), style=QUIET)
    return table


def phase_table(line: LedgerLine | None, width: int) -> Table | Text:
    """Return seconds, pace and peak of each phase of the last round."""
    if line is None or not line.phases:
        return Text("No phase has ended yet.", style=QUIET)
    table = _table(width, "phase", "seconds", "steps/s", "peak")
    for name, effort in line.phases.items():
        peak = "" if effort.peak is None else short_bytes(effort.peak)
        table.add_row(name, f"{effort.seconds:.1f}", short_number(steps_per_second(effort)), peak)
    return table


def phases_title(followed: FollowedRun) -> str:
    """Return the title above the phases: seconds of the last round, and of a round on average."""
    title = "phases · last"
    if not followed.timed:
        return f"{title} {followed.recipe.layout.round}"
    last_seconds, mean = (
        f"{short_seconds(value)}{' s' if value < WHOLE_SECONDS_LIMIT else ''}"
        for value in (followed.took[-1], followed.mean_seconds)
    )
    share = f" of {followed.timed:,}" if followed.timed < followed.done else ""
    return f"{title} {last_seconds}, mean{share} {mean}"


def _table(width: int, *titles: str) -> Table:
    """Return a table without lines whose first column takes the width that the others leave."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), width=width, header_style=QUIET)
    table.add_column(titles[0], ratio=1, no_wrap=True, overflow="ellipsis")
    for title in titles[1:]:
        table.add_column(title, justify="right", no_wrap=True)
    return table


def curves_panel(followed: FollowedRun, width: int) -> Text:
    """Return the curves of the run's recipe and resident memory, small."""
    *other_curves, judged = followed.recipe.curves.items()
    curves = [*((other, QUIET) for other in other_curves), (judged, "#fb923c")]
    rows = [
        *((title, name, colour, short_number) for (title, name), colour in curves),
        ("resident", "resident", "#3b82f6", short_bytes),
    ]
    label_width, lines = max(len(title) for title, *_ in rows) + 1, []
    for title, name, colour, form in rows:
        values = list(followed.history[name])
        finite = [value for value in values if isfinite(value)]
        if not finite:
            continue
        low, high, newest = (form(value) for value in (min(finite), max(finite), finite[-1]))
        numbers = f"{newest:>8}  {low} to {high}"
        curve_width = max(4, width - label_width - NUMBERS)
        curve = sparkline(values, curve_width)
        lines.append(
            Text.assemble((f"{title:<{label_width}}", QUIET), (f"{curve:<{curve_width}}", colour), " ", numbers)
        )
    numbers_now = [
        Text.assemble((f"{column.title} ", QUIET), column.show(value))
        for column in followed.recipe.layout.live_columns
        if (value := followed.metrics.get(column.name)) is not None
    ]
    if numbers_now:
        lines.append(Text("  ").join(numbers_now))
        lines[-1].truncate(width, overflow="ellipsis")
    return Text("\n").join(lines) if lines else Text(f"No {followed.recipe.layout.round} has ended yet.", style=QUIET)


def sparkline(values: Sequence[float], width: int) -> str:
    """Return `width` characters, each the mean of its part of the values, or between two where there are fewer.

    A blank stands where no value is finite.
    """
    finite_values = [value for value in values if isfinite(value)]
    if not finite_values:
        return ""
    low = min(finite_values)
    span = max(finite_values) - min(finite_values)
    characters = []
    for column in range(width):
        if len(values) < width:
            column_values: Sequence[float] = [_between(values, column * (len(values) - 1) / (width - 1))]
        else:
            column_values = values[column * len(values) // width : (column + 1) * len(values) // width]
        finite = [value for value in column_values if isfinite(value)]
        # A level curve lies at the bottom.
        height = (sum(finite) / len(finite) - low) / span if finite and span else 0.0
        characters.append(BLOCKS[round(height * (len(BLOCKS) - 1))] if finite else " ")
    return "".join(characters)


def _between(values: Sequence[float], place: float) -> float:
    """Return a point on the line between two values; the nearer of them where the other is not finite."""
    index = int(place)
    low, high, fraction = values[index], values[min(index + 1, len(values) - 1)], place - index
    if isfinite(low) and isfinite(high):
        return low + fraction * (high - low)
    return low if 2 * fraction < 1 else high


def findings_panel(followed: FollowedRun, row_width: int | None = None) -> Group:
    """Return lines on growing memory, gravest first, and on the run's alarms.

    Args:
        followed: the run.
        row_width: columns of a screen with few rows: alarms stand first, and each finding is one row, without details;
            None on other screens.
    """
    findings = sorted(
        followed.findings.values(), key=lambda item: (not VERDICTS[item[1].verdict].is_grave, -item[1].bytes_per_step)
    )
    lines = list[Text | Padding]()
    for _, finding in findings:
        is_grave = VERDICTS[finding.verdict].is_grave
        lines.append(Text.assemble((f"{finding.verdict}  ", f"bold {BAD if is_grave else WARNING}"), headline(finding)))
        origin = "" if finding.made_at is None else f"made at {finding.made_at}"
        details = [text for text in (origin, growth_end(finding)) if text]
        if details and row_width is None:
            lines.append(_indent("; ".join(details)))
        if finding.advice and row_width is None:
            lines.append(_indent(finding.advice))
    if followed.alarms:
        alarm = Text.assemble((f"{count_phrase(followed.alarms, 'alarm')}  ", f"bold {WARNING}"), followed.alarm)
        lines.insert(len(lines) if row_width is None else 0, alarm)
    if row_width is not None:
        for line in lines:
            if isinstance(line, Text):
                line.truncate(row_width, overflow="ellipsis")
    if not lines:
        has_ledger = followed.line is not None
        lines = [Text("Nothing grows." if has_ledger else "Nothing is known yet.", style=GOOD if has_ledger else QUIET)]
    return Group(*lines)


def _indent(text: str) -> Padding:
    return Padding(Text(text, style=QUIET), (0, 0, 0, 2))


def findings_title(followed: FollowedRun) -> str:
    """Return the title above the findings."""
    counts = [str(len(followed.findings))] if followed.findings else []
    counts += [count_phrase(followed.alarms, "alarm")] if followed.alarms else []
    return " · ".join(["findings", *counts])


def course_title(followed: FollowedRun) -> str:
    """Return the title above the curves."""
    count = len(followed.history[next(iter(followed.recipe.curves.values()))])
    return f"course · last {count_phrase(count, followed.recipe.layout.round)}" if count < followed.done else "course"
