"""The parts of the screen as rich text, for the live screen and for `flatwater top --once`."""

from collections.abc import Sequence
from math import isfinite

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from flatwater.memory.planner import group_bytes
from flatwater.metrics.short_numbers import WHOLE_SECONDS_LIMIT, short_duration, short_number, short_seconds
from flatwater.rundir.records import (
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
from flatwater.tui.followed_run import FollowedRun, seconds_left
from flatwater_watch.diagnose.finding_text import growth_end, headline
from flatwater_watch.diagnose.verdicts import VERDICTS
from flatwater_watch.phrases import count_phrase
from flatwater_watch.units import format_bytes, short_bytes

OWNED = "owned by the run"
QUIET, EMPTY, GOOD, WARNING, BAD = "#94a3b8", "#334155", "#2dd4bf", "#fbbf24", "#f87171"
PART_COLOURS = {FILES: "#475569", BASE: QUIET, OWNED: "#3b82f6", SLACK: "#eab308", REST: "#ef4444"}
PART_GLYPHS = {FILES: "░", BASE: "▒", OWNED: "█", SLACK: "▓", REST: "#"}
"""Characters of the bar's parts on a terminal without colours."""
SHORT_NAMES = {FILES: "files", BASE: "libraries", OWNED: "owned", SLACK: "slack", REST: "unaccounted"}
STATE_STYLES = {"training": "bold #60a5fa", "finished": "bold #2dd4bf", "stopped": "bold #fbbf24"}
LEVEL_CHARACTERS = "▁▂▃▄▅▆▇█"
BUDGET_AS_WIDTH = 0.25
"""Share of the budget from which the bar's width stands for the budget; below it, it stands for all memory used."""
WIDE_TABLE_COLUMNS = 46
"""Columns from which the table of owners also has their shares."""
NUMBERS_WIDTH = 30
"""Width of the numbers beside a curve."""
WHOLE_FROM = 100
"""Value from which a size is written without decimals."""


def header_panel(run: FollowedRun, width: int, now: float) -> Text:
    """Return two lines: the run's name, state, progress and time left; and a bar of its progress."""
    progress = f"{run.recipe.layout.round} {run.done}/{run.rounds}"
    first_line = Text.assemble(
        (run.folder.path.resolve().name, "bold"),
        "  ",
        (run.state, STATE_STYLES[run.state]),
        f"  {progress}",
    )
    if run.state == "training" and isfinite(seconds := seconds_left(run, now)):
        first_line.append(f"  {short_duration(seconds)} left", style="bold")
    if run.state == "training" and isfinite(run.changed):
        first_line.append(f"  last {short_duration(max(0.0, now - run.changed))} ago", style=QUIET)
    first_line.append(f"  {run.data_and_device}", style=QUIET)
    first_line.truncate(width, overflow="ellipsis")
    filled_width = round(width * run.done / run.rounds) if run.rounds else 0
    progress_bar = Text.assemble(("━" * filled_width, STATE_STYLES[run.state]), ("─" * (width - filled_width), EMPTY))
    return Text("\n").join([first_line, progress_bar])


def memory_title(line: LedgerLine | None) -> str:
    """Return the title of the memory panel: resident bytes, and their share of the budget."""
    if line is None:
        return "memory"
    if not line.budget:
        return f"memory · {short_bytes(line.resident)} resident"
    share = line.resident / line.budget
    return f"memory · {short_bytes(line.resident)} resident, {share:.0%} of the budget of {short_bytes(line.budget)}"


def missing_ledger_text(run: FollowedRun) -> Text:
    """Return a sentence that says why no memory is shown."""
    if run.done:
        return Text("This run has no ledger.", style=QUIET)
    return Text(f"The ledger begins with the first {run.recipe.layout.round}.", style=QUIET)


def memory_panel(line: LedgerLine, width: int, *, is_coloured: bool = True) -> Text:
    """Return three lines: a bar of the resident memory, its parts in numbers, and facts of the processes.

    Args:
        line: last line of the ledger.
        width: number of columns.
        is_coloured: whether parts have colours; otherwise each has its own character.
    """
    parts = resident_parts(line, ())
    sizes = {FILES: parts[FILES], BASE: parts[BASE], OWNED: line.owned_bytes, SLACK: parts[SLACK], REST: parts[REST]}
    # As wide as the budget; as the memory, if that is far below the budget, or above it until the run has saved.
    shows_budget = line.resident >= BUDGET_AS_WIDTH * line.budget
    width_bytes = max(line.budget, line.resident) if shows_budget else line.resident
    glyphs = dict.fromkeys(sizes, "█") if is_coloured else PART_GLYPHS
    marks = dict.fromkeys(sizes, "■") if is_coloured else PART_GLYPHS
    legend = [
        Text.assemble(
            (f"{marks[name]} ", PART_COLOURS[name]),
            (f"{SHORT_NAMES[name]} ", QUIET),
            _text_in_unit(size, line.resident),
        )
        for name, size in sizes.items()
    ]
    # The unit of all numbers, once.
    legend[-1].append(f" {format_bytes(line.resident).split()[1]}", style=QUIET)
    wide_legend_columns = sum(len(entry) + 2 for entry in legend) - 2  # with gaps of two blanks between entries
    gap = 2 if wide_legend_columns <= width else 1
    lines = [
        segment_bar(sizes, width_bytes, width, glyphs),
        Text(" " * gap).join(legend),
        Text(_process_line(line), style=QUIET),
    ]
    for text in lines:
        text.truncate(width, overflow="ellipsis")
    return Text("\n").join(lines)


def _text_in_unit(size: int, total: int) -> str:
    """Return a size as a number without its unit, in the unit that `format_bytes(total)` has: parts compare with it."""
    # A text such as `1.50 GiB`: `total / 1.50` is the unit in bytes, but for the rounding of the text.
    unit_bytes = total / float(format_bytes(total).split()[0]) if total else 1.0
    value = size / unit_bytes
    if abs(value) >= WHOLE_FROM:
        return f"{value:.0f}"
    return f"{value:.2f}" if abs(value) < 1 else f"{value:.1f}"


def _process_line(line: LedgerLine) -> str:
    """Return one line about the run's processes: private bytes, allocator, GPU, workers, and counts."""
    phrases = list[str]()
    if line.private:
        phrases.append(f"private {short_bytes(line.private)}")
    if line.in_use is not None:
        phrases.append(f"allocator {short_bytes(line.in_use)}")
    if line.cuda_reserved is not None:
        phrases.append(f"GPU {short_bytes(line.cuda_allocated or 0)} of {short_bytes(line.cuda_reserved)} reserved")
    if line.workers:
        unplanned_count = sum(bool(worker.unplanned) for worker in line.workers)
        unplanned_text = f", {unplanned_count} not as planned" if unplanned_count else ""
        private_text = short_bytes(sum(worker.private for worker in line.workers))
        phrases.append(f"{count_phrase(len(line.workers), 'worker')} {private_text}{unplanned_text}")
    counts = ((line.processes, "process"), (line.envs, "env"), (line.threads, "thread"), (line.files, "file"))
    phrases.append(", ".join(count_phrase(count, name) for count, name in counts))
    return " · ".join(phrases)


def segment_bar(sizes: dict[str, int], full_bytes: int, width: int, glyphs: dict[str, str]) -> Text:
    """Return a bar with a segment for each size, filled up with dots to its width.

    A segment ends where the sum of the sizes so far is, so that rounding errors do not add up.

    Args:
        sizes: bytes by name; less than 0 is drawn as 0.
        full_bytes: bytes of the whole width.
        width: number of columns.
        glyphs: character of each name's segment.
    """
    text = Text()
    filled_cells = 0
    total = 0
    for name, size in sizes.items():
        total += max(0, size)  # unaccounted memory may be below 0
        end = min(width, round(width * total / full_bytes)) if full_bytes else 0
        text.append(glyphs[name] * (end - filled_cells), style=PART_COLOURS[name])
        filled_cells = max(filled_cells, end)
    return text.append("·" * (width - filled_cells), style=EMPTY)


def owners_table(run: FollowedRun, width: int, maximum: int | None = None) -> Table | Text:
    """Return a table of the `maximum` largest owners, or of all: bytes, share, and difference from the plan."""
    if run.line is None:
        return missing_ledger_text(run)
    held_bytes = group_bytes(run.line.owned, depth=OWNER_DEPTH)
    planned_bytes = group_bytes(listed_owners(run.plan), depth=OWNER_DEPTH) if run.plan is not None else {}
    has_shares = width >= WIDE_TABLE_COLUMNS
    table = _empty_table(width, "owner", "held", *(["share"] if has_shares else []), "off plan")
    largest_first = sorted(held_bytes.items(), key=lambda item: (-item[1], item[0]))
    for name, size in largest_first[:maximum]:
        difference_text = _difference_text(size - planned_bytes[name]) if name in planned_bytes else Text("")
        share = size / run.line.owned_bytes if run.line.owned_bytes else 0.0
        table.add_row(name, short_bytes(size), *([f"{share:.0%}"] if has_shares else []), difference_text)
    smaller = largest_first[maximum:] if maximum is not None else []
    if smaller:
        table.add_row(f"{len(smaller)} smaller", short_bytes(sum(size for _, size in smaller)), style=QUIET)
    return table


def _difference_text(difference: int) -> Text:
    """Return an owner's difference from the plan in bytes, with a sign and a colour."""
    if difference == 0:
        return Text("0", style=GOOD)
    if difference > 0:
        return Text(f"+{short_bytes(difference)}", style=BAD)
    return Text(f"-{short_bytes(-difference)}", style=WARNING)  # not all pages are touched yet


def phase_table(line: LedgerLine | None, width: int) -> Table | Text:
    """Return a table of the last round's phases: seconds, steps per second, and peak of temporary bytes."""
    if line is None or not line.phases:
        return Text("No phase has ended yet.", style=QUIET)
    table = _empty_table(width, "phase", "seconds", "steps/s", "peak")
    for name, effort in line.phases.items():
        peak = "" if effort.peak is None else short_bytes(effort.peak)
        table.add_row(name, f"{effort.seconds:.1f}", short_number(steps_per_second(effort)), peak)
    return table


def phases_title(run: FollowedRun) -> str:
    """Return the title above the phases: seconds of the last round, and the mean of all rounds that were read.

    Without times it names the round alone. Phases of other rounds than the last, after which memory was measured, are
    named.
    """
    title = "phases · last"
    if run.line is not None and (run.measured_before + 1, run.line.round) != (run.done, run.done):
        first, last = run.measured_before + 1, run.line.round
        is_one = first == last
        noun = run.recipe.layout.round if is_one else run.recipe.layout.rounds
        title = f"phases of {noun} {f'{last:,}' if is_one else f'{first:,} to {last:,}'} · last"
    if not run.timed_rounds:
        return f"{title} {run.recipe.layout.round}"  # the recipe's word for a round, such as `generation`
    last_text, mean_text = _seconds_text(run.last_seconds[-1]), _seconds_text(run.mean_seconds)
    rounds_text = f" of {run.timed_rounds:,}" if run.timed_rounds < run.done else ""
    return f"{title} {last_text}, mean{rounds_text} {mean_text}"


def _seconds_text(seconds: float) -> str:
    # `short_seconds` writes units from `WHOLE_SECONDS_LIMIT` on alone.
    return f"{short_seconds(seconds)}{' s' if seconds < WHOLE_SECONDS_LIMIT else ''}"


def _empty_table(width: int, *titles: str) -> Table:
    """Return an empty table without lines; its first column gets the width that the others leave."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), width=width, header_style=QUIET)
    table.add_column(titles[0], ratio=1, no_wrap=True, overflow="ellipsis")
    for title in titles[1:]:
        table.add_column(title, justify="right", no_wrap=True)
    return table


def curves_panel(run: FollowedRun, width: int) -> Text:
    """Return a small curve of each of the recipe's metrics and of resident memory, then numbers of the last round."""
    *other_curves, judged_curve = run.recipe.curves.items()
    # Title, name in the history, colour, and function that writes a value; runs are judged by the last curve.
    rows = [
        *((title, name, QUIET, short_number) for title, name in other_curves),
        (*judged_curve, "#fb923c", short_number),
        ("resident", "resident", "#3b82f6", short_bytes),
    ]
    label_width = max(len(title) for title, *_ in rows) + 1
    lines = []
    for title, name, colour, format_value in rows:
        values = list(run.history[name])
        finite = [value for value in values if isfinite(value)]
        if not finite:
            continue
        newest = format_value(finite[-1])
        numbers = f"{newest:>8}  {format_value(min(finite))} to {format_value(max(finite))}"
        curve_width = max(4, width - label_width - NUMBERS_WIDTH)
        curve = sparkline(values, curve_width)
        lines.append(
            Text.assemble((f"{title:<{label_width}}", QUIET), (f"{curve:<{curve_width}}", colour), " ", numbers)
        )
    numbers_now = [
        Text.assemble((f"{column.title} ", QUIET), column.show(value))
        for column in run.recipe.layout.live_columns
        if (value := run.metrics.get(column.name)) is not None
    ]
    if numbers_now:
        lines.append(Text("  ").join(numbers_now))
        lines[-1].truncate(width, overflow="ellipsis")
    return Text("\n").join(lines) if lines else Text(f"No {run.recipe.layout.round} has ended yet.", style=QUIET)


def sparkline(values: Sequence[float], width: int) -> str:
    """Return a curve of `width` characters, from the lowest block to the highest; empty without a finite value.

    Each character shows the mean of its share of the values; fewer values than characters are interpolated. It is a
    blank where no value is finite.
    """
    finite_values = [value for value in values if isfinite(value)]
    if not finite_values:
        return ""
    low = min(finite_values)
    span = max(finite_values) - min(finite_values)
    characters = []
    for column in range(width):
        if len(values) < width:
            column_values: Sequence[float] = [_interpolate_value(values, column * (len(values) - 1) / (width - 1))]
        else:
            column_values = values[column * len(values) // width : (column + 1) * len(values) // width]
        finite = [value for value in column_values if isfinite(value)]
        # From 0 to 1; a curve of equal values, without a span, lies at the bottom.
        height = (sum(finite) / len(finite) - low) / span if finite and span else 0.0
        characters.append(LEVEL_CHARACTERS[round(height * (len(LEVEL_CHARACTERS) - 1))] if finite else " ")
    return "".join(characters)


def _interpolate_value(values: Sequence[float], position: float) -> float:
    """Return the value at a fractional index, by a line between its neighbours; the nearer if one is not finite."""
    index = int(position)
    left, right, fraction = values[index], values[min(index + 1, len(values) - 1)], position - index
    if isfinite(left) and isfinite(right):
        return left + fraction * (right - left)
    return left if 2 * fraction < 1 else right


def findings_panel(run: FollowedRun, row_width: int | None = None) -> Group:
    """Return lines on the findings, the gravest first, and on the run's alarms.

    Args:
        run: the run.
        row_width: columns of a screen with few rows, on which alarms come first and a finding has one row without
            details; None on other screens.
    """
    findings = sorted(
        (finding for _, finding in run.findings.values()),
        key=lambda finding: (not VERDICTS[finding.verdict].is_grave, -finding.bytes_per_step),  # the gravest first
    )
    lines = list[Text | Padding]()
    for finding in findings:
        is_grave = VERDICTS[finding.verdict].is_grave
        lines.append(Text.assemble((f"{finding.verdict}  ", f"bold {BAD if is_grave else WARNING}"), headline(finding)))
        origin = "" if finding.made_at is None else f"made at {finding.made_at}"
        details = [text for text in (origin, growth_end(finding)) if text]
        if details and row_width is None:
            lines.append(_indent("; ".join(details)))
        if finding.advice and row_width is None:
            lines.append(_indent(finding.advice))
    if run.alarms:
        alarm = Text.assemble((f"{count_phrase(run.alarms, 'alarm')}  ", f"bold {WARNING}"), run.alarm)
        # Last, or first on a screen with few rows.
        lines.insert(len(lines) if row_width is None else 0, alarm)
    if row_width is not None:
        for line in lines:
            if isinstance(line, Text):
                line.truncate(row_width, overflow="ellipsis")
    if not lines:
        has_ledger = run.line is not None
        lines = [Text("Nothing grows." if has_ledger else "Nothing is known yet.", style=GOOD if has_ledger else QUIET)]
    return Group(*lines)


def _indent(text: str) -> Padding:
    return Padding(Text(text, style=QUIET), (0, 0, 0, 2))


def findings_title(run: FollowedRun) -> str:
    """Return the title above the findings, with the numbers of findings and alarms."""
    counts = [str(len(run.findings))] if run.findings else []
    counts += [count_phrase(run.alarms, "alarm")] if run.alarms else []
    return " · ".join(["findings", *counts])


def course_title(run: FollowedRun) -> str:
    """Return the title above the curves; it has their number of rounds if that is less than all."""
    first_metric = next(iter(run.recipe.curves.values()))  # all curves have as many rounds
    count = len(run.history[first_metric])
    return f"course · last {count_phrase(count, run.recipe.layout.round)}" if count < run.done else "course"
